/* Checkpoints over a whole restart (objects.md 9, decisions.md 11): with one fewer bytes of the log
 * are read, and whatever stands in one, the lake is the same. */
#include "unit/sink/sink_fixture.h"

#include "broker/configure.h"
#include "lib/counted_disk.h"
#include "sink/lake.h"

#define LAKE "queen/tenant=00000000-0000-0000-0000-000000000001/queue=orders/"
#define CHECKPOINTS                                                                                \
    "queen/_queen/tenant=00000000-0000-0000-0000-000000000001/queue=orders/checkpoint/"
#define MANIFESTS "queen/_queen/tenant=00000000-0000-0000-0000-000000000001/queue=orders/windows/"
#define PARTITIONS 5

static struct buf checkpoint_key(uint64_t k)
{
    struct buf key = BUF_INIT;
    buf_printf(&key, CHECKPOINTS "%010llu.json.zst", (unsigned long long)k);
    return key;
}

static bool has_checkpoint(struct world *w, uint64_t k, struct omap_row *row)
{
    struct buf key = checkpoint_key(k);
    bool has = omap_get(w->objects, buf_span(&key), row);
    buf_deinit(&key);
    return has;
}

static void put_checkpoint(struct world *w, uint64_t k, struct span bytes)
{
    struct buf key = checkpoint_key(k);
    omap_put(w->objects, buf_span(&key), bytes);
    buf_deinit(&key);
}

static void erase_checkpoint(struct world *w, uint64_t k)
{
    struct buf key = checkpoint_key(k);
    omap_erase(w->objects, buf_span(&key));
    buf_deinit(&key);
}

/* "a:1 b:7" of a checkpoint that is there. */
static char *positions_of(struct world *w, uint64_t k)
{
    struct omap_row row;
    struct lake_checkpoint c;
    struct buf text = BUF_INIT;
    CHECK(has_checkpoint(w, k, &row));
    CHECK_EQ(lake_checkpoint_parse(row.value, &c), ERR_OK);
    CHECK_EQ(c.k, k);
    for (size_t i = 0; i < c.n; i++) {
        buf_printf(&text, "%s" SPAN_FMT ":%llu", i > 0 ? " " : "", SPAN_ARG(c.rows[i].partition),
                   (unsigned long long)c.rows[i].next_offset);
        CHECK(c.rows[i].has_id);
    }
    buf_putc(&text, '\0');
    lake_checkpoint_deinit(&c);
    return (char *)text.ptr;
}

#define CHECK_POSITIONS(w, k, expected)                                                            \
    do {                                                                                           \
        char *positions_ = positions_of(w, k);                                                     \
        CHECK_TEXT(span_str(positions_), expected);                                                \
        free(positions_);                                                                          \
    } while (0)

static void push_some(struct world *w, struct prng *rng, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        char name[8];
        (void)snprintf(name, sizeof(name), "p%u", (unsigned)prng_below(rng, PARTITIONS));
        push_size(w, "orders", name, 200 + prng_below(rng, 600));
    }
}

static const char *const EVERY_WINDOW[] = {"QUEEN_S3_CHECKPOINT_EVERY", "1", NULL};
static const char *const NO_FURTHER_ONES[] = {"QUEEN_S3_CHECKPOINT_EVERY", "1000", NULL};
static const char *const STOPS_IN_A_WINDOW[] = {"QUEEN_S3_CHECKPOINT_EVERY", "1",
                                                "QUEEN_S3_CRASH_AT", "after_intent", NULL};

/* Two windows are committed; the second ends inside a segment that is sealed by what is pushed then,
 * with no sink. With `redo` a third one is open. */
