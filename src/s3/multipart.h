/* The course of an upload in parts (objects.md 10 Sizes, Integrity; decisions.md 15): create, the
 * parts one after another, complete; abort after a failure; a new upload when the store has
 * forgotten this one. Pure: the client makes the calls. */
#ifndef S3_MULTIPART_H
#define S3_MULTIPART_H

#include "s3/s3_answer.h"

#define MULTIPART_RESTARTS_MAX 3u /* a store that always forgets: the caller starts over, later */

struct multipart {
    uint64_t size, part_bytes;
    unsigned parts;       /* in all */
    unsigned part;        /* the one on its way, from 1 */
    unsigned restarts;    /* uploads that were forgotten */
    struct buf upload_id; /* empty: none is open */
    struct buf etags;     /* of the parts that landed, one after another */
    struct buf ends;      /* of size_t: where each ends */
};

enum multipart_next {
    MULTIPART_CALL,    /* make the call */
    MULTIPART_RESTART, /* wait, then begin with CREATE */
    MULTIPART_END, /* the request is over: with the verdict before the abort, if there was one */
};

/* size > 0. */
void multipart_init(struct multipart *m, uint64_t size, uint64_t part_bytes);
void multipart_deinit(struct multipart *m);

/* What follows on a call that is not retried any more. */
enum multipart_next multipart_step(struct multipart *m, enum s3_call done,
                                   const struct s3_verdict *v, enum s3_call *call_out);

uint64_t multipart_part_from(const struct multipart *m); /* first byte of the current part */
uint64_t multipart_part_size(const struct multipart *m);
void multipart_put_completion(const struct multipart *m, struct buf *b);

#endif
