/* Building over a real queue log, on the simulator's disk. */
#include "sink/lake_internal.h"

#include "unit/sink/lake_fixture.h"

#include "base/mem.h"
#include "lib/prng.h"
#include "sim/sim_disk.h"

#include <fcntl.h>
#include <unistd.h>

#define RUN_RECORDS_MAX 8
#define INDEX_PLENTY (64u << 20)

/* A log and, record by record, what was appended to it. */
struct world {
    struct disk *disk;
    struct qlog_set *set;
    struct qlog *log;
    struct model_record {
        char partition[40];
        uint64_t id, offset;
        int64_t stamp;
        char transaction_id[24];
        char payload[80];
    } * records;
    size_t n, cap;
};

static void world_init(struct world *w, uint64_t segment_bytes)
{
    struct error error;
    *w = (struct world){.disk = sim_disk_new(1)};
    CHECK_EQ(qlog_set_open(&(struct qlog_set_options){.disk = w->disk,
                                                      .dir = "qlog",
                                                      .segment_bytes = segment_bytes,
                                                      .handles_max = 4},
                           &w->set, &error),
             ERR_OK);
    CHECK_EQ(qlog_create(w->set, 1, &w->log, &error), ERR_OK);
}

static void world_deinit(struct world *w)
{
    qlog_set_close(w->set);
    sim_disk_free(w->disk);
    mem_free(w->records);
}

static struct model_record *model_add(struct world *w)
{
    if (w->n == w->cap) {
        w->cap = w->cap == 0 ? 64 : 2 * w->cap;
        w->records = mem_grow(w->records, w->cap * sizeof(*w->records));
    }
    memset(&w->records[w->n], 0, sizeof(*w->records));
    return &w->records[w->n++];
}

/* Appends a run of `count` generated records; returns its position. */
static uint64_t append(struct world *w, const char *partition, uint64_t id, uint64_t first,
                       int64_t stamp, uint32_t count)
{
    struct qlog_record records[RUN_RECORDS_MAX];
    ASSERT(count <= RUN_RECORDS_MAX);
    size_t start = w->n;
    for (uint32_t i = 0; i < count; i++) {
        struct model_record *m = model_add(w);
        (void)snprintf(m->partition, sizeof(m->partition), "%s", partition);
        m->id = id;
        m->offset = first + i;
        m->stamp = stamp;
        (void)snprintf(m->transaction_id, sizeof(m->transaction_id), "t-%llu-%llu",
                       (unsigned long long)id, (unsigned long long)m->offset);
        (void)snprintf(m->payload, sizeof(m->payload), "{\"n\":%zu,\n\"s\":\"%s\"}", w->n,
                       w->n % 3 == 0 ? "\\ud800" : "x");
    }
    for (uint32_t i = 0; i < count; i++)
        records[i] =
            (struct qlog_record){.transaction_id = span_str(w->records[start + i].transaction_id),
                                 .payload = span_str(w->records[start + i].payload)};
    struct error error;
    uint64_t position;
    CHECK_EQ(qlog_append(w->log,
                         &(struct qlog_run){.partition_id = id,
                                            .partition = span_str(partition),
                                            .first_offset = first,
                                            .stamp = stamp,
                                            .records = records,
                                            .count = count},
                         &position, &error),
             ERR_OK);
    return position;
}

