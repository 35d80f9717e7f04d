/* A small world for tests of the pure queue task: the real KV store over a state in memory, a model
 * of the queue's log (one record per push, its stamp is its content), a model bucket whose objects
 * must never change, and up to two tasks of different nodes. Every action is written to a trace; a
 * fault can be put before or into any of them. */
#ifndef TESTS_SINK_TASK_FIXTURE_H
#define TESTS_SINK_TASK_FIXTURE_H

#include "base/mem.h"
#include "base/omap.h"
#include "json/json.h"
#include "lib/test.h"
#include "sim/sim_db.h"
#include "sink/documents.h"
#include "sink/task.h"
#include "sink/window.h"

#include <inttypes.h>

#define QUEUE SPAN_LIT("orders")
#define TENANT_TEXT "00000000-0000-0000-0000-000000000001"
#define WRITER SPAN_LIT("queen-s3/2.0.0 jsonl+none")
#define SEC INT64_C(1000000)
#define EPOCH INT64_C(1791007200000000) /* 2026-10-03T06:00:00Z */
#define RECORDS_MAX 256
#define PENDING_MAX 64
#define WEIGHT_DEFAULT 100

enum fault {
    FAULT_NONE,
    FAULT_RETRIABLE,    /* the operation fails, nothing done */
    FAULT_UNKNOWN_DONE, /* done, but no answer came */
    FAULT_UNKNOWN_NOT,  /* not done, but nobody knows */
    FAULT_TERMINAL,
    FAULT_STEAL,  /* another instance takes the lease before it */
    FAULT_DELETE, /* the queue is deleted before it */
    FAULT_STOP,   /* SIGTERM before it */
    FAULT_GIVE_BACK,
    FAULT_CUT,
    FAULT_CRASH,      /* the process dies before it; a new one starts */
    FAULT_CRASH_DONE, /* ... after it, before the answer */
};

struct fix_record {
    int64_t stamp;
    uint64_t queue_id;
    uint64_t weight;
};

struct fix_pending {
    struct sink_event event;
    struct kv_result *result; /* owned */
    struct buf text;          /* owned: body, error */
    struct span *keys;        /* owned */
};

struct fix_task {
    struct sink_task *task;
    struct sink_node_settings node;
    struct fix_pending pending[PENDING_MAX];
    size_t head, tail;
    bool crashed;
    int64_t built_start, built_end;
    struct sink_action checkpoint; /* the last one asked for */
    struct qlog_near sought;       /* of the last seek */
    struct buf built;              /* bytes of the built object */
};

struct fix {
    struct db *db;
    struct sim_db_state *db_state;
    struct state *state;
    uint64_t index;
    int64_t mono, wall, safe_time;
    struct sink_settings settings;
    struct fix_task tasks[2];
    struct fix_record records[RECORDS_MAX];
    size_t n_records;
    struct omap *bucket;
    struct buf trace;
    struct placement_view placement;
    /* Fault: at the n-th operation of task 0 (from 0). */
    enum fault fault;
    unsigned fault_at, operations;
    bool fault_fired;
    bool bucket_down;
    bool no_log;     /* builds find no log */
    size_t scan_max; /* runs per scan; 0 unlimited */
    uint64_t seed;
    size_t first_seen; /* of the last judgement: the oldest record in the lake */
};

/* --- the broker --- */

static int64_t fix_tick(struct fix *f)
{
    int64_t now = f->safe_time + 1 > f->wall ? f->safe_time + 1 : f->wall;
    f->index++;
    state_meta(f->state)->applied = f->index;
    state_meta(f->state)->last_clock = now;
    f->safe_time = now;
    return now;
}

static void fix_create(struct fix *f)
{
    struct queue_options options = {0};
    struct uuid uuid = {.bytes = {(uint8_t)f->index}};
    int64_t now = fix_tick(f);
    state_queue_create(f->state, &TENANT_DEFAULT, QUEUE, &uuid, now, &options);
}

static void fix_delete(struct fix *f)
{
    struct queue *q = state_queue_find(f->state, &TENANT_DEFAULT, QUEUE);
    (void)fix_tick(f);
    if (q != NULL)
        state_queue_delete(f->state, q);
}