static void world_before_restart(struct world *w, uint64_t seed, bool redo)
{
    struct prng rng;
    prng_init(&rng, seed);
    world_init(w, seed);
    start_sink(w, 0, EVERY_WINDOW);
    push_some(w, &rng, 150);
    pass(w, 15 * SEC);
    push_some(w, &rng, 60 + (unsigned)prng_below(&rng, 40));
    pass(w, 15 * SEC);
    reboot(w);
    if (redo) {
        push_some(w, &rng, 200); /* so that the next window begins in another segment */
        start_sink(w, 0, STOPS_IN_A_WINDOW);
        pass(w, 15 * SEC);
        CHECK_EQ(w->crashed, SINK_CRASH_AFTER_INTENT);
        reboot(w);
    }
    push_some(w, &rng, 320);
}

/* The sink starts and ships what there is, and writes no checkpoint that would have to look back;
 * returns the bytes that were read for it. */
static uint64_t restart(struct world *w)
{
    struct counted_disk counted;
    counted_disk_begin(&counted, w->disk);
    start_sink(w, 0, NO_FURTHER_ONES);
    pass(w, 30 * SEC);
    counted_disk_end(&counted, w->disk);
    return counted.bytes_read;
}

/* Names, order and content of all data objects. */
static void digest_lake(struct world *w, uint8_t out[SHA256_SIZE])
{
    struct omap_row row;
    struct buf all = BUF_INIT, from = BUF_INIT;
    size_t n = 0;
    buf_puts(&from, LAKE);
    while (omap_seek(w->objects, buf_span(&from), true, &row) &&
           span_starts_with(row.key, span_str(LAKE))) {
        buf_put_span(&all, row.key);
        buf_put_span(&all, row.value);
        buf_reset(&from);
        buf_put_span(&from, row.key);
        n++;
    }
    CHECK(n >= 3);
    sha256(buf_span(&all), out);
    buf_deinit(&from);
    buf_deinit(&all);
}

/* Goal: a checkpoint is used to begin reading late.
 * Method: the same restart with the checkpoint of the last window, and without any. */
TEST(fewer_bytes_are_read_with_a_checkpoint)
{
    for (unsigned redo = 0; redo < 2; redo++) {
        uint64_t with_all = 0, without_all = 0;
        for (uint64_t seed = 1; seed <= 10; seed++) {
            struct world w;
            struct omap_row row;
            uint8_t with_digest[SHA256_SIZE], without_digest[SHA256_SIZE];
            world_before_restart(&w, seed, redo);
            CHECK(has_checkpoint(&w, 2, &row));
            uint64_t with = restart(&w);
            STATUS(&w, 0, redo ? "\"k\":4," : "\"k\":3,");
            digest_lake(&w, with_digest);
            world_deinit(&w);

            world_before_restart(&w, seed, redo);
            erase_checkpoint(&w, 1);
            erase_checkpoint(&w, 2);
            uint64_t without = restart(&w);
            digest_lake(&w, without_digest);
            world_deinit(&w);
            CHECK_EQ(memcmp(with_digest, without_digest, SHA256_SIZE), 0);
            with_all += with;
            without_all += without;
            /* Where the window ended next to a segment's beginning, the look was in vain: blocks of
             * its index, for the build of an open window too. */
            CHECK(with <= without + 4 * 4096);
        }
        CHECK(with_all < without_all);
    }
}

/* --- whatever stands in one --- */

static struct uuid other_id(struct prng *rng)
{
    struct uuid id;
    for (size_t i = 0; i < sizeof(id.bytes); i++)
        id.bytes[i] = (uint8_t)prng_u64(rng);
    return id;
}

static uint64_t other_offset(struct prng *rng)
{
    switch (prng_below(rng, 6)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    default:
        return prng_below(rng, 130); /* below, at and above the end of the last window */
    }
}

enum damage {
    DAMAGE_NONE,
    DAMAGE_BITS,
    DAMAGE_CUT,
    DAMAGE_NO_CHECKPOINT, /* other bytes altogether */
    DAMAGE_OFFSETS,
    DAMAGE_IDS,
    DAMAGE_NO_IDS,
    DAMAGE_NAMES,
    DAMAGE_K,
    DAMAGE_T_END,
    DAMAGES,
};