static int compare_records(const void *a, const void *b)
{
    const struct model_record *x = *(const struct model_record *const *)a;
    const struct model_record *y = *(const struct model_record *const *)b;
    int order = strcmp(x->partition, y->partition);
    if (order != 0)
        return order;
    if (x->stamp != y->stamp)
        return x->stamp < y->stamp ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What the window must hold, from the model alone. */
static struct buf expected(const struct world *w, int64_t t_start, int64_t t_end, uint64_t *count,
                           uint64_t *partitions, uint64_t *quoted)
{
    struct model_record **sorted = MEM_ARRAY(struct model_record *, w->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < w->n; i++) {
        if (w->records[i].stamp >= t_start && w->records[i].stamp < t_end)
            sorted[n++] = &w->records[i];
    }
    if (n > 0)
        qsort(sorted, n, sizeof(*sorted), compare_records);
    struct buf out = BUF_INIT;
    *count = n;
    *partitions = *quoted = 0;
    for (size_t i = 0; i < n; i++) {
        bool was_quoted;
        *partitions += i == 0 || strcmp(sorted[i]->partition, sorted[i - 1]->partition) != 0;
        lake_jsonl_line(&out,
                        &(struct lake_record){
                            .partition = span_str(sorted[i]->partition),
                            .offset = sorted[i]->offset,
                            .transaction_id = span_str(sorted[i]->transaction_id),
                            .stamp = sorted[i]->stamp,
                            .payload = span_str(sorted[i]->payload),
                        },
                        false, &was_quoted);
        *quoted += was_quoted;
    }
    mem_free(sorted);
    return out;
}

/* The bytes of an object, from memory or from its file; owned. */
static struct buf bytes_of(const struct lake_object *o)
{
    struct buf out = BUF_INIT;
    if (o->fd < 0) {
        buf_put_span(&out, buf_span(&o->bytes));
        CHECK_EQ(out.len, o->size);
        return out;
    }
    CHECK_EQ(pread(o->fd, buf_extend(&out, o->size + 1), o->size + 1, 0), o->size);
    out.len--;
    return out;
}

static struct lake_build_options options_of(struct world *w, const struct lake_window *window)
{
    return (struct lake_build_options){
        .window = window,
        .log = w->log,
        .index_bytes_max = INDEX_PLENTY,
        .memory_max = 64u << 20,
        .spool_dir = "/tmp",
    };
}

/* Builds and compares with the model; returns what the build did. */
static struct lake_build_stats check_build(struct world *w,
                                           const struct lake_build_options *options)
{
    struct lake_object o = {.fd = -1};
    struct lake_build_stats stats;
    struct error error;
    CHECK_EQ(lake_build_counted(options, &o, &stats, &error), ERR_OK);
    const struct lake_window *window = options->window;
    uint64_t records, partitions, quoted;
    struct buf text = expected(w, window->t_start, window->t_end, &records, &partitions, &quoted);
    struct buf want = compressed(window->spec.compression, buf_span(&text), 10000);
    struct buf got = bytes_of(&o);
    CHECK_EQ(got.len, want.len);
    CHECK(span_eq(buf_span(&got), buf_span(&want)));
    CHECK_EQ(o.size, want.len);
    CHECK_EQ(o.records, records);
    CHECK_EQ(o.partitions, partitions);
    CHECK_EQ(o.quoted, quoted);
    uint8_t digest[SHA256_SIZE];
    sha256(buf_span(&want), digest);
    CHECK(memcmp(digest, o.sha256, SHA256_SIZE) == 0);
    buf_deinit(&text);
    buf_deinit(&want);
    buf_deinit(&got);
    lake_object_deinit(&o);
    return stats;
}

static void append_guide(struct qlog *log)
{
    struct error error;
    for (unsigned p = 0; p < 2; p++) {
        struct qlog_record records[2];
        uint32_t n = 0;
        for (unsigned i = 2 * p; i < 2 + p; i++)
            records[n++] =
                (struct qlog_record){.transaction_id = span_str(guide_records[i].transaction_id),
                                     .payload = span_str(guide_records[i].payload)};
        struct qlog_run run = {.partition_id = 10 + p,
                               .partition = span_str(guide_records[2 * p].partition),
                               .stamp = GUIDE_STAMP,
                               .records = records,
                               .count = n};
        CHECK_EQ(qlog_append(log, &run, NULL, &error), ERR_OK);
    }
}

/* The golden vector of the whole product: the guide's push, its window, its 207 bytes. */
TEST(the_guides_object_comes_out_of_a_queue_log)
{
    struct world w;
    struct error error;
    struct lake_object o = {.fd = -1};
    world_init(&w, 1u << 20);
    append_guide(w.log);
    struct lake_window window = guide_window();
    struct lake_build_options options = options_of(&w, &window);
    CHECK_EQ(lake_build(&options, &o, &error), ERR_OK);
    CHECK_EQ(o.fd, -1);
    CHECK_EQ(o.size, 207);
    CHECK_EQ(o.records, 3);
    CHECK_EQ(o.partitions, 2);
    CHECK_EQ(o.quoted, 0);
    CHECK_EQ(o.min_ts, GUIDE_STAMP);
    CHECK_EQ(o.max_ts, GUIDE_STAMP);
    check_sha256(buf_span(&o.bytes), GUIDE_SHA256);
    struct buf want = golden("guide_object.jsonl.zst");
    CHECK_SPAN(buf_span(&o.bytes), buf_span(&want));
    buf_deinit(&want);
    lake_object_deinit(&o);
    world_deinit(&w);
}

TEST(a_window_without_records_is_an_empty_text)
{
    struct world w;
    world_init(&w, 1u << 20);
    struct lake_window window = guide_window();
    struct lake_build_options options = options_of(&w, &window);
    for (int c = SINK_ZSTD; c <= SINK_NONE; c++) {
        window.spec.compression = (enum sink_compression)c;
        (void)check_build(&w, &options);
    }
    (void)append(&w, "p", 1, 0, GUIDE_T_END, 1); /* just behind */
    (void)check_build(&w, &options);
    world_deinit(&w);
}

/* t_start <= stamp < t_end, found by stamp or within any superset of positions. */
TEST(bounds_are_half_open)
{
    struct world w;
    uint64_t at[12];
    world_init(&w, 400); /* a segment every few runs */
    for (int64_t i = 0; i < 12; i++)
        at[i] = append(&w, i % 2 == 0 ? "b" : "a", (uint64_t)(1 + i % 2), (uint64_t)(i / 2) * 2,
                       100 + 10 * i, 2);
    for (int64_t start = 95; start <= 215; start += 5) {
        for (int64_t end = start; end <= 225; end += 5) {
            struct lake_window window = guide_window();
            window.spec.compression = SINK_NONE;
            window.t_start = start;
            window.t_end = end;
            struct lake_build_options options = options_of(&w, &window);
            (void)check_build(&w, &options);
            /* The same from positions: everything, and as tight as it may be. */
            options.to = qlog_end(w.log);
            (void)check_build(&w, &options);
            size_t first = start <= 100 ? 0 : (size_t)((start - 100 + 9) / 10);
            size_t last = end <= 100 ? 0 : (size_t)((end - 100 + 9) / 10);
            options.from = first < 12 ? at[first] : qlog_end(w.log);
            options.to = last < 12 ? at[last] : qlog_end(w.log);
            if (options.to != 0)
                (void)check_build(&w, &options);
            options.to = UINT64_MAX; /* beyond the end */
            (void)check_build(&w, &options);
        }
    }
    world_deinit(&w);
}

/* objects.md 3: the older incarnation first, both under one name, counted once. */
TEST(two_incarnations_are_ordered_by_stamp)
{
    static const uint64_t bounds[] = {0, 150, 400, INDEX_PLENTY};
    struct world w;
    world_init(&w, 1u << 20);
    (void)append(&w, "p", 9, 100, 1, 3);
    (void)append(&w, "a", 4, 0, 2, 1);
    (void)append(&w, "p", 9, 103, 3, 2);
    (void)append(&w, "p", 3, 0, 4, 2); /* re-created: a new id, offsets from 0 */
    (void)append(&w, "z", 5, 0, 5, 1);
    (void)append(&w, "p", 3, 2, 6, 1);
    struct lake_window window = guide_window();
    window.spec.compression = SINK_NONE;
    window.t_start = 0;
    window.t_end = 100;
    struct lake_build_options options = options_of(&w, &window);
    for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
        options.index_bytes_max = bounds[i];
        (void)check_build(&w, &options);
    }
    world_deinit(&w);
}