static int64_t fix_push_weight(struct fix *f, uint64_t weight)
{
    struct queue *q = state_queue_find(f->state, &TENANT_DEFAULT, QUEUE);
    if (q == NULL) {
        fix_create(f);
        q = state_queue_find(f->state, &TENANT_DEFAULT, QUEUE);
    }
    int64_t stamp = fix_tick(f);
    ASSERT(f->n_records < RECORDS_MAX);
    f->records[f->n_records++] =
        (struct fix_record){.stamp = stamp, .queue_id = q->id, .weight = weight};
    return stamp;
}

static int64_t fix_push(struct fix *f)
{
    return fix_push_weight(f, WEIGHT_DEFAULT);
}

/* Positions of the model log: index of the record + 1 among all records (others of the queue are
 * skipped). */
static uint64_t fix_log_end(const struct fix *f)
{
    return f->n_records;
}

/* --- tasks --- */

static void fix_start(struct fix *f, unsigned i)
{
    struct fix_task *t = &f->tasks[i];
    sink_task_free(t->task);
    t->crashed = false;
    t->task = sink_task_new(&(struct sink_task_options){.queue = QUEUE,
                                                        .tenant = span_str(TENANT_TEXT),
                                                        .settings = &f->settings,
                                                        .node = &t->node,
                                                        .writer = WRITER,
                                                        .seed = ++f->seed});
    for (size_t p = 0; p < PENDING_MAX; p++) {
        struct fix_pending *pending = &t->pending[p];
        kv_result_deinit(pending->result != NULL ? pending->result : &(struct kv_result){0});
        mem_free(pending->result);
        buf_deinit(&pending->text);
        mem_free(pending->keys);
        *pending = (struct fix_pending){0};
    }
    t->head = t->tail = 0;
    t->pending[t->tail++ % PENDING_MAX].event = (struct sink_event){.type = SINK_EVENT_START};
}

static void fix_init(struct fix *f)
{
    struct uuid cluster = {0};
    struct error error;
    *f = (struct fix){.mono = 1000 * SEC, .wall = EPOCH, .bucket = omap_new()};
    f->placement.share = 1;
    f->db_state = sim_db_state_new();
    f->db = sim_db_new(f->db_state);
    CHECK_EQ(state_open(f->db, &cluster, &f->state, &error), ERR_OK);
    f->settings = (struct sink_settings){
        .endpoint = (char *)(uintptr_t) "file:///tmp/bucket",
        .bucket = (char *)(uintptr_t) "lake",
        .prefix = (char *)(uintptr_t) "queen",
        .sink = (char *)(uintptr_t) "default",
        .is_file = true,
        .compression = SINK_NONE,
        .start = SINK_EARLIEST,
        .target_mb = 1,
        .max_window_ms = 10000,
        .key_segment_max = 255,
        .quote_unreadable = true,
    };
    for (unsigned i = 0; i < 2; i++)
        f->tasks[i].node = (struct sink_node_settings){
            .discovery_interval_ms = 2000,
            .safe_guard_ms = 5000,
            .lease_ttl_ms = 30000,
            .checkpoint_every = 1000,
            .shutdown_grace_ms = 30000,
            .memory_mb = 512,
            .instance = (char *)(uintptr_t)(i == 0 ? "node-1@a" : "node-2@b"),
        };
    (void)fix_tick(f);
}

static void fix_deinit(struct fix *f)
{
    for (unsigned i = 0; i < 2; i++) {
        struct fix_task *t = &f->tasks[i];
        if (t->task != NULL)
            fix_start(f, i); /* frees what is pending */
        sink_task_free(t->task);
        buf_deinit(&t->built);
    }
    state_close(f->state);
    sim_db_state_free(f->db_state);
    omap_free(f->bucket);
    buf_deinit(&f->trace);
}

static const struct sink_row *fix_row(struct fix *f)
{
    return sink_task_row(f->tasks[0].task);
}

static const char *fix_state(struct fix *f)
{
    return sink_row_state_name(fix_row(f)->state);
}

/* --- carrying actions out --- */

