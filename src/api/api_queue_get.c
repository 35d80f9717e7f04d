/* GET /api/v1/resources/queues/:queue, .../depth, .../sizes, and /api/v1/resources/partitions
 * (spec/broker-api.md 11).
 *
 * A queue may have a million partitions. Of those a list shows PARTITIONS_MAX, the oldest; they are
 * copied in steps, so that the read lock is never held for long, and written down without it. What
 * is said of the queue as a whole is a running figure and counts all of them. */
#include "api/resources.h"

#include "base/mem.h"
#include "base/pct.h"
#include "base/utf8.h"

#define PARTITIONS_MAX 10000u
#define STEP 4096u /* partitions per hold of the read lock */

struct row {
    struct span name; /* in the look's arena */
    struct uuid uuid;
    uint64_t records, log_bytes;
    int64_t created_at, last_write_at, oldest;
};

/* One request about one queue, and what it saw. */
struct look {
    struct api_read read; /* first: freed through it */
    struct buf name;
    struct buf group;
    bool has_group;
    struct json_writer w;
    struct arena arena;
    uint64_t queue_id, records;
    size_t partition_count;
    struct row *rows; /* owned */
    size_t n, wanted;
};

static void look_free(struct api_read *r)
{
    struct look *l = (struct look *)r;
    buf_deinit(&l->name);
    buf_deinit(&l->group);
    arena_deinit(&l->arena);
    mem_free(l->rows);
    mem_free(l);
}

/* --- looking ------------------------------------------------------------------------------------
 */

/* Read lock held. */
static void copy_row(struct look *l, const struct partition *p)
{
    l->rows[l->n++] = (struct row){
        .name = arena_copy(&l->arena, p->name),
        .uuid = p->uuid,
        .records = p->next_offset - p->log_start,
        .log_bytes = p->log_bytes,
        .created_at = p->created_at,
        .last_write_at = p->last_write_at,
        /* A partition is made by its first record. */
        .oldest = p->log_start == 0 && p->next_offset > 0 ? p->created_at : 0,
    };
}

/* The detail's members about the queue as a whole. Read lock held. */
static void put_head(struct json_writer *w, const struct queue *q)
{
    put_uuid(w, "id", &q->uuid);
    json_key(w, "name");
    json_str(w, q->name);
    put_labels(w, q);
    put_time(w, "createdAt", q->created_at);
    put_holdings(w, q);
    put_counts(w, "totals", q->records, FAILED_NULL);
}

typedef void (*head_fn)(struct json_writer *w, const struct queue *q);

static void first_hold(struct look *l, const struct queue *q, head_fn head)
{
    size_t n = q->partition_count > PARTITIONS_MAX ? PARTITIONS_MAX : q->partition_count;
    l->queue_id = q->id;
    l->records = q->records;
    l->partition_count = q->partition_count;
    l->wanted = n;
    l->rows = MEM_ARRAY(struct row, n + 1);
    if (head != NULL)
        head(&l->w, q);
}

