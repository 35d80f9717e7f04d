/* GET /api/v1/resources/queues, /overview, /namespaces, /tasks, and POST /api/v1/stats/refresh
 * (spec/broker-api.md 11, 6): what costs a look at every queue, but at no partition. */
#include "api/resources.h"

#include "base/map.h"
#include "base/mem.h"
#include "base/timefmt.h"

#define LIST_BYTES_MAX ((size_t)64 << 20) /* of one answer, which is built in memory */

static void free_read(struct api_read *r)
{
    mem_free(r);
}

static void start(struct api *a, struct http_request *http,
                  enum err (*build)(struct api_read *r, struct buf *body))
{
    struct api_read *r = mem_new(sizeof(*r));
    *r = (struct api_read){.api = a, .http = http, .build = build, .free = free_read};
    read_start(r);
}

/* --- the list -----------------------------------------------------------------------------------
 */

struct list {
    struct api_read read; /* first: freed through it */
    bool lanes;
    struct json_writer w;
    bool truncated;
};

static bool put_queue(void *ctx, const struct queue *q)
{
    struct list *l = ctx;
    struct json_writer *w = &l->w;
    l->truncated = w->out->len > LIST_BYTES_MAX;
    if (l->truncated)
        return false;
    json_begin_object(w);
    put_uuid(w, "id", &q->uuid);
    json_key(w, "name");
    json_str(w, q->name);
    json_key(w, "queue");
    json_str(w, q->name);
    put_number(w, "partitions", q->partition_count);
    if (!l->lanes) {
        put_labels(w, q);
        json_key(w, "storage");
        json_cstr(w, "segments");
        put_counts(w, "messages", q->records, FAILED_ABSENT);
        put_holdings(w, q);
    }
    put_time(w, "createdAt", q->created_at);
    json_end_object(w);
    return true;
}

static enum err put_stores(struct api_read *r, struct json_writer *w)
{
    struct node *node = r->api->options.node;
    struct kv_size size;
    struct state *s = node_read_begin(node);
    enum err err = kv_size(s, &TENANT_DEFAULT, SPAN_LIT(""), &size, NULL);
    node_read_end(node);
    TRY(err);
    put_number(w, "kvRows", size.rows);
    put_number(w, "kvBytes", size.bytes);
    put_number(w, "timerRows", 0); /* there are no timers */
    put_number(w, "timerBytes", 0);
    return ERR_OK;
}

static enum err build_list(struct api_read *r, struct buf *body)
{
    struct list *l = (struct list *)r;
    json_writer_init(&l->w, body);
    json_begin_object(&l->w);
    json_key(&l->w, "queues");
    json_begin_array(&l->w);
    TRY(each_queue(r, put_queue, l));
    json_end_array(&l->w);
    if (l->truncated) {
        json_key(&l->w, "queuesTruncated");
        json_bool(&l->w, true);
    }
    if (l->lanes) {
        json_key(&l->w, "stats");
        json_cstr(&l->w, "lanes");
    }
    TRY(put_stores(r, &l->w));
    json_end_object(&l->w);
    return ERR_OK;
}

void api_queue_list(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct list *l = mem_new(sizeof(*l));
    struct buf stats = BUF_INIT;
    l->read = (struct api_read){.api = a, .http = http, .build = build_list, .free = free_read};
    l->lanes = query_text(http_request_query(http), "stats", &stats) &&
               span_eq(buf_span(&stats), SPAN_LIT("lanes"));
    buf_deinit(&stats);
    read_start(&l->read);
}

/* --- sums by label ------------------------------------------------------------------------------
 */

struct label_sum {
    struct span label; /* owned */
    uint64_t queues, partitions, records;
};

struct labels {
    struct map sums; /* label -> struct label_sum */
};

static void labels_add(struct labels *l, struct span label, const struct queue *q)
{
    if (label.len == 0)
        return;
    struct label_sum *sum = map_get(&l->sums, label);
    if (sum == NULL) {
        sum = mem_new(sizeof(*sum));
        sum->label = span_make(mem_copy(label.ptr, label.len), label.len);
        (void)map_put(&l->sums, label, sum); /* nothing is replaced */
    }
    sum->queues++;
    sum->partitions += q->partition_count;
    sum->records += q->records;
}

static void labels_deinit(struct labels *l)
{
    size_t at = 0;
    struct span key;
    void *value;
    while (map_next(&l->sums, &at, &key, &value)) {
        mem_free((void *)(uintptr_t)((struct label_sum *)value)->label.ptr);
        mem_free(value);
    }
    map_deinit(&l->sums);
}

static int label_order(const void *a, const void *b)
{
    const struct label_sum *x = *(const struct label_sum *const *)a;
    const struct label_sum *y = *(const struct label_sum *const *)b;
    return span_cmp(x->label, y->label);
}

