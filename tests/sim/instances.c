/* The sink instances of a world: several over one node, as if each ran on a node of its own.
 *
 * An instance can die, be drained, stand still and come back while the node goes on. What a dead
 * one asked of node and executor takes its course, as a batch does that was on its way to the
 * leader; it is buried (sink_free) when none of that is out any more, and may start again then. An
 * instance that nothing kept from refreshing its leases must not lose one: a fence it meets is a
 * violation. */
#include "sim/world_internal.h"

#include "base/timefmt.h"

#include <stdio.h>
#include <stdlib.h>

static int64_t ttl_us(const struct world *w)
{
    return (int64_t)w->setup.ttl_ms * 1000;
}

/* --- start --- */

static const char *setting(void *ctx, const char *name)
{
    const char *const *pairs = ctx;
    for (size_t i = 0; pairs[i] != NULL; i += 2) {
        if (strcmp(pairs[i], name) == 0)
            return pairs[i + 1];
    }
    return NULL;
}

static void read_settings(struct world *w, struct instance *i)
{
    const struct sink_setup *setup = &w->setup;
    char window[16], guard[16], every[16], ttl[16], name[16], discovery[16];
    snprintf(discovery, sizeof(discovery), "%u",
             setup->discovery_ms == 0 ? 100 : setup->discovery_ms);
    snprintf(window, sizeof(window), "%u", setup->window_ms);
    snprintf(guard, sizeof(guard), "%u", setup->guard_ms);
    snprintf(every, sizeof(every), "%u", setup->checkpoint_every);
    snprintf(ttl, sizeof(ttl), "%u", setup->ttl_ms);
    snprintf(name, sizeof(name), "sim-%u", i->number);
    const char *pairs[] = {
        "QUEEN_S3_EMBEDDED",
        "true",
        "QUEEN_S3_QUEUES",
        "*",
        "QUEEN_S3_ENDPOINT",
        setup->http ? "http://s3.example:9000" : "file:///bucket",
        "QUEEN_S3_BUCKET",
        "lake",
        "QUEEN_S3_REGION",
        "us-east-1",
        "QUEEN_S3_ACCESS_KEY",
        "key",
        "QUEEN_S3_SECRET_KEY",
        "secret",
        "QUEEN_S3_START",
        setup->latest ? "latest" : "earliest",
        "QUEEN_S3_TARGET_MB",
        "1",
        "QUEEN_S3_MAX_WINDOW_MS",
        window,
        "QUEEN_S3_SAFE_GUARD_MS",
        guard,
        "QUEEN_S3_CHECKPOINT_EVERY",
        every,
        "QUEEN_S3_LEASE_TTL_MS",
        ttl,
        "QUEEN_S3_DISCOVERY_INTERVAL_MS",
        discovery,
        "QUEEN_S3_INSTANCE",
        name,
        "QUEEN_S3_COMPRESSION",
        setup->compression,
        "QUEEN_S3_ALIGN",
        setup->align,
        NULL,
    };
    struct error error = {0};
    enum err err =
        sink_settings_read(setting, (void *)pairs, i->number, "host", 2, &i->settings, &error);
    if (err != ERR_OK)
        world_fail(w, "settings: %s", error.text);
}

static void crash_point(void *ctx, enum sink_crash_point point)
{
    (void)ctx;
    (void)point;
}

void instance_start(struct world *w, struct instance *i)
{
    struct error error = {0};
    ASSERT(i->state == INSTANCE_NONE);
    read_settings(w, i);
    i->bucket = sim_bucket_new(&w->store, &w->clock, &w->prng);
    i->bucket->fault_percent = w->calm ? 0 : (unsigned)prng_below(&w->prng, 20);
    i->bucket->wild = !w->calm;
    i->bucket->part_bytes = w->calm || !w->setup.http ? 0 : 1000 + prng_below(&w->prng, 16000);
    struct sink_options o = {
        .node = w->node,
        .clock = &w->clock.base,
        .entropy = &w->entropy.base,
        .executor = &w->executor.base,
        .bucket = &i->bucket->base,
        .settings = &i->settings,
        .spool_dir = "/tmp",
        .manual = true,
        .crash = crash_point,
        .crash_ctx = w,
    };
    if (sink_start(&o, &i->sink, &error) != ERR_OK)
        world_fail(w, "the sink does not start: %s", error.text);
    i->state = INSTANCE_RUNNING;
    i->pumped_us = i->stalled_us = w->clock.mono;
    memset(i->row_gone, 0, sizeof(i->row_gone));
    world_trace(w, "%s starts", i->name);
}