/* Pushes over partitions that come, go and come again; stamps rise from push to push. */
static void append_random(struct world *w, struct prng *p, unsigned pushes, unsigned partitions)
{
    uint64_t *ids = MEM_ARRAY(uint64_t, partitions);
    uint64_t *next = MEM_ARRAY(uint64_t, partitions);
    uint64_t last_id = 0;
    int64_t stamp = 1000;
    for (unsigned i = 0; i < pushes; i++) {
        stamp += 1 + (int64_t)prng_below(p, 20);
        unsigned runs = 1 + (unsigned)prng_below(p, 4);
        unsigned first = (unsigned)prng_below(p, partitions);
        for (unsigned r = 0; r < runs && r < partitions; r++) {
            unsigned at = (first + r) % partitions;
            if (prng_chance(p, 60))
                at = first == 0 || r > 0 ? at : 0; /* one partition gets most */
            char name[40];
            /* Names of one length and of many, with bytes above 0x7F, prefixes of one another. */
            (void)snprintf(name, sizeof(name), at % 3 == 0 ? "cust-%u" : "%u\xC3\xA8%u", at * 7919u,
                           at);
            if (ids[at] == 0 || prng_chance(p, 1)) {
                ids[at] = ++last_id;
                next[at] = 0;
            }
            uint32_t count = 1 + (uint32_t)prng_below(p, RUN_RECORDS_MAX);
            (void)append(w, name, ids[at], next[at], stamp, count);
            next[at] += count;
            stamp += at == 0; /* the same partition twice in a push would share its stamp */
        }
    }
    mem_free(ids);
    mem_free(next);
}

