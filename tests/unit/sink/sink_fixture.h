/* A node, up to three sinks on it and a model bucket, in manual mode: nothing happens but by pumping,
 * on a virtual clock. */
#ifndef TESTS_SINK_SINK_FIXTURE_H
#define TESTS_SINK_SINK_FIXTURE_H

#include "base/mem.h"
#include "broker/push.h"
#include "node/node.h"
#include "s3/bucket.h"
#include "sink/sink.h"

#include "lib/test.h"
#include "sim/sim_clock.h"
#include "sim/sim_db.h"
#include "sim/sim_disk.h"

#include <stdlib.h>
#include <unistd.h>

#define SEC INT64_C(1000000)

/* --- a model bucket: answers when pumped --- */

struct model {
    struct bucket base;
    struct omap *objects; /* shared between lives, not owned */
    struct bucket_request *first, **last;
    unsigned code; /* of every answer; 200 = does its work */
    const char *error;
    unsigned head_code; /* of HEADs, which have no body; 0 = as the others */
    const struct bucket_clue *clue;
    bool cancelled;
    unsigned attempts;                        /* failed ones before each answer */
    unsigned large_in_memory, large_in_files; /* bodies to put */
};

static inline void model_submit(struct bucket *base, struct bucket_request *r)
{
    struct model *m = (struct model *)base;
    r->next = NULL;
    *m->last = r;
    m->last = &r->next;
    if (r->op == BUCKET_PUT && r->body.size > 100000)
        *(r->body.fd >= 0 ? &m->large_in_files : &m->large_in_memory) += 1;
}

static inline void model_cancel(struct bucket *base)
{
    ((struct model *)base)->cancelled = true;
}

static inline void model_close(struct bucket *base)
{
    mem_free(base);
}

static const struct bucket_ops MODEL_OPS = {model_submit, model_cancel, model_close};

static inline struct model *model_new(struct omap *objects)
{
    struct model *m = mem_new(sizeof(*m));
    *m = (struct model){.base = {&MODEL_OPS}, .objects = objects, .code = 200, .error = ""};
    m->last = &m->first;
    return m;
}

static inline void model_put(struct model *m, const struct bucket_request *r)
{
    struct buf bytes = BUF_INIT;
    if (r->body.fd >= 0)
        CHECK_EQ(pread(r->body.fd, buf_extend(&bytes, r->body.size), r->body.size, 0),
                 (ssize_t)r->body.size);
    else
        buf_put_span(&bytes, r->body.bytes);
    omap_put(m->objects, r->key, buf_span(&bytes));
    buf_deinit(&bytes);
}

/* A page of keys; they point into `out`, which is large enough for any page. */
static inline void model_list(struct model *m, struct bucket_request *r)
{
    struct omap_row row;
    struct span from = r->start_after.len > 0 ? r->start_after : r->key;
    bool strict = r->start_after.len > 0;
    r->keys = MEM_ARRAY(struct span, 1000);
    buf_reserve(&r->out, 1000 * 1024);
    while (omap_seek(m->objects, from, strict, &row) && span_starts_with(row.key, r->key)) {
        r->truncated = r->n_keys == 1000;
        if (r->truncated)
            break;
        size_t at = r->out.len;
        buf_put_span(&r->out, row.key);
        from = span_make(r->out.ptr + at, row.key.len);
        r->keys[r->n_keys++] = from;
        strict = true;
    }
}

static inline void model_work(struct model *m, struct bucket_request *r)
{
    struct omap_row row;
    r->outcome = BUCKET_OK;
    r->code = 200;
    if (r->op == BUCKET_PUT)
        model_put(m, r);
    if (r->op == BUCKET_LIST)
        model_list(m, r);
    if (r->op == BUCKET_GET && omap_get(m->objects, r->key, &row))
        buf_put_span(&r->out, row.value);
    else if (r->op == BUCKET_GET)
        r->outcome = BUCKET_ABSENT;
}

static inline bool model_pump(struct model *m)
{
    struct bucket_request *r = m->first;
    if (r == NULL)
        return false;
    if (m->code == 1) /* hangs */
        return false;
    m->first = r->next;
    if (m->first == NULL)
        m->last = &m->first;
    r->retry_after_us = -1;
    if (m->cancelled) {
        r->outcome = BUCKET_CANCELLED;
        r->done(r);
        return true;
    }
    r->clue = m->clue != NULL ? *m->clue : (struct bucket_clue){.silence = BUCKET_ANSWERED};
    if (r->op == BUCKET_HEAD && m->head_code != 0) {
        r->code = m->head_code;
        r->outcome = r->code == 200 ? BUCKET_OK : r->code == 404 ? BUCKET_ABSENT : BUCKET_TERMINAL;
        r->clue = (struct bucket_clue){.silence = BUCKET_ANSWERED};
        if (r->outcome == BUCKET_TERMINAL)
            (void)snprintf(r->error, sizeof(r->error), "status %u: ", r->code);
    } else if (m->code == 200) {
        model_work(m, r);
    } else {
        r->outcome = m->code == 0 || m->code >= 500 ? BUCKET_RETRIABLE : BUCKET_TERMINAL;
        r->code = m->code;
        (void)snprintf(r->error, sizeof(r->error), "%s", m->error);
    }
    r->attempt(r, r->code, span_str(r->error));
    r->done(r);
    return true;
}

