/* What the resources routes share (spec/broker-api.md 11). Nobody consumes yet: everything that is
 * retained is pending. */
#ifndef API_RESOURCES_H
#define API_RESOURCES_H

#include "api/internal.h"

#define PARTITIONS_LIMIT_DEFAULT 610 /* of GET /api/v1/resources/partitions */
#define PARTITIONS_LIMIT_MAX 5000

void put_uuid(struct json_writer *w, const char *key, const struct uuid *id);
void put_number(struct json_writer *w, const char *key, uint64_t n);
void put_time(struct json_writer *w, const char *key, int64_t us); /* 0: null */

/* What becomes of `failed`, which not every place has. */
enum failed { FAILED_ABSENT, FAILED_NULL, FAILED_ZERO };
void put_counts(struct json_writer *w, const char *key, uint64_t total, enum failed failed);

/* namespace, task */
void put_labels(struct json_writer *w, const struct queue *q);
/* segments, retainedBytes, options. Read lock held. */
void put_holdings(struct json_writer *w, const struct queue *q);

/* One live queue, under the read lock, which a walk lets go of now and then; false: enough. */
typedef bool (*queue_fn)(void *ctx, const struct queue *q);
/* The newest first. One that is deleted meanwhile may be missing, as may one that is made. */
ERR_CHECK enum err each_queue(struct api_read *r, queue_fn fn, void *ctx);

#endif