/* --- ends --- */

bool instance_alive(const struct instance *i)
{
    return i->state == INSTANCE_RUNNING || i->state == INSTANCE_FROZEN ||
           i->state == INSTANCE_DRAINING;
}

static void gone(struct instance *i)
{
    sim_bucket_kill(i->bucket);
    i->state = INSTANCE_GONE;
}

void instance_kill(struct world *w, struct instance *i)
{
    ASSERT(instance_alive(i));
    world_trace(w, "%s dies", i->name);
    w->result->deaths++;
    gone(i);
}

void instance_drain(struct world *w, struct instance *i)
{
    ASSERT(i->state == INSTANCE_RUNNING);
    world_trace(w, "%s drains", i->name);
    sink_drain(i->sink);
    i->state = INSTANCE_DRAINING;
    i->left_a_window = false;
}

void instance_cut(struct world *w, struct instance *i)
{
    ASSERT(i->state == INSTANCE_DRAINING);
    world_trace(w, "%s: the grace is over", i->name);
    (void)sink_wait(i->sink, w->clock.mono); /* in manual mode it only begins the cut */
}

void instance_freeze(struct world *w, struct instance *i, int64_t us)
{
    ASSERT(i->state == INSTANCE_RUNNING);
    world_trace(w, "%s freezes for %lld ms", i->name, (long long)us / 1000);
    w->result->freezes++;
    sim_bucket_freeze(i->bucket);
    i->state = INSTANCE_FROZEN;
    i->thaw_us = w->clock.mono + us;
}

void instance_thaw(struct world *w, struct instance *i)
{
    world_trace(w, "%s thaws", i->name);
    i->state = INSTANCE_RUNNING;
    i->stalled_us = w->clock.mono;
}

static void bury(struct instance *i)
{
    i->sink = NULL;
    i->bucket = NULL;
    sink_boot_settings_deinit(&i->settings);
    i->settings = (struct sink_boot_settings){0};
    i->state = INSTANCE_NONE;
}

/* A queue whose lease ran out on the way leaves its window to the next owner. */
static void drained(struct world *w, struct instance *i)
{
    i->left_a_window = instance_status_has(i, "\"state\":\"fenced\"");
    if (w->clock.mono - w->disturbed_us > 3 * ttl_us(w) &&
        w->clock.mono - i->stalled_us > 3 * ttl_us(w))
        watch_check_left(w, i);
    world_trace(w, "%s is drained", i->name);
    w->result->stops++;
    gone(i);
}

static bool nothing_out(struct world *w)
{
    struct node_status status;
    node_status(w->node, &status);
    return status.inflight == 0 && w->executor.n == 0;
}

void instances_tend(struct world *w)
{
    for (unsigned n = 0; n < w->n_instances; n++) {
        struct instance *i = &w->instances[n];
        if (i->state == INSTANCE_FROZEN && i->thaw_us <= w->clock.mono)
            instance_thaw(w, i);
        if (i->state == INSTANCE_DRAINING && sink_drained(i->sink))
            drained(w, i);
        if (i->state == INSTANCE_GONE && nothing_out(w)) {
            sink_free(i->sink);
            bury(i);
        }
    }
}

void instances_abandon(struct world *w)
{
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        struct instance *i = &w->instances[n];
        if (i->state == INSTANCE_NONE)
            continue;
        sink_abandon(i->sink);
        bury(i);
    }
}

void instances_free(struct world *w)
{
    for (unsigned n = 0; n < WORLD_INSTANCES_MAX; n++) {
        struct instance *i = &w->instances[n];
        if (i->state == INSTANCE_NONE)
            continue;
        ASSERT(i->state == INSTANCE_GONE);
        sink_free(i->sink);
        bury(i);
    }
}

/* --- steps --- */

bool instance_pump_sink(struct world *w, struct instance *i, int64_t *next_out)
{
    *next_out = INT64_MAX;
    if (i->state != INSTANCE_RUNNING && i->state != INSTANCE_DRAINING)
        return false;
    if (w->clock.mono - i->pumped_us > ttl_us(w) / 4)
        i->stalled_us = w->clock.mono;
    i->pumped_us = w->clock.mono;
    w->acting = i;
    bool did = sink_pump(i->sink, next_out);
    w->acting = NULL;
    return did;
}

bool instance_pump_bucket(struct instance *i, int64_t *next_out)
{
    *next_out = INT64_MAX;
    if (i->state != INSTANCE_RUNNING && i->state != INSTANCE_DRAINING)
        return false;
    i->world->acting = i;
    bool did = sim_bucket_pump(i->bucket, next_out);
    i->world->acting = NULL;
    return did;
}