/* --- a world in manual mode --- */

#define SINKS_MAX 3

struct world {
    struct prng prng;
    struct sim_clock clock;
    struct sim_entropy entropy;
    struct sim_executor executor;
    struct disk *disk;
    struct sim_db_state *rows;
    struct node *node;
    struct omap *objects;
    struct sink_boot_settings settings[SINKS_MAX];
    struct model *models[SINKS_MAX];
    struct sink *sinks[SINKS_MAX];
    enum sink_crash_point crashed;
    unsigned pushes;
};

static inline enum err open_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    *out = sim_db_new(((struct world *)ctx)->rows);
    return ERR_OK;
}

static inline void open_node(struct world *w)
{
    struct node_options o;
    struct error error = {0};
    node_options_default(&o);
    o.disk = w->disk;
    o.open_db = open_db;
    o.db_ctx = w;
    o.clock = &w->clock.base;
    o.entropy = &w->entropy.base;
    o.manual = true;
    o.wal_segment_bytes = 256u << 10;
    o.segment_bytes = 64u << 10;
    o.disk_high_pct = 100;
    o.disk_low_pct = 100;
    CHECK_EQ(node_open(&o, &w->node, &error), ERR_OK);
}

static inline void world_init(struct world *w, uint64_t seed)
{
    *w = (struct world){.objects = omap_new()};
    prng_init(&w->prng, seed);
    sim_clock_init(&w->clock, INT64_C(1791007200000000));
    sim_entropy_init(&w->entropy, &w->prng);
    sim_executor_init(&w->executor, &w->prng);
    w->disk = sim_disk_new(seed);
    w->rows = sim_db_state_new();
    open_node(w);
}

static const char *get_pair(void *ctx, const char *name)
{
    const char *const *pairs = ctx;
    for (size_t i = 0; pairs[i] != NULL; i += 2) {
        if (strcmp(pairs[i], name) == 0)
            return pairs[i + 1];
    }
    return NULL;
}

static inline void on_crash(void *ctx, enum sink_crash_point point)
{
    ((struct world *)ctx)->crashed = point;
}

/* more: further pairs, may be NULL. */
static inline void start_sink(struct world *w, unsigned i, const char *const *more)
{
    const char *pairs[64] = {
        "QUEEN_S3_EMBEDDED",      "true",     "QUEEN_S3_ENDPOINT",         "file:///bucket",
        "QUEEN_S3_BUCKET",        "lake",     "QUEEN_S3_QUEUES",           "*",
        "QUEEN_S3_START",         "earliest", "QUEEN_S3_MAX_WINDOW_MS",    "5000",
        "QUEEN_S3_SAFE_GUARD_MS", "1000",     "QUEEN_S3_LEASE_TTL_MS",     "6000",
        "QUEEN_S3_COMPRESSION",   "none",     "QUEEN_S3_CHECKPOINT_EVERY", "2"};
    static const char *const names[] = {"one", "two", "three"};
    size_t n = 20;
    struct error error = {0};
    pairs[n++] = "QUEEN_S3_INSTANCE";
    pairs[n++] = names[i];
    const char *merged[64];
    size_t m = 0;
    for (size_t k = 0; more != NULL && more[k] != NULL; k++)
        merged[m++] = more[k]; /* the first one of a name counts */
    for (size_t k = 0; k < n; k++)
        merged[m++] = pairs[k];
    merged[m] = NULL;
    CHECK_EQ(sink_settings_read(get_pair, merged, 1, "host", 2, &w->settings[i], &error), ERR_OK);
    w->models[i] = model_new(w->objects);
    struct sink_options o = {.node = w->node,
                             .clock = &w->clock.base,
                             .entropy = &w->entropy.base,
                             .executor = &w->executor.base,
                             .bucket = &w->models[i]->base,
                             .settings = &w->settings[i],
                             .spool_dir = "/tmp",
                             .manual = true,
                             .crash = on_crash,
                             .crash_ctx = w};
    CHECK_EQ(sink_start(&o, &w->sinks[i], &error), ERR_OK);
}

static inline bool world_step(struct world *w, int64_t *next)
{
    bool did = node_pump_log(w->node);
    did = node_pump_apply(w->node) || did;
    did = sim_executor_pump(&w->executor) || did;
    *next = INT64_MAX;
    for (unsigned i = 0; i < SINKS_MAX; i++) {
        int64_t wake;
        if (w->sinks[i] == NULL)
            continue;
        did = sink_pump(w->sinks[i], &wake) || did;
        did = model_pump(w->models[i]) || did;
        if (wake < *next)
            *next = wake;
    }
    return did;
}