static void damage_bytes(struct prng *rng, enum damage damage, struct buf *bytes)
{
    switch (damage) {
    case DAMAGE_BITS:
        bytes->ptr[prng_below(rng, bytes->len)] ^= (uint8_t)(1u << prng_below(rng, 8));
        break;
    case DAMAGE_CUT:
        bytes->len = prng_below(rng, bytes->len);
        break;
    case DAMAGE_NO_CHECKPOINT:
        buf_reset(bytes);
        for (uint64_t n = prng_below(rng, 200); n > 0; n--)
            buf_putc(bytes, (uint8_t)prng_u64(rng));
        break;
    default:
        break;
    }
}

static void damage_rows(struct prng *rng, enum damage damage, struct lake_checkpoint *c)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "q", ""};
    for (size_t i = 0; i < c->n; i++) {
        struct lake_checkpoint_row *row = &c->rows[i];
        if (damage == DAMAGE_OFFSETS || damage == DAMAGE_NO_IDS)
            row->next_offset = other_offset(rng);
        if (damage == DAMAGE_IDS)
            row->id = other_id(rng);
        if (damage == DAMAGE_NO_IDS)
            row->has_id = false;
        if (damage == DAMAGE_NAMES)
            row->partition = span_str(names[prng_below(rng, 7)]);
    }
    if (damage == DAMAGE_K)
        c->k = prng_chance(rng, 50) ? prng_below(rng, 5) : prng_u64(rng) >> 1;
    if (damage == DAMAGE_T_END)
        c->t_end = prng_chance(rng, 50) ? c->t_end + (int64_t)prng_below(rng, 40) * SEC - 20 * SEC
                                        : (int64_t)prng_u64(rng);
}

static void damage_checkpoint(struct world *w, struct prng *rng, uint64_t k, enum damage damage)
{
    struct omap_row row;
    struct lake_checkpoint c;
    struct buf bytes = BUF_INIT;
    CHECK(has_checkpoint(w, k, &row));
    CHECK_EQ(lake_checkpoint_parse(row.value, &c), ERR_OK);
    CHECK_EQ(c.n, PARTITIONS);
    damage_rows(rng, damage, &c);
    lake_checkpoint_put(&bytes, c.k, c.t_end, c.rows, c.n);
    damage_bytes(rng, damage, &bytes);
    put_checkpoint(w, k, buf_span(&bytes));
    buf_deinit(&bytes);
    lake_checkpoint_deinit(&c);
}

/* Goal: a wrong checkpoint never costs a record, nor ships one twice.
 * Method: the newest one, or the only one that is left, is damaged before the restart; the lake must
 * be what it is with none. */
TEST(no_damage_to_a_checkpoint_changes_the_lake)
{
    for (uint64_t seed = 1; seed <= 24; seed++) {
        bool redo = seed % 2 == 0;
        uint64_t k = seed % 3 == 0 ? 1 : 2;
        uint8_t right[SHA256_SIZE], got[SHA256_SIZE];
        for (enum damage damage = DAMAGE_NONE; damage < DAMAGES; damage++) {
            struct world w;
            struct prng rng;
            prng_init(&rng, seed * DAMAGES + damage);
            world_before_restart(&w, seed, redo);
            if (k == 1 || damage == DAMAGE_NONE)
                erase_checkpoint(&w, 2);
            if (damage == DAMAGE_NONE)
                erase_checkpoint(&w, 1);
            else
                damage_checkpoint(&w, &rng, k, damage);
            (void)restart(&w);
            STATUS(&w, 0, redo ? "\"k\":4," : "\"k\":3,");
            digest_lake(&w, damage == DAMAGE_NONE ? right : got);
            if (damage != DAMAGE_NONE)
                CHECK_EQ(memcmp(right, got, SHA256_SIZE), 0);
            world_deinit(&w);
        }
    }
}

