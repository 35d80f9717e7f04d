/* The world: a seed decides every action, answer, delay and crash.
 *
 * A life is one boot: actions are drawn by weight (a client pushes, repeats or deletes; the log
 * writer, apply, the checkpoint, the sink, a worker or the bucket does one step; time passes) until
 * the life ends by a power cut, a kill, or a drain as on SIGTERM. After each boot every
 * acknowledged record is read back from the queue logs. After the last life faults are switched
 * off, the sink is given time to ship everything, and the lake is judged. */
#include "sim/world_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

#include <stdarg.h>
#include <stdio.h>

#define QUIESCE_STEPS_MAX 400000u
#define QUIET_LIVES_MAX 8u
#define BALLAST_BYTES (256u << 10)
#define DISK_BYTES (UINT64_C(1) << 40)

const char *const world_queue_names[WORLD_QUEUES] = {"orders", "ünï cødé/1", "p:2 100%"};
const char *const world_partition_names[WORLD_PARTITIONS] = {"cust-1",  "cust-2", "Default",
                                                             "a\"b\\c", "👑",      "z/=%"};

struct client_request {
    struct node_request base;
    struct world *world;
    struct ledger_record **records; /* pushed ones, in item order */
    bool *repeat;                   /* was acknowledged before: must be a duplicate */
    size_t n;
    size_t deletion; /* index in the ledger */
    struct client_request *next;
};

void world_fail(struct world *w, const char *format, ...)
{
    if (!w->result->ok)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(w->result->why, sizeof(w->result->why), format, args);
    va_end(args);
    w->result->ok = false;
}

