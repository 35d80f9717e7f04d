/* Deduplication (decisions.md 23): exact within the window, whatever sweeps and window changes do.
 */
#include "broker/dedup.h"

#include "lib/prng.h"
#include "store/state_format.h"
#include "unit/broker/rig.h"

#define SEC US_PER_SEC

static size_t row_count(struct state *s)
{
    size_t n = 0;
    struct state_iter *it = state_iter_new(s, SPAN_LIT("D"), SPAN_LIT(""));
    for (; state_iter_valid(it) && state_iter_key(it).ptr[0] == 'D'; state_iter_next(it))
        n++;
    state_iter_free(it);
    return n;
}

TEST(the_window_ends_exactly)
{
    static const int32_t windows[] = {1, 60, 1023, 1024, 1025, 3600, 86400, 31536000, INT32_MAX};
    for (size_t i = 0; i < sizeof(windows) / sizeof(windows[0]); i++) {
        struct rig r;
        rig_open(&r);
        rig_set_window(&r, 1, "q", windows[i]);
        (void)rig_push_one(&r, 1, "q", "p", "a");
        int64_t window = windows[i] * SEC;
        (void)rig_push_one(&r, window - 1, "q", "p", "b");
        CHECK_EQ(rig_push_one(&r, 1, "q", "p", "a").status, PUSH_DUPLICATE);
        (void)rig_push_one(&r, window - 1, "q", "p", "c");
        CHECK_EQ(rig_push_one(&r, 1, "q", "p", "b").status, PUSH_QUEUED);
        rig_close(&r);
    }
}

TEST(the_newest_of_several_rows_answers)
{
    struct rig r;
    rig_open(&r);
    rig_set_window(&r, 1, "q", 200);
    (void)rig_push_one(&r, 1, "q", "p", "a");
    CHECK_EQ(rig_push_one(&r, 250 * SEC, "q", "p", "a").offset, 1);
    CHECK_EQ(rig_push_one(&r, 100 * SEC, "q", "p", "a").offset, 1);
    CHECK_EQ(rig_push_one(&r, 101 * SEC, "q", "p", "a").offset, 2);
    rig_close(&r);
}

TEST(a_raised_window_reaches_back_to_where_the_old_one_began)
{
    for (unsigned sweep = 0; sweep < 2; sweep++) {
        struct rig r;
        rig_open(&r);
        rig_set_window(&r, 1, "q", 600);
        (void)rig_push_one(&r, 1, "q", "p", "old");
        (void)rig_push_one(&r, 10 * SEC, "q", "p", "new");
        if (sweep)
            dedup_sweep(r.s, r.clock);
        rig_set_window(&r, 595 * SEC, "q", 1000000);
        for (unsigned i = 0; i < 20; i++) { /* far beyond the old class */
            CHECK_EQ(rig_push_one(&r, 5000 * SEC, "q", "p", "new").status, PUSH_DUPLICATE);
            if (sweep) {
                dedup_sweep(r.s, r.clock);
                rig_reopen(&r);
            }
        }
        CHECK_EQ(rig_push_one(&r, 1, "q", "p", "old").status, PUSH_QUEUED);
        rig_close(&r);
    }
}

TEST(a_window_of_zero_keeps_and_finds_nothing)
{
    struct rig r;
    rig_open(&r);
    (void)rig_push_one(&r, 1, "q", "p", "a");
    rig_set_window(&r, 1, "q", 0);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "a").status, PUSH_QUEUED);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "a").status, PUSH_QUEUED);
    rig_set_window(&r, 1, "q", 3600);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "a").status, PUSH_QUEUED);
    CHECK_EQ(rig_push_one(&r, 1, "q", "p", "a").status, PUSH_DUPLICATE);
    CHECK_EQ(row_count(r.s), 1); /* the last push, in the place of the first */
    rig_close(&r);
}

