/* Queue logs under several threads: one appends, others read, one trims. For ThreadSanitizer, and
 * to see that a reader never meets half a run. */
#include "base/mem.h"
#include "io/pool.h"
#include "unit/store/qlog_fixture.h"

#include <stdatomic.h>

#define PARTITIONS 5u
#define RUNS 4000u
#define READERS 3u

struct shared {
    struct qlog *q;
    bool trims;
    atomic_bool stop;
    atomic_uint failures;
    atomic_uint_least64_t reads;
};

struct reader {
    struct shared *shared;
    uint64_t seed;
};

static void report(struct shared *s, const char *what, const struct error *error)
{
    print_error("%s: %s\n", what, error != NULL ? error->text : "");
    atomic_fetch_add(&s->failures, 1);
}

/* Run i: partition i % PARTITIONS, offset i / PARTITIONS, stamp i, a payload that says i. */
static enum err append(struct qlog *q, uint64_t i, struct error *error)
{
    uint8_t payload[200];
    memset(payload, (int)(i & 0xff), sizeof(payload));
    struct qlog_record record = {.transaction_id = SPAN_LIT("t"),
                                 .payload = span_make(payload, i % sizeof(payload))};
    struct qlog_run run = {.partition_id = i % PARTITIONS,
                           .partition = SPAN_LIT("name"),
                           .first_offset = i / PARTITIONS,
                           .stamp = (int64_t)i,
                           .records = &record,
                           .count = 1};
    return qlog_append(q, &run, NULL, error);
}

static bool head_right(const struct qlog_run_head *h)
{
    uint64_t i = (uint64_t)h->stamp;
    return h->count == 1 && h->partition_id == i % PARTITIONS && h->first_offset == i / PARTITIONS;
}

/* ERR_NOT_FOUND is right only where retention runs. */
static bool survived(struct shared *s, enum err err, const char *what, const struct error *error)
{
    if (err == ERR_OK)
        return true;
    if (!s->trims || err != ERR_NOT_FOUND)
        report(s, what, error);
    return false;
}

static bool read_one(struct shared *s, uint64_t position, struct qlog_run_data *data)
{
    struct error error;
    if (!survived(s, qlog_read(s->q, position, data, &error), "read", &error))
        return false;
    uint64_t i = (uint64_t)data->head.stamp;
    bool right = head_right(&data->head) && data->records[0].payload.len == i % 200;
    for (size_t at = 0; right && at < data->records[0].payload.len; at++)
        right = data->records[0].payload.ptr[at] == (i & 0xff);
    if (!right)
        report(s, "wrong run", NULL);
    atomic_fetch_add(&s->reads, 1);
    return true;
}

/* Stamps and partitions of runs that were there when the end was seen. */
static void seek_one(struct shared *s, uint64_t i, struct qlog_run_data *data)
{
    struct error error;
    uint64_t position;
    if (survived(s, qlog_seek_stamp(s->q, (int64_t)i, &position, &error), "seek", &error))
        (void)read_one(s, position, data);
    if (survived(s, qlog_find(s->q, i % PARTITIONS, i / PARTITIONS, &position, &error), "find",
                 &error) &&
        read_one(s, position, data)) {
        if (data->head.partition_id != i % PARTITIONS ||
            (!s->trims && data->head.first_offset != i / PARTITIONS))
            report(s, "found a wrong run", NULL);
    }
}