static struct fix_pending *fix_answer(struct fix_task *t, enum sink_event_type type, uint64_t op)
{
    ASSERT(t->tail - t->head < PENDING_MAX);
    struct fix_pending *p = &t->pending[t->tail++ % PENDING_MAX];
    ASSERT(p->result == NULL && p->keys == NULL);
    buf_reset(&p->text);
    p->event = (struct sink_event){.type = type, .op = op, .retry_after_us = -1};
    return p;
}

static const char *fix_purpose(enum sink_kv_purpose purpose)
{
    static const char *const names[] = {
        "none",         "look",   "claim",  "take",   "refresh",         "restore",
        "start",        "intent", "commit", "verify", "suspect refresh", "suspect read",
        "release look", "release"};
    return names[purpose];
}

static void fix_kv_apply(struct fix *f, const struct kv_op *ops, size_t n, struct kv_result *out)
{
    struct buf body = BUF_INIT;
    struct error error;
    struct apply_context at = {.now = fix_tick(f), .index = f->index};
    kv_encode(&body, &TENANT_DEFAULT, ops, n);
    CHECK_EQ(kv_apply(f->state, &at, buf_span(&body), out, &error), ERR_OK);
    buf_deinit(&body);
}

static void fix_steal(struct fix *f)
{
    static const char value[] =
        "{\"incarnation\":\"feedfeedfeedfeed\",\"instance\":\"node-9@z\",\"sinceMs\":1}";
    struct buf key = BUF_INIT;
    struct kv_result result;
    sink_key_lease(&key, SPAN_LIT("default"), QUEUE);
    fix_kv_apply(f,
                 &(struct kv_op){.type = KV_PUT,
                                 .ns = SINK_NAMESPACE,
                                 .key = buf_span(&key),
                                 .value = span_str(value),
                                 .ttl_seconds = 30},
                 1, &result);
    kv_result_deinit(&result);
    buf_deinit(&key);
}

static void fix_do_kv(struct fix *f, struct fix_task *t, const struct sink_action *a,
                      enum fault fault)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_KV, a->op);
    buf_puts(&p->text, "kv trouble");
    if (fault == FAULT_RETRIABLE) {
        p->event.kv.outcome = SINK_KV_RETRIABLE;
        return;
    }
    if (fault == FAULT_TERMINAL) {
        p->event.kv.outcome = SINK_KV_TERMINAL;
        return;
    }
    if (fault == FAULT_UNKNOWN_NOT) {
        p->event.kv.outcome = SINK_KV_UNKNOWN;
        return;
    }
    p->result = mem_new(sizeof(*p->result));
    fix_kv_apply(f, a->kv.ops, a->kv.n, p->result);
    p->event.kv.outcome = p->result->aborted ? SINK_KV_LOST : SINK_KV_OK;
    p->event.kv.result = p->result;
    if (fault == FAULT_UNKNOWN_DONE)
        p->event.kv.outcome = SINK_KV_UNKNOWN;
}

static void fix_do_look_up(struct fix *f, struct fix_task *t, uint64_t op)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_QUEUE, op);
    const struct queue *q = state_queue_find(f->state, &TENANT_DEFAULT, QUEUE);
    p->event.queue.found = q != NULL;
    p->event.queue.id = q != NULL ? q->id : 0;
    p->event.queue.partitions = 1;
    p->event.queue.log_end = fix_log_end(f);
}

static void fix_do_scan(struct fix *f, struct fix_task *t, const struct sink_action *a,
                        enum fault fault)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_SCANNED, a->op);
    struct sink_scanned *out = &p->event.scanned.out;
    size_t at = a->scan.seek ? 0 : a->scan.position, taken = 0;
    if (fault == FAULT_RETRIABLE || fault == FAULT_TERMINAL) {
        buf_puts(&p->text, "disk trouble");
        p->event.scanned.err = ERR_IO;
        return;
    }
    if (a->scan.seek) {
        t->sought = a->scan.near;
        while (at < f->n_records && (f->records[at].queue_id != a->scan.queue_id ||
                                     f->records[at].stamp < a->scan.seek_stamp))
            at++;
    }
    out->from = at;
    out->at_limit = true;
    for (; at < f->n_records; at++) {
        const struct fix_record *r = &f->records[at];
        if (r->queue_id != a->scan.queue_id)
            continue;
        out->next_known = true;
        out->next_stamp = r->stamp;
        if (r->stamp >= a->scan.limit)
            break;
        if (out->weight >= a->scan.weight_max) {
            out->size_reached = true;
            out->at_limit = false;
            break;
        }
        if (f->scan_max != 0 && taken == f->scan_max) {
            out->at_limit = false;
            break;
        }
        out->next_known = false;
        if (out->records++ == 0)
            out->first_stamp = r->stamp;
        out->weight += r->weight;
        taken++;
    }
    if (!out->next_known)
        out->size_reached = out->weight >= a->scan.weight_max;
    out->position = at;
}