static int by_name(const void *a, const void *b)
{
    return span_cmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

/* Copies the next rows; false: there is no such queue, or not any more. Read lock held. */
static bool one_hold(struct look *l, struct state *s, head_fn head)
{
    const struct queue *q = state_queue_find(s, &TENANT_DEFAULT, buf_span(&l->name));
    if (q == NULL || (l->rows != NULL && q->id != l->queue_id))
        return false;
    if (l->rows == NULL)
        first_hold(l, q, head);
    for (size_t stop = l->n + STEP; l->n < l->wanted && l->n < stop;)
        copy_row(l, q->partitions[l->n]);
    return true;
}

/* Fills the rows, by name. head: called in the first hold, may be NULL. */
static enum err look_up(struct look *l, head_fn head)
{
    struct node *node = l->read.api->options.node;
    do {
        bool found = one_hold(l, node_read_begin(node), head);
        node_read_end(node);
        if (!found)
            return ERR_NOT_FOUND;
        if (read_is_late(&l->read))
            return ERR_TIMEOUT;
    } while (l->n < l->wanted);
    qsort(l->rows, l->n, sizeof(l->rows[0]), by_name);
    return ERR_OK;
}

/* --- the three answers --------------------------------------------------------------------------
 */

/* Of each of the three answers. */
static enum err end(struct look *l)
{
    if (l->n != l->partition_count) {
        json_key(&l->w, "partitionsTruncated");
        json_bool(&l->w, true);
    }
    json_end_object(&l->w);
    return ERR_OK;
}

static void put_partition(struct json_writer *w, const struct row *row)
{
    json_begin_object(w);
    put_uuid(w, "id", &row->uuid);
    json_key(w, "name");
    json_str(w, row->name);
    put_time(w, "createdAt", row->created_at);
    put_counts(w, "messages", row->records, FAILED_NULL);
    put_counts(w, "stats", row->records, FAILED_NULL);
    json_key(w, "cursor");
    json_splice(w, SPAN_LIT("{\"totalConsumed\":0,\"batchesConsumed\":0}"));
    put_time(w, "lastActivity", row->last_write_at);
    put_time(w, "oldestMessage", row->oldest);
    put_time(w, "newestMessage", row->records > 0 ? row->last_write_at : 0);
    put_number(w, "retainedBytes", row->log_bytes);
    json_end_object(w);
}

static enum err build_detail(struct api_read *r, struct buf *body)
{
    struct look *l = (struct look *)r;
    json_writer_init(&l->w, body);
    json_begin_object(&l->w);
    TRY(look_up(l, put_head));
    json_key(&l->w, "partitions");
    json_begin_array(&l->w);
    for (size_t i = 0; i < l->n; i++)
        put_partition(&l->w, &l->rows[i]);
    json_end_array(&l->w);
    return end(l);
}

/* Begins the answer of a route behind the queue's name, once it was found. */
static enum err begin_named(struct look *l, struct buf *body)
{
    TRY(look_up(l, NULL));
    json_writer_init(&l->w, body);
    json_begin_object(&l->w);
    json_key(&l->w, "queue");
    json_str(&l->w, buf_span(&l->name));
    return ERR_OK;
}

/* Nothing is leased and nothing is held back from consumers that there are none of. */
static void put_depth(struct json_writer *w, uint64_t records)
{
    put_number(w, "pending", records);
    put_number(w, "processing", 0);
    put_number(w, "ready", records);
}

static enum err build_depth(struct api_read *r, struct buf *body)
{
    struct look *l = (struct look *)r;
    struct json_writer *w = &l->w;
    TRY(begin_named(l, body));
    json_key(w, "group");
    if (l->has_group)
        json_str(w, buf_span(&l->group));
    else
        json_null(w);
    put_depth(w, l->records);
    put_number(w, "partitionsPending", l->partition_count); /* each holds its first record */
    put_number(w, "partitionsReady", l->partition_count);
    json_key(w, "conflation");
    json_bool(w, false);
    put_number(w, "effectivePending", l->records);
    put_number(w, "effectiveReady", l->records);
    json_key(w, "partitions");
    json_begin_array(w);
    for (size_t i = 0; i < l->n; i++) {
        json_begin_object(w);
        json_key(w, "partition");
        json_str(w, l->rows[i].name);
        put_depth(w, l->rows[i].records);
        json_end_object(w);
    }
    json_end_array(w);
    return end(l);
}

static enum err build_sizes(struct api_read *r, struct buf *body)
{
    struct look *l = (struct look *)r;
    struct json_writer *w = &l->w;
    TRY(begin_named(l, body));
    json_key(w, "partitions");
    json_begin_object(w);
    for (size_t i = 0; i < l->n; i++) {
        json_key_span(w, l->rows[i].name);
        json_u64(w, l->rows[i].log_bytes);
    }
    json_end_object(w);
    return end(l);
}

/* Takes "/<part>" off the end of *rest, which keeps a name. */
static bool ends_in(struct span *rest, struct span part)
{
    size_t len = part.len + 1;
    if (rest->len <= len)
        return false;
    struct span end = span_sub(*rest, rest->len - len, rest->len);
    if (end.ptr[0] != '/' || !span_eq(span_sub(end, 1, len), part))
        return false;
    *rest = span_sub(*rest, 0, rest->len - len);
    return true;
}

void api_queue_get(struct api *a, struct http_request *http, struct span rest)
{
    struct look *l = mem_new(sizeof(*l));
    l->read = (struct api_read){.api = a, .http = http, .build = build_detail, .free = look_free};
    if (ends_in(&rest, SPAN_LIT("depth")))
        l->read.build = build_depth;
    else if (ends_in(&rest, SPAN_LIT("sizes")))
        l->read.build = build_sizes;
    buf_put_pct_decoded(&l->name, rest, false);
    l->has_group = query_text(http_request_query(http), "group", &l->group);
    if (!utf8_valid(buf_span(&l->group))) {
        answer_error(http, 400, "bad_request", "group is not UTF-8");
        look_free(&l->read);
        return;
    }
    read_start(&l->read);
}

/* --- partitions of all queues -------------------------------------------------------------------
 */

struct partitions {
    struct api_read read; /* first: freed through it */
    struct buf queue;
    bool one; /* of that queue only */
    size_t limit, walked;
    bool truncated;
    struct json_writer w;
};

static void partitions_free(struct api_read *r)
{
    struct partitions *p = (struct partitions *)r;
    buf_deinit(&p->queue);
    mem_free(p);
}

static void put_lane(struct json_writer *w, const struct partition *p)
{
    json_begin_object(w);
    json_key(w, "queue");
    json_str(w, p->queue->name);
    json_key(w, "partition");
    json_str(w, p->name);
    put_uuid(w, "id", &p->uuid);
    put_number(w, "pending", p->next_offset - p->log_start);
    put_number(w, "processing", 0);
    json_key(w, "lagSeconds");
    json_null(w); /* behind whom? */
    json_end_object(w);
}

/* At most PARTITIONS_LIMIT_MAX rows over all holds of the lock together. */
static bool put_lanes(void *ctx, const struct queue *q)
{
    struct partitions *p = ctx;
    size_t i = 0;
    for (; i < q->partition_count && p->walked < p->limit; i++, p->walked++)
        put_lane(&p->w, q->partitions[i]);
    p->truncated = i < q->partition_count;
    return !p->truncated;
}

static enum err put_wanted_lanes(struct partitions *p)
{
    struct node *node = p->read.api->options.node;
    if (!p->one)
        return each_queue(&p->read, put_lanes, p);
    struct state *s = node_read_begin(node);
    const struct queue *q = state_queue_find(s, &TENANT_DEFAULT, buf_span(&p->queue));
    if (q != NULL)
        (void)put_lanes(p, q); /* there is no other to go on to */
    node_read_end(node);
    return ERR_OK;
}

static enum err build_partitions(struct api_read *r, struct buf *body)
{
    struct partitions *p = (struct partitions *)r;
    json_writer_init(&p->w, body);
    json_begin_object(&p->w);
    json_key(&p->w, "partitions");
    json_begin_array(&p->w);
    TRY(put_wanted_lanes(p));
    json_end_array(&p->w);
    put_number(&p->w, "walked", p->walked);
    json_key(&p->w, "truncated");
    json_bool(&p->w, p->truncated);
    json_end_object(&p->w);
    return ERR_OK;
}

void api_partitions(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct refusal refusal;
    int64_t limit = PARTITIONS_LIMIT_DEFAULT;
    if (query_integer(http_request_query(http), "limit", 1, PARTITIONS_LIMIT_MAX, &limit,
                      &refusal) != ERR_OK) {
        answer_query_refusal(http, &refusal);
        return;
    }
    struct partitions *p = mem_new(sizeof(*p));
    p->read = (struct api_read){
        .api = a, .http = http, .build = build_partitions, .free = partitions_free};
    p->limit = (size_t)limit;
    p->one = query_text(http_request_query(http), "queue", &p->queue) && p->queue.len > 0;
    read_start(&p->read);
}