void world_trace(struct world *w, const char *format, ...)
{
    if (!w->options->trace)
        return;
    va_list args;
    va_start(args, format);
    printf("%6llu life %llu ", (unsigned long long)w->result->steps, (unsigned long long)w->life);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* --- clients --- */

static void client_free(struct client_request *c)
{
    node_request_deinit(&c->base);
    mem_free(c->records);
    mem_free(c->repeat);
    mem_free(c);
}

static void push_done_item(struct world *w, struct client_request *c, size_t i)
{
    struct ledger_record *r = c->records[i];
    const struct push_item_result *item = &c->base.push.items[i];
    if (c->repeat[i]) {
        if (ledger_optional(&w->ledger,
                            r)) /* its queue was deleted meanwhile: nothing is promised */
            return;
        if (item->status != PUSH_DUPLICATE || item->offset != r->offset ||
            memcmp(&item->message_id, &r->message_id, 16) != 0)
            world_fail(w, "%s was acknowledged at %llu; its repeat was told status %d offset %llu",
                       r->transaction_id, (unsigned long long)r->offset, item->status,
                       (unsigned long long)item->offset);
        return;
    }
    if (item->status != PUSH_QUEUED) {
        world_fail(w, "%s is new and was told status %d", r->transaction_id, item->status);
        return;
    }
    r->told = TOLD_QUEUED;
    r->offset = item->offset;
    r->message_id = item->message_id;
    r->stamp = c->base.now;
}

static void client_done(struct node_request *base)
{
    struct client_request *c = (struct client_request *)base;
    struct world *w = c->world;
    w->outstanding--;
    if (base->type == COMMAND_PUSH) {
        for (size_t i = 0; i < c->n; i++) {
            if (base->err == ERR_OK)
                push_done_item(w, c, i);
            else if (base->err == ERR_STORAGE_FULL && !c->repeat[i])
                c->records[i]->told = TOLD_REFUSED;
        }
    } else if (base->err == ERR_STORAGE_FULL) {
        w->ledger.deletions[c->deletion].refused = true;
    }
    client_free(c);
}

static struct client_request *client_new(struct world *w, enum command_type type)
{
    struct client_request *c = mem_new(sizeof(*c));
    c->world = w;
    c->base.type = type;
    c->base.done = client_done;
    w->outstanding++;
    return c;
}

static void make_payload(struct world *w, struct buf *out)
{
    static const char *const texts[] = {"null",        "{\"a\":42.00}",
                                        "\"\\u0000\"", "-0",
                                        "1E+400",      "123456789012345678901234567890",
                                        "[1, 2,\t3]"};
    uint64_t kind = prng_below(&w->prng, 10);
    if (kind < 7) {
        buf_puts(out, texts[kind]);
        return;
    }
    buf_puts(out, "{\"filler\":\"");
    uint64_t len = prng_below(&w->prng, kind == 9 ? 20000 : 200);
    for (uint64_t i = 0; i < len; i++)
        buf_putc(out, (uint8_t)('a' + prng_below(&w->prng, 26)));
    buf_puts(out, "\"}");
}

/* A record to push again: acknowledged, its queue not deleted since. */
static struct ledger_record *pick_repeat(struct world *w, unsigned queue)
{
    if (w->ledger.n == 0)
        return NULL;
    struct ledger_record *r = w->ledger.records[prng_below(&w->prng, w->ledger.n)];
    int64_t now = node_safe_time(w->node) > w->clock.wall ? node_safe_time(w->node) : w->clock.wall;
    bool recent = r->stamp > now - 1800 * US_PER_SEC; /* inside the window */
    return r->queue == queue && recent && !ledger_optional(&w->ledger, r) ? r : NULL;
}

static void push_records(struct world *w, struct client_request *c)
{
    struct push_item *items = MEM_ARRAY(struct push_item, c->n);
    for (size_t i = 0; i < c->n; i++) {
        struct ledger_record *r = c->records[i];
        items[i] = (struct push_item){
            .queue = span_str(world_queue_names[r->queue]),
            .partition = span_str(world_partition_names[r->partition]),
            .transaction_id = span_str(r->transaction_id),
            .payload = r->payload,
        };
        entropy_fill(&w->entropy.base, items[i].message_id.bytes, 16);
    }
    push_encode(&c->base.body, &TENANT_DEFAULT, items, c->n);
    mem_free(items);
    c->base.grows_storage = true;
    world_trace(w, "push of %zu", c->n);
    node_submit(w->node, &c->base);
}

static struct client_request *push_new(struct world *w, size_t n)
{
    struct client_request *c = client_new(w, COMMAND_PUSH);
    c->records = MEM_ARRAY(struct ledger_record *, n);
    c->repeat = MEM_ARRAY(bool, n);
    c->n = n;
    return c;
}

static struct ledger_record *new_record(struct world *w, unsigned queue)
{
    struct buf payload = BUF_INIT;
    make_payload(w, &payload);
    struct ledger_record *r = ledger_add(
        &w->ledger, queue, (unsigned)prng_below(&w->prng, WORLD_PARTITIONS), buf_span(&payload));
    buf_deinit(&payload);
    return r;
}

/* A mix of new records and repeats, over all queues. */
static void client_push(struct world *w)
{
    size_t n = 1 + (size_t)prng_below(&w->prng, prng_chance(&w->prng, 10) ? 60 : 6);
    struct client_request *c = push_new(w, n);
    for (size_t i = 0; i < n; i++) {
        unsigned queue = (unsigned)prng_below(&w->prng, WORLD_QUEUES);
        struct ledger_record *r = prng_chance(&w->prng, 10) ? pick_repeat(w, queue) : NULL;
        for (size_t before = 0; r != NULL && before < i; before++)
            r = c->records[before] == r ? NULL : r;
        c->repeat[i] = r != NULL;
        c->records[i] = r != NULL ? r : new_record(w, queue);
    }
    push_records(w, c);
}

void world_push(struct world *w, unsigned queue, size_t n)
{
    struct client_request *c = push_new(w, n);
    for (size_t i = 0; i < n; i++)
        c->records[i] = new_record(w, queue);
    push_records(w, c);
}

void world_delete(struct world *w, unsigned queue)
{
    struct client_request *c = client_new(w, COMMAND_QUEUE_DELETE);
    c->deletion = ledger_delete(&w->ledger, queue);
    queue_delete_encode(&c->base.body, &TENANT_DEFAULT, span_str(world_queue_names[queue]));
    w->result->deletions++;
    world_trace(w, "delete %s", world_queue_names[queue]);
    node_submit(w->node, &c->base);
}

/* --- reading back after a boot --- */

static void check_record(struct world *w, struct state *s, const struct ledger_record *r)
{
    struct queue *q = state_queue_find(s, &TENANT_DEFAULT, span_str(world_queue_names[r->queue]));
    struct partition *p =
        q == NULL ? NULL
                  : state_partition_find(s, q, span_str(world_partition_names[r->partition]));
    if (p == NULL || p->next_offset <= r->offset) {
        world_fail(w, "%s was acknowledged and is not in the log after a restart",
                   r->transaction_id);
        return;
    }
    struct qlog_run_data data = {0};
    struct error error = {0};
    uint64_t position = 0;
    enum err err = qlog_find(q->log, p->id, r->offset, &position, &error);
    if (err == ERR_OK)
        err = qlog_read(q->log, position, &data, &error);
    uint64_t at = r->offset - data.head.first_offset;
    if (err != ERR_OK && sim_disk_down(w->disk))
        world_trace(w, "power cut while reading back"); /* the life ends at the next step */
    else if (err != ERR_OK || at >= data.head.count)
        world_fail(w, "%s cannot be read: %s", r->transaction_id, error.text);
    else if (!span_eq(data.records[at].payload, r->payload) || data.head.stamp != r->stamp ||
             !span_eq(data.records[at].transaction_id, span_str(r->transaction_id)))
        world_fail(w, "%s reads altered after a restart", r->transaction_id);
    qlog_run_data_deinit(&data);
}

static void check_log(struct world *w)
{
    struct state *s = node_read_begin(w->node);
    for (size_t i = 0; i < w->ledger.n && w->result->ok; i++) {
        if (w->ledger.records[i]->told == TOLD_QUEUED &&
            !ledger_optional(&w->ledger, w->ledger.records[i]))
            check_record(w, s, w->ledger.records[i]);
    }
    node_read_end(w->node);
}

/* --- lives --- */

static enum err open_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    *out = sim_db_new(((struct world *)ctx)->db_state);
    return ERR_OK;
}