static inline void settle(struct world *w)
{
    int64_t next;
    for (unsigned n = 0; world_step(w, &next); n++)
        CHECK(n < 1000000);
}

static inline void pass(struct world *w, int64_t us)
{
    int64_t until = w->clock.mono + us, next;
    settle(w);
    while (w->clock.mono < until) {
        while (world_step(w, &next)) {
        }
        int64_t to = w->clock.mono + 50000; /* clock entries are made while time passes */
        if (next < to)
            to = next <= w->clock.mono ? w->clock.mono + 1 : next;
        if (to > until)
            to = until;
        sim_clock_advance(&w->clock, to - w->clock.mono);
    }
    settle(w);
}

static inline void stop_sink(struct world *w, unsigned i)
{
    sink_free(w->sinks[i]);
    sink_boot_settings_deinit(&w->settings[i]);
    w->sinks[i] = NULL;
    w->models[i] = NULL;
}

/* Ends the node and the sink on it, and opens the node again: a hook stays until its node ends. */
static inline void reboot(struct world *w)
{
    while (sim_executor_pump(&w->executor)) {
    }
    node_end(w->node);
    stop_sink(w, 0);
    node_close(w->node);
    open_node(w);
}

static inline void world_deinit(struct world *w)
{
    while (sim_executor_pump(&w->executor)) {
    }
    node_end(w->node);
    for (unsigned i = 0; i < SINKS_MAX; i++)
        stop_sink(w, i);
    node_close(w->node);
    sim_executor_deinit(&w->executor);
    sim_db_state_free(w->rows);
    sim_disk_free(w->disk);
    omap_free(w->objects);
}

static inline void push_done(struct node_request *r)
{
    CHECK_EQ(r->err, ERR_OK);
    *(bool *)r->ctx = true;
}

static inline void push_size(struct world *w, const char *queue, const char *partition, size_t size)
{
    bool done = false;
    struct buf payload = BUF_INIT;
    char id[32];
    (void)snprintf(id, sizeof(id), "t%u", ++w->pushes);
    buf_putc(&payload, '"');
    for (size_t i = 0; i < size; i++)
        buf_putc(&payload, (uint8_t)('a' + i % 26));
    buf_putc(&payload, '"');
    struct push_item item = {.queue = span_str(queue),
                             .partition = span_str(partition),
                             .transaction_id = span_str(id),
                             .payload = buf_span(&payload)};
    memcpy(item.message_id.bytes, id, strlen(id));
    struct node_request r = {.type = COMMAND_PUSH, .done = push_done, .ctx = &done};
    push_encode(&r.body, &TENANT_DEFAULT, &item, 1);
    node_submit(w->node, &r);
    settle(w);
    CHECK(done);
    node_request_deinit(&r);
    buf_deinit(&payload);
}

static inline void push(struct world *w, const char *queue)
{
    push_size(w, queue, "p", 5);
}

static inline char *status_of(struct world *w, unsigned i)
{
    struct buf b = BUF_INIT;
    sink_status_put(w->sinks[i], &b);
    buf_putc(&b, '\0');
    return (char *)b.ptr;
}

static inline char *metrics_of(struct world *w, unsigned i)
{
    struct buf b = BUF_INIT;
    sink_metrics_put(w->sinks[i], &b);
    buf_putc(&b, '\0');
    return (char *)b.ptr;
}

static inline bool holds(char *text, const char *part)
{
    bool is = strstr(text, part) != NULL;
    if (!is)
        print_error("no \"%s\" in %s\n", part, text);
    free(text);
    return is;
}

#define STATUS(w, i, part) CHECK(holds(status_of(w, i), part))
#define METRICS(w, i, part) CHECK(holds(metrics_of(w, i), part))

static inline size_t objects_under(struct world *w, const char *prefix, const char *part)
{
    struct omap_row row;
    struct buf from = BUF_INIT;
    size_t n = 0;
    buf_puts(&from, prefix);
    while (omap_seek(w->objects, buf_span(&from), true, &row) &&
           span_starts_with(row.key, span_str(prefix))) {
        n += memmem(row.key.ptr, row.key.len, part, strlen(part)) != NULL;
        buf_reset(&from);
        buf_put_span(&from, row.key);
    }
    buf_deinit(&from);
    return n;
}

/* How often `part` stands in the status. */
static inline unsigned count(struct world *w, unsigned i, const char *part)
{
    char *text = status_of(w, i);
    unsigned n = 0;
    for (char *at = text; (at = strstr(at, part)) != NULL; at++)
        n++;
    free(text);
    return n;
}

#endif