/* --- the queue was made again --- */

static void delete_queue(struct world *w)
{
    bool done = false;
    struct node_request r = {.type = COMMAND_QUEUE_DELETE, .done = push_done, .ctx = &done};
    queue_delete_encode(&r.body, &TENANT_DEFAULT, SPAN_LIT("orders"));
    node_submit(w->node, &r);
    settle(w);
    CHECK(done);
    node_request_deinit(&r);
}

static size_t lines_in_lake(struct world *w)
{
    struct omap_row row;
    struct buf from = BUF_INIT;
    size_t n = 0;
    buf_puts(&from, LAKE);
    while (omap_seek(w->objects, buf_span(&from), true, &row) &&
           span_starts_with(row.key, span_str(LAKE))) {
        for (size_t i = 0; i < row.value.len; i++)
            n += row.value.ptr[i] == '\n';
        buf_reset(&from);
        buf_put_span(&from, row.key);
    }
    buf_deinit(&from);
    return n;
}

/* Goal: a checkpoint of a queue that was deleted does not reach into its successor, whose partitions
 * have the same names and lower offsets. */
TEST(a_checkpoint_of_a_deleted_queue_is_of_no_use_and_no_harm)
{
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct world w;
        struct prng rng;
        prng_init(&rng, seed);
        world_init(&w, seed);
        start_sink(&w, 0, EVERY_WINDOW);
        push_some(&w, &rng, 100);
        pass(&w, 15 * SEC);
        CHECK_EQ(lines_in_lake(&w), 100);
        reboot(&w);
        delete_queue(&w);
        push_some(&w, &rng, 1 + (unsigned)prng_below(&rng, 250));
        size_t pushed = w.pushes;
        (void)restart(&w);
        STATUS(&w, 0, "\"k\":2,");
        CHECK_EQ(lines_in_lake(&w), pushed);
        world_deinit(&w);
    }
}

/* --- what the next one holds --- */

static void window_of(struct world *w, const char *partition)
{
    push_size(w, "orders", partition, 3);
    pass(w, 15 * SEC);
}

/* Four windows of one partition each, a checkpoint every second one; behind the third the sink
 * starts again. */
static void world_of_four_windows(struct world *w, uint64_t seed,
                                  void (*meanwhile)(struct world *w))
{
    world_init(w, seed);
    start_sink(w, 0, NULL);
    window_of(w, "a");
    window_of(w, "b");
    window_of(w, "c");
    CHECK_POSITIONS(w, 2, "a:1 b:1");
    reboot(w);
    meanwhile(w);
    start_sink(w, 0, NULL);
    window_of(w, "d");
    STATUS(w, 0, "\"k\":4,");
}

static void nothing(struct world *w)
{
    (void)w;
}

static void lose_it(struct world *w)
{
    erase_checkpoint(w, 2);
}

static void spoil_it(struct world *w)
{
    put_checkpoint(w, 2, SPAN_LIT("x"));
}

static void lose_the_manifest_too(struct world *w)
{
    erase_checkpoint(w, 2);
    omap_erase(w->objects, SPAN_LIT(MANIFESTS "0000000001.json"));
}

/* Goal: over restarts every checkpoint names what was written since the one before. */
TEST(the_next_checkpoint_holds_what_was_written_since_the_last)
{
    static const struct {
        void (*meanwhile)(struct world *w);
        const char *positions;
    } cases[] = {
        {nothing, "c:1 d:1"},
        {spoil_it, "c:1 d:1"},          /* it is there, for others to read */
        {lose_it, "a:1 b:1 c:1 d:1"},   /* none was written as far as anybody can see */
        {lose_the_manifest_too, "d:1"}, /* nothing tells where the first window began */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        world_of_four_windows(&w, i, cases[i].meanwhile);
        CHECK_POSITIONS(&w, 4, cases[i].positions);
        world_deinit(&w);
    }
}

TEST_MAIN()