static void fix_do_build(struct fix *f, struct fix_task *t, const struct sink_action *a,
                         enum fault fault)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_BUILT, a->op);
    struct sink_built *out = &p->event.built.out;
    const struct lake_window *w = &a->build.window;
    if (fault == FAULT_RETRIABLE || fault == FAULT_TERMINAL) {
        buf_puts(&p->text, "spool trouble");
        p->event.built.err = fault == FAULT_RETRIABLE ? ERR_NO_SPACE : ERR_CORRUPT;
        return;
    }
    const struct queue *q = state_queue_by_id(f->state, a->build.queue_id);
    if (q == NULL || f->no_log) {
        p->event.built.err = ERR_NOT_FOUND;
        return;
    }
    buf_reset(&t->built);
    t->built_start = w->t_start;
    t->built_end = w->t_end;
    for (size_t i = 0; i < f->n_records; i++) {
        const struct fix_record *r = &f->records[i];
        if (r->queue_id != a->build.queue_id || r->stamp < w->t_start || r->stamp >= w->t_end)
            continue;
        buf_put_i64(&t->built, r->stamp);
        buf_putc(&t->built, '\n');
        if (out->records++ == 0)
            out->min_ts = r->stamp;
        out->max_ts = r->stamp;
        out->partitions = 1;
    }
    out->size = t->built.len;
    sha256(buf_span(&t->built), out->sha256);
}

static bool fix_bucket_fault(struct fix *f, struct fix_pending *p, enum fault fault)
{
    if (!f->bucket_down && fault != FAULT_RETRIABLE && fault != FAULT_TERMINAL)
        return false;
    buf_puts(&p->text, "status 503: trouble");
    p->event.bucket.outcome = fault == FAULT_TERMINAL ? BUCKET_TERMINAL : BUCKET_RETRIABLE;
    return true;
}

static void fix_do_put(struct fix *f, struct fix_task *t, const struct sink_action *a,
                       enum fault fault)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_BUCKET, a->op);
    char checkpoint[64];
    (void)snprintf(checkpoint, sizeof(checkpoint), "%" PRIu64 " %" PRId64,
                   t->checkpoint.checkpoint.k, t->checkpoint.checkpoint.t_end);
    struct span bytes = a->type == SINK_DO_PUT_OBJECT ? buf_span(&t->built)
                        : a->type == SINK_DO_PUT      ? a->put.bytes
                                                      : span_str(checkpoint);
    struct omap_row old;
    if (fix_bucket_fault(f, p, fault))
        return;
    if (a->type == SINK_DO_PUT_OBJECT && omap_get(f->bucket, a->put.key, &old))
        CHECK_SPAN(bytes, old.value); /* a data object never changes */
    omap_put(f->bucket, a->put.key, bytes);
    p->event.bucket.outcome = BUCKET_OK;
    if (fault == FAULT_UNKNOWN_DONE) {
        buf_puts(&p->text, "transport: lost answer");
        p->event.bucket.outcome = BUCKET_RETRIABLE;
    }
}

/* A checkpoint is its "k tEnd" here. */
static void fix_read_checkpoint(struct fix_pending *p, struct span value)
{
    char text[64];
    uint64_t k;
    int64_t t_end;
    ASSERT(value.len < sizeof(text));
    memcpy(text, value.ptr, value.len);
    text[value.len] = 0;
    p->event.type = SINK_EVENT_CHECKPOINT;
    p->event.checkpoint.err = ERR_INVALID;
    if (sscanf(text, "%" SCNu64 " %" SCNd64, &k, &t_end) != 2)
        return;
    p->event.checkpoint.err = ERR_OK;
    p->event.checkpoint.rows = 7;
    p->event.checkpoint.k = k;
    p->event.checkpoint.t_end = t_end;
    p->event.checkpoint.near = (struct qlog_near){1, 100 + k, t_end};
}