static const char *setting(void *ctx, const char *name)
{
    const char *const *pairs = ctx;
    for (size_t i = 0; pairs[i] != NULL; i += 2) {
        if (strcmp(pairs[i], name) == 0)
            return pairs[i + 1];
    }
    return NULL;
}

static void read_settings(struct world *w)
{
    static const char *const compressions[] = {"zstd", "gzip", "none"};
    static const char *const aligns[] = {"hour", "none", "day"};
    char target[8], window[16], guard[16], every[8];
    snprintf(target, sizeof(target), "%d", 1);
    snprintf(window, sizeof(window), "%llu", 500 + (unsigned long long)prng_below(&w->prng, 5000));
    snprintf(guard, sizeof(guard), "%llu", (unsigned long long)prng_below(&w->prng, 800));
    snprintf(every, sizeof(every), "%llu", 1 + (unsigned long long)prng_below(&w->prng, 4));
    const char *pairs[] = {
        "QUEEN_S3_EMBEDDED",
        "true",
        "QUEEN_S3_QUEUES",
        "*",
        "QUEEN_S3_ENDPOINT",
        "file:///bucket",
        "QUEEN_S3_BUCKET",
        "lake",
        "QUEEN_S3_START",
        "earliest",
        "QUEEN_S3_TARGET_MB",
        target,
        "QUEEN_S3_MAX_WINDOW_MS",
        window,
        "QUEEN_S3_SAFE_GUARD_MS",
        guard,
        "QUEEN_S3_CHECKPOINT_EVERY",
        every,
        "QUEEN_S3_LEASE_TTL_MS",
        "3000",
        "QUEEN_S3_DISCOVERY_INTERVAL_MS",
        "100",
        "QUEEN_S3_INSTANCE",
        "sim",
        "QUEEN_S3_COMPRESSION",
        compressions[prng_below(&w->prng, 3)],
        "QUEEN_S3_ALIGN",
        aligns[prng_below(&w->prng, 3)],
        NULL,
    };
    struct error error = {0};
    enum err err = sink_settings_read(setting, (void *)pairs, 1, "host", 2, &w->settings, &error);
    if (err != ERR_OK)
        world_fail(w, "settings: %s", error.text);
}

