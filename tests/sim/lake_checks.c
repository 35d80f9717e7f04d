/* A lake that somebody else writes too (docs/architecture.md, The sink): a second broker under the
 * same prefix, an older copy of the data. The queue fails, and nothing is written over. And which
 * windows a drain closes. */
#include "sim/story.h"

#include "base/pct.h"
#include "sink/lake.h"

#include <stdio.h>

#define RETRY (60 * US_PER_SEC) /* of a queue that failed */

static void manifest_key(struct buf *out, unsigned queue, uint64_t k)
{
    const struct lake_spec spec = {.prefix = SPAN_LIT("queen"),
                                   .tenant = SPAN_LIT("00000000-0000-0000-0000-000000000001"),
                                   .queue = span_str(world_queue_names[queue]),
                                   .segment_max = 1024};
    buf_reset(out);
    lake_key_manifest(out, &spec, k);
}

/* The first queue's window 1 again, as window k. */
static void put_foreign(struct story *s, uint64_t k)
{
    struct omap_row row;
    struct buf key = BUF_INIT, bytes = BUF_INIT;
    manifest_key(&key, 0, 1);
    if (omap_get(s->w->store.objects, buf_span(&key), &row))
        buf_put_span(&bytes, row.value);
    else
        world_fail(s->w, "window 1 has no manifest");
    manifest_key(&key, 0, k);
    omap_put(s->w->store.objects, buf_span(&key), buf_span(&bytes));
    world_trace(s->w, "somebody else writes window %llu", (unsigned long long)k);
    buf_deinit(&key);
    buf_deinit(&bytes);
}

static void erase_foreign(struct story *s, uint64_t k)
{
    struct buf key = BUF_INIT;
    manifest_key(&key, 0, k);
    omap_erase(s->w->store.objects, buf_span(&key));
    buf_deinit(&key);
}

static bool first_is_committed(const struct story *s)
{
    return s->w->watched[0].committed_k > s->committed_before;
}

static bool window_is_open(const struct story *s)
{
    const struct watched_queue *q = &s->w->watched[0];
    return q->intent_k > q->committed_k;
}

static bool failed(const struct story *s)
{
    return instance_status_has(s->a, "\"state\":\"failed\"");
}

static void one_queue(struct story *s)
{
    s->w->queues = 1;
    story_open(s);
    world_push(s->w, 0, 3);
    story_start(s, s->a);
    story_expect(s, TTL, first_is_committed, "window 1 after");
}

static void dead_for_a_while(struct story *s)
{
    story_kill(s, s->a);
    story_run_for(s, US_PER_SEC);
}

/* It fails for as long as that stands there, and goes on by itself when it was taken away. */
static void expect_untouched(struct story *s, uint64_t k)
{
    struct world *w = s->w;
    uint64_t puts = w->store.puts, committed = w->watched[0].committed_k;
    world_push(w, 0, 3);
    story_start(s, s->a);
    story_expect(s, 2 * TTL, failed, "failed after");
    story_run_for(s, 3 * RETRY);
    if (w->result->ok && (w->store.puts != puts || w->watched[0].committed_k != committed))
        world_fail(w, "a foreign lake was written over");
    if (w->result->ok && !instance_status_has(s->a, "QUEEN_S3_PREFIX"))
        world_fail(w, "the error does not name the way out");
    erase_foreign(s, k);
    story_end(s);
}

/* No window of ours is open: whatever stands in the next one's place is somebody else's. */
static void foreign_next(struct story *s)
{
    one_queue(s);
    dead_for_a_while(s);
    uint64_t k = s->w->watched[0].committed_k + 1;
    put_foreign(s, k);
    expect_untouched(s, k);
}

/* A window of ours is open, and the manifest in its place has other bounds. */
static void foreign_open(struct story *s)
{
    struct world *w = s->w;
    one_queue(s);
    w->store.outage = OUTAGE_503;
    world_push(w, 0, 3);
    story_expect(s, TTL, window_is_open, "window 2 open after");
    dead_for_a_while(s);
    w->store.outage = OUTAGE_NONE;
    uint64_t k = w->watched[0].intent_k;
    put_foreign(s, k);
    expect_untouched(s, k);
}

/* The data of an hour ago, behind a lake that went on: every record of it is known to be there. */
static void older_copy(struct story *s)
{
    struct world *w = s->w;
    one_queue(s);
    struct disk *disk = sim_disk_copy(w->disk, w->options->seed);
    struct sim_db_state *db = sim_db_state_copy(w->db_state);
    for (unsigned i = 0; i < 3; i++) {
        s->committed_before = w->watched[0].committed_k;
        world_push(w, 0, 3);
        story_expect(s, TTL, first_is_committed, "one more after");
    }
    world_drop(w);
    sim_disk_crash(w->disk, &w->prng);
    sim_disk_free(w->disk);
    sim_db_state_free(w->db_state);
    w->disk = disk;
    w->db_state = db;
    w->unwatched = true; /* to the watch it goes back in time */
    struct error error = {0};
    if (world_try_open_node(w, &error) != ERR_OK)
        world_fail(w, "the copy does not open: %s", error.text);
    uint64_t puts = w->store.puts;
    world_push(w, 0, 3);
    story_start(s, s->a);
    story_expect(s, 2 * TTL, failed, "failed after");
    story_run_for(s, 3 * RETRY);
    if (w->store.puts != puts)
        world_fail(w, "a lake was written over by an older copy of its data");
}

/* --- drains --- */

static bool drained(const struct story *s)
{
    return !instance_alive(s->a);
}

static void push_and_drain(struct story *s, int64_t age, bool closes)
{
    struct world *w = s->w;
    uint64_t before = w->watched[0].committed_k;
    world_push(w, 0, 3);
    story_run_for(s, age);
    if (w->result->ok && w->watched[0].committed_k != before)
        world_fail(w, "the window is not open any more");
    story_drain(s, s->a);
    story_expect(s, TTL, drained, "drained after");
    bool closed = w->watched[0].committed_k != before;
    if (w->result->ok && closed != closes)
        world_fail(w, "a drain closed=%d the window of records %lld s old", closed,
                   (long long)(age / US_PER_SEC));
}

/* Young records stay in the log, old ones go to the lake (spec/sink.md 18). */
static void drain_closes(struct story *s)
{
    s->w->setup.window_ms = 120000;
    s->w->setup.align = "none"; /* no hour ends meanwhile */
    s->w->setup.ttl_ms = 3000;  /* refreshes move the clock: the records are seen */
    one_queue(s);
    push_and_drain(s, 4 * US_PER_SEC, false);
    story_start(s, s->a);
    story_run_for(s, 3 * US_PER_SEC);
    push_and_drain(s, 20 * US_PER_SEC, true);
    story_start(s, s->a);
    story_end(s);
}

static const struct check checks[] = {
    {"foreign-next", CHECK_LAKE, foreign_next},
    {"foreign-open", CHECK_LAKE, foreign_open},
    {"older-copy", CHECK_LAKE, older_copy},
    {"drain-closes", CHECK_LAKE, drain_closes},
};

const struct check_list lake_checks = {checks, sizeof(checks) / sizeof(checks[0])};
