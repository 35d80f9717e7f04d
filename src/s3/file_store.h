/* The blocking half of the bucket in a local folder: one attempt of one operation (decisions.md 3).
 *
 * Object K of bucket B is the file <path>/B/K. A PUT writes
 *   <path>/B/.queen-tmp/<instance>-<incarnation>-<random>     (both numbers 16 hex digits)
 * syncs it, renames it over K, and syncs the folders that the new name hangs from. */
#ifndef S3_FILE_STORE_H
#define S3_FILE_STORE_H

#include "s3/bucket.h"

struct file_store;

struct file_store_options {
    struct span path, bucket, instance;
    struct entropy *entropy; /* borrowed */
};

/* Cleans this instance's leftovers when the folder is there. Blocks. */
struct file_store *file_store_new(const struct file_store_options *options);
void file_store_free(struct file_store *s); /* NULL is allowed */

/* One attempt of r: sets outcome, code, error, and out or keys. cancel: looked at between pieces of
 * a transfer, which then ends as BUCKET_CANCELLED. Any thread; blocks. */
void file_store_attempt(struct file_store *s, struct bucket_request *r, const atomic_bool *cancel);

/* Lists a folder for BUCKET_LIST (file_list.c): `root` is the bucket's folder, without a slash at
 * its end. Same contract as file_store_attempt(). */
void file_list(const char *root, struct bucket_request *r, const atomic_bool *cancel);

#define FILE_STORE_TMP ".queen-tmp"

/* Fills in a failed system call: retriable but for names that are too long, with what to do. */
void file_fail_sys(struct bucket_request *r, const char *call, const char *path, int error);
void file_succeed(struct bucket_request *r, enum bucket_outcome outcome);

#endif