TEST(a_sweep_leaves_nothing_of_the_past)
{
    struct rig r;
    rig_open(&r);
    rig_set_window(&r, 1, "a", 600);
    rig_set_window(&r, 1, "b", 100000);
    for (unsigned i = 0; i < 100; i++) {
        (void)rig_push_one(&r, 10 * SEC, "a", "p", NULL);
        (void)rig_push_one(&r, 10 * SEC, "b", "p", NULL);
    }
    dedup_sweep(r.s, r.clock);
    CHECK(row_count(r.s) > 100 + 600 / 20);
    CHECK(row_count(r.s) < 100 + 50); /* 600 s of a, rounded up to buckets of 128 s */
    (void)rig_push_one(&r, 200000 * SEC, "a", "p", NULL);
    dedup_sweep(r.s, r.clock);
    CHECK_EQ(row_count(r.s), 1);
    (void)rig_delete(&r, "a");
    (void)rig_push_one(&r, 2000 * SEC, "b", "p", NULL);
    dedup_sweep(r.s, r.clock);
    CHECK_EQ(row_count(r.s), 1);
    rig_reopen(&r);
    CHECK_EQ(row_count(r.s), 1);
    rig_close(&r);
}

/* --- against a plain model --- */

enum { QUEUES = 3, IDS = 12, HISTORY = 3000 };

struct model_row {
    unsigned queue, id;
    int64_t stamp;
    uint64_t offset;
};

struct model {
    struct model_row rows[HISTORY];
    size_t n;
    int32_t window[QUEUES];
    int64_t floor[QUEUES];
};

static const char *const queue_names[QUEUES] = {"a", "b", "c"};

static void model_window(struct model *m, unsigned queue, int32_t window, int64_t now)
{
    int64_t from = now - m->window[queue] * SEC;
    if (window > m->window[queue] && from > m->floor[queue])
        m->floor[queue] = from;
    m->window[queue] = window;
}

static const struct model_row *model_find(const struct model *m, unsigned queue, unsigned id,
                                          int64_t now)
{
    for (size_t i = m->n; i-- > 0;) {
        const struct model_row *row = &m->rows[i];
        if (row->queue == queue && row->id == id)
            return m->window[queue] != 0 && row->stamp >= now - m->window[queue] * SEC &&
                           row->stamp >= m->floor[queue]
                       ? row
                       : NULL;
    }
    return NULL;
}

static void model_push(struct model *m, struct rig *r, unsigned queue, unsigned id, int64_t us)
{
    char text[8];
    (void)snprintf(text, sizeof(text), "%u", id);
    struct push_item_result got = rig_push_one(r, us, queue_names[queue], "p", text);
    const struct model_row *want = model_find(m, queue, id, r->clock);
    CHECK_EQ(got.status, want != NULL ? PUSH_DUPLICATE : PUSH_QUEUED);
    if (want != NULL)
        CHECK_EQ(got.offset, want->offset);
    else if (m->window[queue] != 0)
        m->rows[m->n++] = (struct model_row){queue, id, r->clock, got.offset};
}

static int64_t random_step(struct prng *rng)
{
    static const int64_t steps[] = {1,         SEC,        20 * SEC,   130 * SEC,
                                    500 * SEC, 3000 * SEC, 40000 * SEC};
    return steps[prng_below(rng, 7)] + (int64_t)prng_below(rng, 3);
}

static void model_run(uint64_t seed)
{
    static const int32_t windows[] = {0, 1, 100, 1000, 1024, 1025, 3600, 20000, 100000, 1000000};
    struct model *m = mem_new(sizeof(*m));
    struct prng rng;
    struct rig r;
    rig_open(&r);
    prng_init(&rng, seed);
    for (unsigned i = 0; i < QUEUES; i++) {
        m->window[i] = 3600;
        rig_set_window(&r, 1, queue_names[i], 3600);
    }
    for (unsigned i = 0; i < HISTORY; i++) {
        unsigned queue = (unsigned)prng_below(&rng, QUEUES), choice;
        choice = (unsigned)prng_below(&rng, 100);
        if (choice < 4) {
            int32_t window = windows[prng_below(&rng, 10)];
            rig_set_window(&r, random_step(&rng), queue_names[queue], window);
            model_window(m, queue, window, r.clock);
        } else if (choice < 10) {
            dedup_sweep(r.s, r.clock);
        } else if (choice < 11) {
            rig_reopen(&r);
        } else {
            model_push(m, &r, queue, (unsigned)prng_below(&rng, IDS),
                       prng_chance(&rng, 70) ? 1 : random_step(&rng));
        }
    }
    rig_close(&r);
    mem_free(m);
}

TEST(random_windows_and_sweeps_agree_with_a_plain_model)
{
    for (uint64_t seed = 1; seed <= 20; seed++)
        model_run(seed);
}

TEST_MAIN()