/* By label; mem_free(). */
static struct label_sum **labels_sorted(const struct labels *l)
{
    struct label_sum **list = MEM_ARRAY(struct label_sum *, l->sums.count + 1);
    size_t at = 0, n = 0;
    struct span key;
    void *value;
    while (map_next(&l->sums, &at, &key, &value))
        list[n++] = value;
    qsort(list, n, sizeof(struct label_sum *), label_order);
    return list;
}

static void put_label(struct json_writer *w, const char *what, const struct label_sum *sum)
{
    json_begin_object(w);
    json_key(w, what);
    json_str(w, sum->label);
    put_number(w, "queues", sum->queues);
    put_number(w, "partitions", sum->partitions);
    json_key(w, "messages");
    json_begin_object(w);
    put_number(w, "total", sum->records);
    put_number(w, "pending", sum->records);
    json_end_object(w);
    json_end_object(w);
}

static enum err build_labels(struct api_read *r, struct buf *body, queue_fn add, const char *plural,
                             const char *singular)
{
    struct labels l = {MAP_INIT};
    enum err err = each_queue(r, add, &l);
    if (err == ERR_OK) {
        struct label_sum **sorted = labels_sorted(&l);
        struct json_writer w;
        json_writer_init(&w, body);
        json_begin_object(&w);
        json_key(&w, plural);
        json_begin_array(&w);
        for (size_t i = 0; i < l.sums.count; i++)
            put_label(&w, singular, sorted[i]);
        json_end_array(&w);
        json_end_object(&w);
        mem_free(sorted);
    }
    labels_deinit(&l);
    return err;
}

static bool add_namespace(void *ctx, const struct queue *q)
{
    labels_add(ctx, q->namespace_, q);
    return true;
}

static bool add_task(void *ctx, const struct queue *q)
{
    labels_add(ctx, q->task, q);
    return true;
}

static enum err build_namespaces(struct api_read *r, struct buf *body)
{
    return build_labels(r, body, add_namespace, "namespaces", "namespace");
}

static enum err build_tasks(struct api_read *r, struct buf *body)
{
    return build_labels(r, body, add_task, "tasks", "task");
}

void api_namespaces(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    start(a, http, build_namespaces);
}

void api_tasks(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    start(a, http, build_tasks);
}

/* --- the overview -------------------------------------------------------------------------------
 */

struct sums {
    struct labels namespaces, tasks;
    uint64_t queues, partitions, records;
};

static bool add_queue(void *ctx, const struct queue *q)
{
    struct sums *s = ctx;
    s->queues++;
    s->partitions += q->partition_count;
    s->records += q->records;
    labels_add(&s->namespaces, q->namespace_, q);
    labels_add(&s->tasks, q->task, q);
    return true;
}

/* Behind whom? There are no consumers. */
static void put_no_lag(struct json_writer *w, const char *key)
{
    static const char *const kinds[] = {"avg", "median", "min", "max"};
    json_key(w, key);
    json_begin_object(w);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        json_key(w, kinds[i]);
        json_null(w);
    }
    json_end_object(w);
}

static void put_overview(struct json_writer *w, const struct sums *s, int64_t now)
{
    struct buf timestamp = BUF_INIT;
    json_begin_object(w);
    put_number(w, "queues", s->queues);
    put_number(w, "partitions", s->partitions);
    put_number(w, "namespaces", s->namespaces.sums.count);
    put_number(w, "tasks", s->tasks.sums.count);
    put_counts(w, "messages", s->records, FAILED_ZERO);
    json_key(w, "lag");
    json_begin_object(w);
    put_no_lag(w, "time");
    put_no_lag(w, "offset");
    json_end_object(w);
    buf_put_iso_ms(&timestamp, now);
    json_key(w, "timestamp");
    json_str(w, buf_span(&timestamp));
    put_number(w, "statsAge", 0); /* nothing of it was counted earlier */
    json_end_object(w);
    buf_deinit(&timestamp);
}

static enum err build_overview(struct api_read *r, struct buf *body)
{
    struct sums s = {.namespaces = {MAP_INIT}, .tasks = {MAP_INIT}};
    enum err err = each_queue(r, add_queue, &s);
    if (err == ERR_OK) {
        struct json_writer w;
        json_writer_init(&w, body);
        put_overview(&w, &s, clock_wall_us(r->api->options.clock));
    }
    labels_deinit(&s.namespaces);
    labels_deinit(&s.tasks);
    return err;
}

void api_overview(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    start(a, http, build_overview);
}

/* Figures are never stale: there is nothing to refresh. */
void api_stats_refresh(struct api *a, struct http_request *http, struct span rest)
{
    (void)a;
    (void)rest;
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"success\":true,\"refreshed\":false,\"engine\":\"raft\"}");
    answer_json(http, 200, &body);
}