static void fix_do_get(struct fix *f, struct fix_task *t, const struct sink_action *a,
                       enum fault fault)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_BUCKET, a->op);
    struct omap_row row;
    if (fix_bucket_fault(f, p, fault))
        return;
    if (!omap_get(f->bucket, a->get.key, &row)) {
        p->event.bucket.outcome = BUCKET_ABSENT;
        return;
    }
    if (a->get.is_checkpoint) {
        fix_read_checkpoint(p, row.value);
        return;
    }
    p->event.bucket.outcome = BUCKET_OK;
    buf_put_span(&p->text, row.value);
}

static void fix_do_list(struct fix *f, struct fix_task *t, const struct sink_action *a,
                        enum fault fault)
{
    struct fix_pending *p = fix_answer(t, SINK_EVENT_BUCKET, a->op);
    struct omap_row row;
    struct span from = a->list.start_after.len > 0 ? a->list.start_after : a->list.prefix;
    bool strict = a->list.start_after.len > 0;
    if (fix_bucket_fault(f, p, fault))
        return;
    p->keys = MEM_ARRAY(struct span, 2);
    p->event.bucket.outcome = BUCKET_OK;
    while (omap_seek(f->bucket, from, strict, &row) && span_starts_with(row.key, a->list.prefix)) {
        if (p->event.bucket.n_keys == 2) { /* short pages: paging is exercised */
            p->event.bucket.truncated = true;
            break;
        }
        p->keys[p->event.bucket.n_keys++] = row.key;
        from = row.key;
        strict = true;
    }
    p->event.bucket.keys = p->keys;
}

static const char *fix_note(enum sink_note_type type)
{
    static const char *const names[] = {
        [SINK_NOTE_STARTING] = "starting",
        [SINK_NOTE_OWNED] = "owned",
        [SINK_NOTE_HELD] = "held",
        [SINK_NOTE_CHANGED] = "changed",
        [SINK_NOTE_RESTORED] = "restored",
        [SINK_NOTE_FROM_MANIFEST] = "from manifest",
        [SINK_NOTE_COMMITTED] = "committed",
        [SINK_NOTE_SHUTTING_DOWN] = "shutting down",
        [SINK_NOTE_DRAINED] = "drained",
        [SINK_NOTE_RELEASED] = "released",
        [SINK_NOTE_MISSING] = "missing",
        [SINK_NOTE_FENCED] = "fenced",
        [SINK_NOTE_LEASE_LOST] = "lease lost",
        [SINK_NOTE_PRECONDITION_LOST] = "precondition lost",
        [SINK_NOTE_STOPPED] = "stopped",
        [SINK_NOTE_PANICKED] = "panicked",
        [SINK_NOTE_REFRESH_FAILED] = "refresh failed",
        [SINK_NOTE_CLAIM_FAILED] = "claim failed",
        [SINK_NOTE_KV_FAILED] = "kv failed",
        [SINK_NOTE_PUT_FAILED] = "put failed",
        [SINK_NOTE_GET_FAILED] = "get failed",
        [SINK_NOTE_SCAN_FAILED] = "scan failed",
        [SINK_NOTE_BUILD_FAILED] = "build failed",
        [SINK_NOTE_RELEASE_FAILED] = "release failed",
        [SINK_NOTE_BAD_POINTER] = "bad pointer",
        [SINK_NOTE_CHECKPOINT_UNREADABLE] = "checkpoint unreadable",
        [SINK_NOTE_CHECKPOINT_NOT_WRITTEN] = "checkpoint not written",
        [SINK_NOTE_CHECKPOINT_NOT_LISTED] = "checkpoint not listed",
    };
    return names[type];
}

static struct span fix_last_part(struct span key)
{
    size_t at = key.len;
    while (at > 0 && key.ptr[at - 1] != '/')
        at--;
    return span_sub(key, at, key.len);
}