static void crash_point(void *ctx, enum sink_crash_point point)
{
    (void)ctx;
    (void)point;
}

/* Another process takes the rest of the disk, or gives it back. */
static void set_full(struct world *w, bool full)
{
    if (full == w->full)
        return;
    uint64_t left = prng_chance(&w->prng, 50) ? 0 : prng_below(&w->prng, 400u << 10);
    w->full = full;
    w->result->full += full;
    sim_disk_set_capacity(w->disk, full ? sim_disk_used(w->disk) + left : DISK_BYTES);
    world_trace(w, full ? "disk full" : "disk has room");
}

static enum err try_open_node(struct world *w, struct error *error)
{
    struct node_options o;
    node_options_default(&o);
    o.disk = w->disk;
    o.open_db = open_db;
    o.db_ctx = w;
    o.clock = &w->clock.base;
    o.entropy = &w->entropy.base;
    o.manual = true;
    o.wal_segment_bytes = 64u << 10;
    o.segment_bytes = 16u << 10;
    o.batch_max_commands = 1 + (uint32_t)prng_below(&w->prng, 8);
    o.log_handles_max = 2;
    o.disk_high_pct = 100.0;
    o.disk_low_pct = 100.0;
    o.ballast_bytes = BALLAST_BYTES;
    return node_open(&o, &w->node, error);
}

/* A full disk may refuse the boot; then it must work as soon as there is room. */
static bool open_node(struct world *w)
{
    struct error error = {0};
    enum err err = try_open_node(w, &error);
    if (err == ERR_NO_SPACE && w->full && !sim_disk_down(w->disk)) {
        set_full(w, false);
        err = try_open_node(w, &error);
    }
    if (err != ERR_OK && !sim_disk_down(w->disk))
        world_fail(w, "the node does not open: %s", error.text);
    return err == ERR_OK;
}

static void open_sink(struct world *w)
{
    struct error error = {0};
    if (!w->options->with_sink)
        return;
    read_settings(w);
    w->bucket = sim_bucket_new(&w->store, &w->clock, &w->prng);
    w->bucket->fault_percent = w->calm ? 0 : (unsigned)prng_below(&w->prng, 20);
    struct sink_options o = {
        .node = w->node,
        .clock = &w->clock.base,
        .entropy = &w->entropy.base,
        .executor = &w->executor.base,
        .bucket = &w->bucket->base,
        .settings = &w->settings,
        .spool_dir = "/tmp",
        .manual = true,
        .crash = crash_point,
        .crash_ctx = w,
    };
    if (sink_start(&o, &w->sink, &error) != ERR_OK)
        world_fail(w, "the sink does not start: %s", error.text);
}

bool world_open(struct world *w)
{
    if (!open_node(w))
        return false;
    check_log(w);
    open_sink(w);
    return true;
}

void world_judge(struct world *w, bool complete, struct lake_verdict *out)
{
    lake_judge(&w->ledger, w->store.objects, world_queue_names, WORLD_QUEUES, world_partition_names,
               complete, out);
    if (!out->ok)
        world_fail(w, "%s", out->why);
}

void world_drop(struct world *w)
{
    while (sim_executor_pump(&w->executor)) {
        /* jobs only read; run out so that they hold no log */
    }
    if (w->node != NULL)
        node_abandon(w->node);
    if (w->sink != NULL)
        sink_abandon(w->sink);
    w->node = NULL;
    w->sink = NULL;
    w->bucket = NULL;
    if (w->options->with_sink)
        sink_boot_settings_deinit(&w->settings);
    w->settings = (struct sink_boot_settings){0};
}

