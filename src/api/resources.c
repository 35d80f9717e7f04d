/* Walks over queues in steps, and the pieces of JSON that several resources have. */
#include "api/resources.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define STEP 256u /* queues per hold of the read lock */

void put_uuid(struct json_writer *w, const char *key, const struct uuid *id)
{
    uint8_t space[UUID_TEXT_LEN];
    struct buf text = {.ptr = space, .cap = sizeof(space)};
    buf_put_uuid(&text, id);
    json_key(w, key);
    json_str(w, buf_span(&text));
}

void put_time(struct json_writer *w, const char *key, int64_t us)
{
    uint8_t space[32]; /* 27 bytes: never grows */
    struct buf text = {.ptr = space, .cap = sizeof(space)};
    json_key(w, key);
    if (us == 0) {
        json_null(w);
        return;
    }
    buf_put_iso_us(&text, us);
    json_str(w, buf_span(&text));
}

void put_number(struct json_writer *w, const char *key, uint64_t n)
{
    json_key(w, key);
    json_u64(w, n);
}

void put_counts(struct json_writer *w, const char *key, uint64_t total, enum failed failed)
{
    json_key(w, key);
    json_begin_object(w);
    put_number(w, "total", total);
    put_number(w, "pending", total);
    put_number(w, "processing", 0);
    put_number(w, "completed", 0);
    if (failed != FAILED_ABSENT) {
        json_key(w, "failed");
        if (failed == FAILED_NULL)
            json_null(w);
        else
            json_u64(w, 0);
    }
    put_number(w, "deadLetter", 0);
    json_end_object(w);
}

void put_labels(struct json_writer *w, const struct queue *q)
{
    json_key(w, "namespace");
    json_str(w, q->namespace_);
    json_key(w, "task");
    json_str(w, q->task);
}

void put_holdings(struct json_writer *w, const struct queue *q)
{
    json_key(w, "segments");
    json_begin_object(w);
    put_number(w, "segments", q->log == NULL ? 0 : qlog_segment_count(q->log));
    put_number(w, "messages", q->records);
    json_end_object(w);
    put_number(w, "retainedBytes", q->log_length - q->log_start);
    json_key(w, "options");
    queue_options_put(w, &q->options);
}

static int newest_first(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y); /* ids rise with creation */
}

enum err each_queue(struct api_read *r, queue_fn fn, void *ctx)
{
    struct node *node = r->api->options.node;
    uint64_t *ids;
    struct state *s = node_read_begin(node);
    size_t n = state_queue_ids(s, &TENANT_DEFAULT, &ids);
    node_read_end(node);
    qsort(ids, n, sizeof(*ids), newest_first);
    bool go_on = true, late = false;
    for (size_t at = 0; at < n && go_on && !late; late = read_is_late(r)) {
        s = node_read_begin(node);
        for (size_t stop = n - at > STEP ? at + STEP : n; at < stop && go_on; at++) {
            const struct queue *q = state_queue_by_id(s, ids[at]);
            if (q != NULL && !q->dead)
                go_on = fn(ctx, q);
        }
        node_read_end(node);
    }
    mem_free(ids);
    return late ? ERR_TIMEOUT : ERR_OK;
}