static void fix_trace(struct fix *f, unsigned i, const struct sink_action *a)
{
    struct buf *b = &f->trace;
    if (i > 0)
        buf_puts(b, "2:");
    switch (a->type) {
    case SINK_DO_KV:
        buf_printf(b, "kv %s", fix_purpose(a->kv.purpose));
        break;
    case SINK_DO_LOOK_UP:
        buf_puts(b, "look up");
        break;
    case SINK_DO_SCAN:
        buf_puts(b, "scan");
        break;
    case SINK_DO_BUILD:
        buf_printf(b, "build %" PRIu64, a->build.window.k);
        break;
    case SINK_DO_BUILD_CHECKPOINT:
        buf_printf(b, "build checkpoint %" PRIu64, a->checkpoint.k);
        break;
    case SINK_DO_PUT_OBJECT:
        buf_puts(b, "put object");
        break;
    case SINK_DO_PUT_CHECKPOINT:
    case SINK_DO_PUT:
        buf_printf(b, "put " SPAN_FMT, SPAN_ARG(fix_last_part(a->put.key)));
        break;
    case SINK_DO_GET:
        buf_printf(b, "get " SPAN_FMT, SPAN_ARG(fix_last_part(a->get.key)));
        break;
    case SINK_DO_LIST:
        buf_puts(b, "list");
        break;
    case SINK_DO_CRASH:
        buf_printf(b, "crash %s", sink_crash_point_name(a->crash));
        break;
    case SINK_DO_NOTE:
        buf_printf(b, "- %s", fix_note(a->note.type));
        break;
    }
    buf_putc(b, '\n');
}

static void fix_tell(struct fix *f, unsigned i, enum sink_event_type type);

/* False: the process died, the rest of the step is lost. */
static bool fix_fault_before(struct fix *f, unsigned i, enum fault fault)
{
    switch (fault) {
    case FAULT_STEAL:
        fix_steal(f);
        break;
    case FAULT_DELETE:
        fix_delete(f);
        break;
    case FAULT_STOP:
        fix_answer(&f->tasks[i], SINK_EVENT_STOP, 0);
        break;
    case FAULT_GIVE_BACK:
        fix_answer(&f->tasks[i], SINK_EVENT_GIVE_BACK, 0);
        break;
    case FAULT_CUT:
        fix_answer(&f->tasks[i], SINK_EVENT_CUT, 0);
        break;
    case FAULT_CRASH:
        fix_start(f, i);
        return false;
    default:
        break;
    }
    return true;
}

static bool fix_act(struct fix *f, unsigned i, const struct sink_action *a)
{
    struct fix_task *t = &f->tasks[i];
    enum fault fault = FAULT_NONE;
    fix_trace(f, i, a);
    if (a->type != SINK_DO_NOTE && a->type != SINK_DO_CRASH && i == 0 &&
        f->operations++ == f->fault_at && f->fault != FAULT_NONE) {
        fault = f->fault;
        f->fault_fired = true;
        if (!fix_fault_before(f, i, fault))
            return false;
    }
    switch (a->type) {
    case SINK_DO_KV:
        fix_do_kv(f, t, a, fault);
        break;
    case SINK_DO_LOOK_UP:
        fix_do_look_up(f, t, a->op);
        break;
    case SINK_DO_SCAN:
        fix_do_scan(f, t, a, fault);
        break;
    case SINK_DO_BUILD:
        fix_do_build(f, t, a, fault);
        break;
    case SINK_DO_BUILD_CHECKPOINT: {
        struct fix_pending *p = fix_answer(t, SINK_EVENT_CHECKPOINT, a->op);
        p->event.checkpoint.err = fault == FAULT_RETRIABLE ? ERR_IO : ERR_OK;
        p->event.checkpoint.rows = 3;
        t->checkpoint = *a;
        break;
    }
    case SINK_DO_PUT_OBJECT:
    case SINK_DO_PUT_CHECKPOINT:
    case SINK_DO_PUT:
        fix_do_put(f, t, a, fault);
        break;
    case SINK_DO_GET:
        fix_do_get(f, t, a, fault);
        break;
    case SINK_DO_LIST:
        fix_do_list(f, t, a, fault);
        break;
    case SINK_DO_CRASH:
        t->crashed = true;
        break;
    case SINK_DO_NOTE:
        break;
    }
    if (fault == FAULT_CRASH_DONE) {
        fix_start(f, i);
        return false;
    }
    return true;
}