bool instances_pump(struct world *w, int64_t *next_out)
{
    bool did = false;
    int64_t next;
    instances_tend(w);
    sim_bucket_store_pump(&w->store, w->clock.mono, next_out);
    for (unsigned n = 0; n < w->n_instances; n++) {
        struct instance *i = &w->instances[n];
        did = instance_pump_sink(w, i, &next) || did;
        *next_out = next < *next_out ? next : *next_out;
        did = instance_pump_bucket(i, &next) || did;
        *next_out = next < *next_out ? next : *next_out;
        if (i->state == INSTANCE_FROZEN && i->thaw_us < *next_out)
            *next_out = i->thaw_us;
    }
    return did;
}

/* --- what is seen of them --- */

struct instance *instance_named(struct world *w, struct span name)
{
    for (unsigned n = 0; n < w->n_instances; n++) {
        if (span_eq(span_str(w->instances[n].name), name))
            return &w->instances[n];
    }
    return NULL;
}

static bool has(struct span text, const char *part)
{
    return memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

static void fenced(struct world *w, struct instance *i, struct span line)
{
    w->result->fences++;
    for (unsigned q = 0; q < w->queues; q++) {
        if (i->row_gone[q] && has(line, world_queue_names[q]))
            world_fail(w, "somebody deleted the live lease of %s: " SPAN_FMT, i->name,
                       SPAN_ARG(line));
    }
    int64_t quiet = 3 * ttl_us(w), now = w->clock.mono;
    if (now - i->stalled_us > quiet && now - w->disturbed_us > quiet)
        world_fail(w, "%s lost a lease without having stood still: " SPAN_FMT, i->name,
                   SPAN_ARG(line));
}

void instance_log_line(struct world *w, struct span line)
{
    struct instance *i = w->acting;
    if (i == NULL)
        return;
    if (has(line, " queue fenced "))
        fenced(w, i, line);
    else if (has(line, " gave the queue back "))
        w->result->given_back++;
    else if (has(line, " a queue task crashed"))
        world_fail(w, "%s: " SPAN_FMT, i->name, SPAN_ARG(line));
}

static bool number_behind(const struct buf *text, const char *label, uint64_t *out)
{
    const uint8_t *at = memmem(text->ptr, text->len, label, strlen(label));
    if (at == NULL)
        return false;
    *out = strtoull((const char *)at + strlen(label), NULL, 10);
    return true;
}

uint64_t instance_status_number(struct instance *i, const char *name)
{
    struct buf text = BUF_INIT;
    char label[64];
    uint64_t value = UINT64_MAX;
    snprintf(label, sizeof(label), "\"%s\":", name);
    sink_status_put(i->sink, &text);
    buf_putc(&text, '\0');
    (void)number_behind(&text, label, &value);
    buf_deinit(&text);
    return value;
}

bool instance_status_has(struct instance *i, const char *what)
{
    struct buf text = BUF_INIT;
    sink_status_put(i->sink, &text);
    bool found = has(buf_span(&text), what);
    buf_deinit(&text);
    return found;
}

/* The keys of a row are sorted: completeThrough stands before the name. */
bool instance_complete_through(struct instance *i, const char *queue, int64_t *us_out)
{
    static const char label[] = "\"completeThrough\":\"";
    struct buf text = BUF_INIT;
    char name[64];
    snprintf(name, sizeof(name), "\"name\":\"%s\"", queue);
    sink_status_put(i->sink, &text);
    const uint8_t *end = memmem(text.ptr, text.len, name, strlen(name)), *at = end;
    while (at != NULL && at > text.ptr && *at != '{' &&
           strncmp((const char *)at, label, strlen(label)) != 0)
        at--;
    bool found = at != NULL && *at == '"';
    if (found) {
        at += strlen(label);
        const uint8_t *quote = memchr(at, '"', (size_t)(end - at));
        found = time_parse_iso(span_make(at, (size_t)(quote - at)), us_out);
    }
    buf_deinit(&text);
    return found;
}

uint64_t instance_metric(struct instance *i, const char *name)
{
    struct buf text = BUF_INIT;
    char label[96];
    uint64_t value = UINT64_MAX;
    snprintf(label, sizeof(label), "\n%s ", name);
    sink_metrics_put(i->sink, &text);
    buf_putc(&text, '\0');
    (void)number_behind(&text, label, &value);
    buf_deinit(&text);
    return value;
}