bool world_stopped(struct world *w)
{
    struct node_status status;
    if (sim_disk_down(w->disk) || w->node == NULL)
        return true;
    node_status(w->node, &status);
    /* Without threads nobody can wait for room inside an entry. */
    bool no_room = w->full && strstr(status.failure, err_text(ERR_NO_SPACE)) != NULL;
    if (status.stopped && !no_room)
        world_fail(w, "the node stopped: %s", status.failure);
    return status.stopped;
}

static void pass_time(struct world *w)
{
    int64_t next_sink = INT64_MAX, next_bucket = INT64_MAX;
    int64_t by = (int64_t)prng_below(&w->prng, 20000);
    bool busy = false;
    if (w->sink != NULL) {
        busy = sink_pump(w->sink, &next_sink);
        busy = sim_bucket_pump(w->bucket, &next_bucket) || busy;
    }
    int64_t next = next_sink < next_bucket ? next_sink : next_bucket;
    if (!busy && next != INT64_MAX && next > w->clock.mono && prng_chance(&w->prng, 70))
        by = next - w->clock.mono;
    if (by > 5 * US_PER_SEC)
        by = 5 * US_PER_SEC;
    sim_clock_advance(&w->clock, by);
    node_pump_space(w->node);
    if (!w->calm && prng_below(&w->prng, w->full ? 40 : 400) == 0)
        set_full(w, !w->full);
    if (!w->calm && prng_below(&w->prng, 2000) == 0) { /* somebody sets the wall clock */
        /* not hours while a repeat is out: it may come when its dedup window is over */
        bool hours = w->outstanding == 0 && prng_chance(&w->prng, 20);
        int64_t most = hours ? 5 * US_PER_HOUR : 10 * US_PER_SEC;
        w->clock.wall += (int64_t)prng_below(&w->prng, 2 * (uint64_t)most) - most;
        world_trace(w, "wall clock set");
    }
}

static void step(struct world *w)
{
    int64_t next;
    w->result->steps++;
    unsigned roll = (unsigned)prng_below(&w->prng, 100);
    if (w->calm && roll < 14)
        roll = 99;
    if (roll < 13)
        client_push(w);
    else if (roll < 14 && prng_chance(&w->prng, 15))
        world_delete(w, (unsigned)prng_below(&w->prng, WORLD_QUEUES));
    else if (roll < 32)
        (void)node_pump_log(w->node);
    else if (roll < 50)
        (void)node_pump_apply(w->node);
    else if (roll < 53)
        (void)node_pump_checkpoint(w->node);
    else if (roll < 70 && w->sink != NULL)
        (void)sink_pump(w->sink, &next);
    else if (roll < 80)
        (void)sim_executor_pump(&w->executor);
    else if (roll < 88 && w->bucket != NULL)
        (void)sim_bucket_pump(w->bucket, &next);
    else
        pass_time(w);
    if (w->store.violated)
        world_fail(w, "%s", w->store.violation);
}

/* A queue whose lease ran out on the way (time jumps in this world) leaves its window to the next
 * life. */
static bool left_a_window(struct world *w)
{
    struct buf status = BUF_INIT;
    sink_status_put(w->sink, &status);
    bool left = memmem(status.ptr, status.len, "\"state\":\"fenced\"", 16) != NULL;
    buf_deinit(&status);
    return left;
}

/* False when it was cut short, or left a window open. */
static bool drain(struct world *w)
{
    world_trace(w, "SIGTERM");
    w->result->drains++;
    sink_drain(w->sink);
    for (unsigned i = 0; i < QUIESCE_STEPS_MAX && !sink_drained(w->sink) && w->result->ok; i++) {
        unsigned calm = w->calm;
        w->calm = true; /* no new pushes while draining */
        step(w);
        w->calm = calm;
        if (world_stopped(w))
            return false;
    }
    if (!sink_drained(w->sink)) {
        world_fail(w, "the drain does not end");
        return false; /* its operations are still out */
    }
    bool left = left_a_window(w);
    sink_free(w->sink);
    w->sink = NULL;
    w->bucket = NULL;
    node_close(w->node);
    w->node = NULL;
    return !left;
}