static void fix_step(struct fix *f, unsigned i, struct sink_event *event)
{
    static struct sink_actions actions; /* big */
    struct sink_actions copy;
    event->mono_us = f->mono;
    event->wall_us = f->wall;
    event->safe_time = f->safe_time;
    event->placement = f->placement;
    sink_task_step(f->tasks[i].task, event, &actions);
    copy = actions;
    for (size_t a = 0; a < copy.n; a++) {
        if (!fix_act(f, i, &copy.items[a]))
            break;
    }
}

static void fix_tell(struct fix *f, unsigned i, enum sink_event_type type)
{
    struct sink_event event = {.type = type, .retry_after_us = -1};
    fix_step(f, i, &event);
}

/* One answer that is there; false when there is none. */
static bool fix_one(struct fix *f, unsigned i)
{
    struct fix_task *t = &f->tasks[i];
    if (t->task == NULL || t->head == t->tail || t->crashed)
        return false;
    struct fix_pending *p = &t->pending[t->head++ % PENDING_MAX];
    struct sink_event event = p->event;
    struct kv_result *result = p->result;
    struct buf text = p->text;
    struct span *keys = p->keys;
    *p = (struct fix_pending){0};
    if (event.type == SINK_EVENT_BUCKET && event.bucket.outcome == BUCKET_OK)
        event.bucket.body = buf_span(&text);
    else
        event.error = buf_span(&text);
    fix_step(f, i, &event);
    if (result != NULL)
        kv_result_deinit(result);
    mem_free(result);
    mem_free(keys);
    buf_deinit(&text);
    return true;
}

/* Everything that can happen without time passing. */
static void fix_settle(struct fix *f)
{
    bool any = true;
    for (unsigned n = 0; any; n++) {
        CHECK(n < 10000); /* it comes to rest */
        any = fix_one(f, 0);
        any = fix_one(f, 1) || any;
    }
}

/* Moves the clocks to the next thing that is due, not past `until`, and wakes the tasks; a quiet
 * broker's clock is moved when a task asks for it. Answers are left where they are. */
static void fix_move(struct fix *f, int64_t until)
{
    int64_t next = until;
    struct sink_wishes w;
    for (unsigned i = 0; i < 2; i++) {
        if (f->tasks[i].task == NULL || f->tasks[i].crashed)
            continue;
        sink_task_wishes(f->tasks[i].task, &w);
        if (w.timer_us < next)
            next = w.timer_us;
        if (w.clock_us != WINDOW_NEVER && w.clock_us > f->safe_time &&
            f->mono + (w.clock_us - f->wall) < next)
            next = f->mono + (w.clock_us - f->wall);
    }
    if (next <= f->mono)
        next = f->mono + 1;
    f->wall += next - f->mono;
    f->mono = next;
    for (unsigned i = 0; i < 2; i++) {
        if (f->tasks[i].task == NULL || f->tasks[i].crashed)
            continue;
        sink_task_wishes(f->tasks[i].task, &w);
        if (w.clock_us != WINDOW_NEVER && w.clock_us <= f->wall && w.clock_us > f->safe_time)
            (void)fix_tick(f); /* the clock entry */
        if (w.timer_us <= f->mono || w.clock_us <= f->safe_time)
            fix_tell(f, i, SINK_EVENT_WAKE);
    }
}

static void fix_pass(struct fix *f, int64_t us)
{
    int64_t until = f->mono + us;
    fix_settle(f);
    while (f->mono < until) {
        fix_move(f, until);
        fix_settle(f);
    }
}

static void fix_mark(struct fix *f)
{
    buf_reset(&f->trace);
}

static bool fix_traced(struct fix *f, const char *text)
{
    return f->trace.len > 0 && memmem(f->trace.ptr, f->trace.len, text, strlen(text)) != NULL;
}

#define CHECK_TRACE(f, text) CHECK_TEXT(buf_span(&(f)->trace), text)

/* --- the lake --- */