/* Goal: the bytes do not depend on the index's bound, and the bound is kept. Method: random logs,
 * bounds from nothing to plenty, against the model. */
TEST(any_bound_of_the_index_gives_the_same_bytes)
{
    static const uint64_t bounds[] = {0, 1, 200, 1000, 3000, 10000, 100000, INDEX_PLENTY};
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct world w;
        struct prng p;
        prng_init(&p, seed);
        world_init(&w, 2000 + prng_below(&p, 20000));
        append_random(&w, &p, 150, 1 + (unsigned)prng_below(&p, 60));
        struct lake_window window = guide_window();
        window.spec.compression = (enum sink_compression)(seed % 3);
        window.t_start = 1000 + (int64_t)prng_below(&p, 400);
        window.t_end = 2200 + (int64_t)prng_below(&p, 1000);
        struct lake_build_options options = options_of(&w, &window);
        uint64_t passes = UINT64_MAX;
        for (size_t i = 0; i < sizeof(bounds) / sizeof(bounds[0]); i++) {
            options.index_bytes_max = bounds[i];
            struct lake_build_stats stats = check_build(&w, &options);
            CHECK(stats.passes <= passes); /* more memory never costs more passes */
            passes = stats.passes;
            /* One name is always taken, whatever its parts need. */
            CHECK(stats.index_bytes_max <= bounds[i] || bounds[i] < 3000);
        }
        CHECK_EQ(passes, 1);
        world_deinit(&w);
    }
}

TEST(a_huge_partition_is_streamed)
{
    struct world w;
    world_init(&w, 1u << 20);
    int64_t stamp = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        (void)append(&w, "huge", 2, 2 * i, ++stamp, 2);
        if (i % 10 == 0)
            (void)append(&w, "before", 1, i / 10, ++stamp, 1);
        if (i % 10 == 5)
            (void)append(&w, "later", 3, i / 10, ++stamp, 1);
    }
    struct lake_window window = guide_window();
    window.t_start = 0;
    window.t_end = stamp + 1;
    struct lake_build_options options = options_of(&w, &window);
    options.index_bytes_max = 8000; /* 300 runs fit, 3,000 do not */
    struct lake_build_stats stats = check_build(&w, &options);
    CHECK_EQ(stats.streamed, 1);
    CHECK_EQ(stats.passes, 3);
    CHECK(stats.index_bytes_max <= 8000);
    options.index_bytes_max = INDEX_PLENTY;
    CHECK_EQ(check_build(&w, &options).streamed, 0);
    world_deinit(&w);
}

TEST(ten_thousand_partitions)
{
    struct world w;
    world_init(&w, 8u << 20);
    int64_t stamp = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 10000; i++) {
            char name[40];
            (void)snprintf(name, sizeof(name), "customer-%05u", (i * 7919) % 10000);
            (void)append(&w, name, 1 + i, round, ++stamp, 1);
        }
    }
    struct lake_window window = guide_window();
    window.t_start = 0;
    window.t_end = stamp + 1;
    struct lake_build_options options = options_of(&w, &window);
    CHECK_EQ(check_build(&w, &options).passes, 1);
    options.index_bytes_max = 1u << 20;
    struct lake_build_stats stats = check_build(&w, &options);
    CHECK(stats.passes > 1 && stats.passes < 6);
    CHECK(stats.index_bytes_max <= 1u << 20);
    world_deinit(&w);
}