static void read_all(void *ctx)
{
    const struct reader *r = ctx;
    struct shared *s = r->shared;
    struct qlog_run_data data = {0};
    struct prng rng;
    prng_init(&rng, r->seed);
    uint64_t position = 0;
    uint64_t expected = 0; /* stamp of the next run, without retention */
    while (!atomic_load(&s->stop)) {
        struct qlog_run_head heads[64];
        struct error error;
        size_t n;
        uint64_t end = qlog_end(s->q);
        enum err err =
            qlog_scan(s->q, position, end, heads, 1 + prng_below(&rng, 64), &n, &position, &error);
        if (!survived(s, err, "scan", &error)) {
            position = qlog_start(s->q);
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            if (!head_right(&heads[i]) || (!s->trims && (uint64_t)heads[i].stamp != expected++))
                report(s, "wrong head", NULL);
        }
        if (n > 0) {
            (void)read_one(s, heads[prng_below(&rng, n)].position, &data);
            seek_one(s, prng_below(&rng, (uint64_t)heads[n - 1].stamp + 1), &data);
        }
        if (position == end && prng_chance(&rng, 10)) {
            position = s->trims ? qlog_start(s->q) : 0;
            expected = 0;
        }
    }
    qlog_run_data_deinit(&data);
}

static void trim_all(void *ctx)
{
    struct shared *s = ctx;
    while (!atomic_load(&s->stop)) {
        struct error error;
        uint64_t start = qlog_start(s->q);
        uint64_t end = qlog_end(s->q);
        if (qlog_trim(s->q, start + (end - start) / 2, &error) != ERR_OK)
            report(s, "trim", &error);
    }
}

static void run(bool real, bool trims)
{
    struct fixture f;
    struct thread *threads[READERS + 1] = {NULL};
    struct reader readers[READERS];
    fixture_init(&f, real, 20000);
    struct shared s = {.q = f.q, .trims = trims};
    for (unsigned i = 0; i < READERS; i++) {
        readers[i] = (struct reader){&s, i + 1};
        threads[i] = thread_start("reader", read_all, &readers[i]);
    }
    if (trims)
        threads[READERS] = thread_start("trim", trim_all, &s);
    for (uint64_t i = 0; i < RUNS; i++)
        CHECK_EQ(append(f.q, i, &f.error), ERR_OK);
    while (atomic_load(&s.reads) < 1000)
        usleep(1000);
    atomic_store(&s.stop, true);
    for (unsigned i = 0; i <= READERS; i++)
        thread_join(threads[i]);
    CHECK_EQ(atomic_load(&s.failures), 0);
    fixture_deinit(&f);
}

TEST(readers_see_whole_runs_while_one_appends)
{
    run(true, false);
    run(false, false);
}

TEST(retention_may_run_beside_readers_and_the_appender)
{
    run(true, true);
    run(false, true);
}

/* Follows the log from run to run by searches for the next stamp, which mostly is not there yet.
 * Run i is the one behind run i - 1, so its place is known before. */
static void seek_all(void *ctx)
{
    struct shared *s = ctx;
    uint64_t position = 0;
    for (int64_t stamp = 0; stamp < RUNS;) {
        struct qlog_run_head head;
        struct error error;
        uint64_t found, next;
        size_t n = 0;
        enum err err = qlog_seek_stamp(s->q, stamp, &found, &error);
        if (err == ERR_OK && found < qlog_end(s->q))
            err = qlog_scan(s->q, found, qlog_end(s->q), &head, 1, &n, &next, &error);
        if (err != ERR_OK || found != position) {
            report(s, err == ERR_OK ? "a search passed a run" : "seek", &error);
            return;
        }
        if (n == 0)
            continue;
        if (head.stamp != stamp)
            report(s, "a search found a wrong run", NULL);
        position = next;
        stamp++;
    }
}

/* Goal: a search for a stamp that is just being appended never passes its run. */
TEST(a_search_by_stamp_never_passes_a_run)
{
    for (unsigned round = 0; round < 5; round++) {
        struct fixture f;
        struct shared s = {0};
        fixture_init(&f, false, 100000);
        s.q = f.q;
        struct thread *reader = thread_start("seek", seek_all, &s);
        for (uint64_t i = 0; i < RUNS; i++)
            CHECK_EQ(append(f.q, i, &f.error), ERR_OK);
        thread_join(reader);
        CHECK_EQ(atomic_load(&s.failures), 0);
        fixture_deinit(&f);
    }
}

TEST_MAIN()