static bool fix_get(struct fix *f, const char *what, struct buf *out)
{
    struct buf key = BUF_INIT;
    struct kv_result result;
    if (strcmp(what, "lease") == 0)
        sink_key_lease(&key, SPAN_LIT("default"), QUEUE);
    else if (strcmp(what, "intent") == 0)
        sink_key_intent(&key, SPAN_LIT("default"), QUEUE);
    else
        sink_key_committed(&key, SPAN_LIT("default"), QUEUE);
    fix_kv_apply(f, &(struct kv_op){.type = KV_GET, .ns = SINK_NAMESPACE, .key = buf_span(&key)}, 1,
                 &result);
    bool found = result.ops[0].found;
    buf_reset(out);
    buf_put_span(out, result.ops[0].row.value);
    kv_result_deinit(&result);
    buf_deinit(&key);
    return found;
}

static void fix_put(struct fix *f, const char *what, const char *value)
{
    struct buf key = BUF_INIT;
    struct kv_result result;
    if (strcmp(what, "intent") == 0)
        sink_key_intent(&key, SPAN_LIT("default"), QUEUE);
    else if (strcmp(what, "lease") == 0)
        sink_key_lease(&key, SPAN_LIT("default"), QUEUE);
    else
        sink_key_committed(&key, SPAN_LIT("default"), QUEUE);
    fix_kv_apply(f,
                 &(struct kv_op){.type = KV_PUT,
                                 .ns = SINK_NAMESPACE,
                                 .key = buf_span(&key),
                                 .value = span_str(value),
                                 .forever = true},
                 1, &result);
    kv_result_deinit(&result);
    buf_deinit(&key);
}

static uint64_t fix_committed_k(struct fix *f)
{
    struct buf value = BUF_INIT;
    struct sink_committed doc;
    uint64_t k = 0;
    if (fix_get(f, "committed", &value)) {
        CHECK_EQ(sink_committed_parse(buf_span(&value), &doc), ERR_OK);
        k = doc.k;
        sink_committed_deinit(&doc);
    }
    buf_deinit(&value);
    return k;
}

/* Windows 1..committed tile, their objects hold exactly the records stamped in them, once; with
 * everything: no record of the live queue is missing. Returns the number of records in the lake. */
static size_t fix_judge(struct fix *f, bool everything)
{
    uint64_t k = fix_committed_k(f);
    struct lake_spec spec = {.prefix = SPAN_LIT("queen"),
                             .tenant = span_str(TENANT_TEXT),
                             .queue = QUEUE,
                             .segment_max = 255};
    unsigned seen[RECORDS_MAX] = {0};
    int64_t before = INT64_MIN;
    size_t total = 0;
    for (uint64_t i = 1; i <= k; i++) {
        struct buf key = BUF_INIT;
        struct omap_row row;
        struct lake_manifest m;
        lake_key_manifest(&key, &spec, i);
        CHECK(omap_get(f->bucket, buf_span(&key), &row));
        CHECK_EQ(lake_manifest_parse(row.value, &m), ERR_OK);
        CHECK_EQ(m.k, i);
        CHECK(m.t_start >= before);
        CHECK(m.t_end > m.t_start);
        before = m.t_end;
        CHECK_EQ(m.n_objects, 1);
        CHECK(omap_get(f->bucket, m.objects[0].key, &row));
        CHECK_EQ(row.value.len, m.objects[0].bytes);
        size_t in_object = 0;
        for (size_t at = 0; at < row.value.len;) {
            int64_t stamp = 0;
            while (row.value.ptr[at] != '\n')
                stamp = 10 * stamp + (row.value.ptr[at++] - '0');
            at++;
            CHECK(stamp >= m.t_start && stamp < m.t_end);
            for (size_t r = 0; r < f->n_records; r++)
                seen[r] += f->records[r].stamp == stamp;
            in_object++;
        }
        CHECK_EQ(in_object, m.records);
        total += in_object;
        lake_manifest_deinit(&m);
        buf_deinit(&key);
    }
    const struct queue *q = state_queue_find(f->state, &TENANT_DEFAULT, QUEUE);
    f->first_seen = f->n_records;
    for (size_t r = 0; r < f->n_records; r++) {
        CHECK(seen[r] <= 1);
        if (seen[r] == 1 && r < f->first_seen)
            f->first_seen = r;
        if (everything && q != NULL && f->records[r].queue_id == q->id)
            CHECK_EQ(seen[r], 1);
    }
    return total;
}

#endif