/* Goal: bytes beyond memory_max are in a file, and are the same bytes. */
TEST(a_large_object_goes_to_a_file)
{
    static const uint64_t limits[] = {0, 1, 1000, 65536};
    struct world w;
    struct prng p;
    prng_init(&p, 5);
    world_init(&w, 1u << 20);
    append_random(&w, &p, 3000, 20);
    struct lake_window window = guide_window();
    window.spec.compression = SINK_NONE; /* more than one flush of the spool */
    window.t_start = 0;
    window.t_end = INT64_MAX;
    struct lake_build_options options = options_of(&w, &window);
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
        struct lake_object o = {.fd = -1};
        struct error error;
        options.memory_max = limits[i];
        CHECK_EQ(lake_build(&options, &o, &error), ERR_OK);
        CHECK(o.fd >= 0);
        CHECK_EQ(o.bytes.len, 0);
        CHECK(o.size > 1u << 20);
        lake_object_deinit(&o);
        (void)check_build(&w, &options);
    }
    world_deinit(&w);
}

TEST(a_spool_that_cannot_be_opened_is_an_error)
{
    struct world w;
    struct lake_object o = {.fd = -1, .size = 77};
    struct error error;
    world_init(&w, 1u << 20);
    append_guide(w.log);
    struct lake_window window = guide_window();
    struct lake_build_options options = options_of(&w, &window);
    options.memory_max = 0;
    options.spool_dir = "/nonexistent/queen";
    CHECK_EQ(lake_build(&options, &o, &error), ERR_AGAIN);
    CHECK(strstr(error.text, "/nonexistent/queen") != NULL);
    CHECK_EQ(o.size, 77);
    world_deinit(&w);
}

TEST(cancelling_stops_the_build)
{
    struct world w;
    struct lake_object o = {.fd = -1, .size = 77};
    struct error error;
    atomic_bool cancel = true;
    world_init(&w, 1u << 20);
    append_guide(w.log);
    struct lake_window window = guide_window();
    struct lake_build_options options = options_of(&w, &window);
    options.cancel = &cancel;
    CHECK_EQ(lake_build(&options, &o, &error), ERR_STOPPED);
    CHECK_EQ(o.size, 77);
    cancel = false;
    CHECK_EQ(lake_build(&options, &o, &error), ERR_OK);
    lake_object_deinit(&o);
    world_deinit(&w);
}

/* Goal: a read error of the log is handed on, nothing leaks. Method: the n-th read fails, for every
 * n. */
TEST(every_failing_read_is_handed_on)
{
    struct world w;
    struct prng p;
    prng_init(&p, 9);
    world_init(&w, 3000);
    append_random(&w, &p, 60, 10);
    struct lake_window window = guide_window();
    window.t_start = 0;
    window.t_end = INT64_MAX;
    struct lake_build_options options = options_of(&w, &window);
    options.memory_max = 100;
    options.index_bytes_max = 1500;
    for (uint64_t n = 0;; n += 7) {
        struct lake_object o = {.fd = -1, .size = 77};
        struct error error;
        sim_disk_fail_next(w.disk, SIM_DISK_READ, ERR_IO, n);
        enum err err = lake_build(&options, &o, &error);
        if (err == ERR_OK) {
            CHECK(n > 20);
            lake_object_deinit(&o);
            break;
        }
        CHECK_EQ(err, ERR_IO);
        CHECK_EQ(o.size, 77);
    }
    world_deinit(&w);
}

/* Retention may be faster than the redo: what is left is built. */
TEST(a_trimmed_log_gives_what_is_left)
{
    struct world w;
    struct error error;
    world_init(&w, 600);
    uint64_t cut = 0;
    for (uint64_t i = 0; i < 30; i++) {
        uint64_t at = append(&w, "p", 1, i, (int64_t)i, 1);
        if (i == 20)
            cut = at;
    }
    CHECK_EQ(qlog_trim(w.log, cut, &error), ERR_OK);
    uint64_t start = qlog_start(w.log);
    CHECK(start > 0);
    struct qlog_run_data data = {0};
    CHECK_EQ(qlog_read(w.log, start, &data, &error), ERR_OK);
    size_t gone = (size_t)data.head.first_offset;
    qlog_run_data_deinit(&data);
    memmove(w.records, w.records + gone, (w.n - gone) * sizeof(*w.records));
    w.n -= gone;
    struct lake_window window = guide_window();
    window.t_start = 0;
    window.t_end = 100;
    struct lake_build_options options = options_of(&w, &window);
    (void)check_build(&w, &options);
    options.from = 0;
    options.to = qlog_end(w.log);
    (void)check_build(&w, &options);
    world_deinit(&w);
}

TEST_MAIN()