static void end_life(struct world *w, unsigned how)
{
    if (how == 0 && world_stopped(w))
        how = 2;
    if (how == 0)
        set_full(w, false); /* a drain needs room for what it commits */
    if (how == 0 && w->sink != NULL && !sim_disk_down(w->disk))
        (void)drain(w); /* the next life finishes what it left */
    world_drop(w);
    if (sim_disk_down(w->disk) || how == 1) {
        world_trace(w, "power cut");
        w->result->crashes++;
        sim_disk_crash(w->disk, &w->prng);
    } else {
        world_trace(w, "killed");
        w->result->kills++;
        sim_disk_kill(w->disk);
    }
}

static void run_life(struct world *w)
{
    unsigned how = (unsigned)prng_below(&w->prng, 3);
    if (prng_chance(&w->prng, 50)) {
        how = 1;
        sim_disk_crash_after(w->disk, prng_below(&w->prng, 400));
    }
    if (world_open(w)) {
        for (unsigned i = 0; i < w->options->steps_per_life && w->result->ok && !world_stopped(w);
             i++)
            step(w);
    }
    end_life(w, how);
}

/* One life without faults, until everything acknowledged is in the lake, and a drain: a window of
 * records that nobody waits for may be on its way. False when it has to be lived again. */
static bool quiet_life(struct world *w)
{
    struct lake_verdict verdict = {0};
    if (!world_open(w))
        return true;
    bool complete = !w->options->with_sink;
    for (unsigned i = 0; i < QUIESCE_STEPS_MAX && w->result->ok && !complete && !world_stopped(w);
         i++) {
        step(w);
        if (i % 2000 == 1999) {
            world_judge(w, false, &verdict);
            complete = verdict.missing == 0 || !verdict.ok;
        }
    }
    if (!w->options->with_sink || !w->result->ok)
        return true;
    if (!drain(w) && w->result->ok)
        return false;
    world_judge(w, true, &verdict);
    w->result->windows = verdict.windows;
    return true;
}

/* Faults off: everything acknowledged must reach the lake. */
static void quiesce(struct world *w)
{
    bool done = false;
    w->calm = true;
    set_full(w, false);
    for (unsigned i = 0; i < QUIET_LIVES_MAX && !done; i++) {
        done = quiet_life(w);
        world_drop(w);
    }
    if (!done)
        world_fail(w, "every drain leaves a window open");
}

void world_init(struct world *w, const struct world_options *options, struct world_result *result)
{
    *w = (struct world){.options = options, .result = result};
    *result = (struct world_result){.ok = true};
    prng_init(&w->prng, options->seed);
    /* Some minutes before an hour, so that boundaries are met. */
    sim_clock_init(&w->clock, INT64_C(1791007200000000) - (int64_t)prng_below(&w->prng, 120000000));
    sim_entropy_init(&w->entropy, &w->prng);
    sim_executor_init(&w->executor, &w->prng);
    w->disk = sim_disk_new(prng_u64(&w->prng));
    w->db_state = sim_db_state_new();
    sim_bucket_store_init(&w->store);
    ledger_init(&w->ledger);
}

void world_deinit(struct world *w)
{
    w->result->records = w->ledger.n;
    ledger_deinit(&w->ledger);
    sim_bucket_store_deinit(&w->store);
    sim_db_state_free(w->db_state);
    sim_disk_free(w->disk);
    sim_executor_deinit(&w->executor);
}

void world_run(const struct world_options *options, struct world_result *out)
{
    struct world w;
    world_init(&w, options, out);
    int64_t start = w.clock.mono;
    for (w.life = 1; w.life <= options->lives && out->ok; w.life++)
        run_life(&w);
    if (out->ok)
        quiesce(&w);
    out->virtual_us = w.clock.mono - start;
    world_deinit(&w);
}
