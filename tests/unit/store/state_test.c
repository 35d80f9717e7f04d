/* The replicated state: tables, rows, checkpoints.
 *
 * The random test drives one state with checkpoints, failures, crashes and reopenings, and a second
 * one with the same entries and nothing else, and compares their digests; rows are compared with a
 * plain ordered map as well. */
#include "store/state.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "lib/prng.h"
#include "lib/test.h"
#include "sim/sim_db.h"
#include "store/state_format.h"

#include <pthread.h>

static const struct uuid cluster = {{1, 2, 3}};

static struct state *open_state(struct sim_db_state *durable)
{
    struct state *s = NULL;
    struct error error = {0};
    enum err err = state_open(sim_db_new(durable), &cluster, &s, &error);
    if (err != ERR_OK)
        print_error("state_open: %s\n", error.text);
    CHECK_EQ(err, ERR_OK);
    return s;
}

static bool same_digest(struct state *a, struct state *b)
{
    uint8_t da[32], db[32];
    state_digest(a, da);
    state_digest(b, db);
    return memcmp(da, db, sizeof(da)) == 0;
}

/* One whole checkpoint; err: what the database answers. */
static void checkpoint(struct state *s)
{
    struct db *db = state_db(s);
    state_write_lock(s);
    state_freeze(s);
    state_write_unlock(s);
    struct db_batch *batch = db->ops->batch_new(db);
    CHECK_EQ(state_frozen_write(s, batch, NULL), ERR_OK);
    CHECK_EQ(db->ops->batch_write(db, batch, NULL), ERR_OK);
    db->ops->batch_free(batch);
    state_frozen_done(s);
}

static struct queue *make_queue(struct state *s, const char *name)
{
    const struct uuid uuid = {{9}};
    const struct queue_options options = {.lease_time = 60, .retention_sink_hold = "hold"};
    return state_queue_create(s, &TENANT_DEFAULT, span_str(name), &uuid, 1000, &options);
}

static struct partition *make_partition(struct state *s, struct queue *q, const char *name)
{
    const struct uuid uuid = {{7}};
    return state_partition_create(s, q, span_str(name), &uuid, 2000);
}

/* --- tables --- */

TEST(a_queue_is_found_by_name_and_id_and_by_nothing_else)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    const struct tenant_id other = {{5}};
    struct queue *q = make_queue(s, "orders");
    CHECK_EQ(q->id, 1);
    CHECK(state_queue_find(s, &TENANT_DEFAULT, SPAN_LIT("orders")) == q);
    CHECK(state_queue_by_id(s, 1) == q);
    CHECK(state_queue_find(s, &other, SPAN_LIT("orders")) == NULL);
    CHECK(state_queue_find(s, &TENANT_DEFAULT, SPAN_LIT("order")) == NULL);
    CHECK(state_queue_by_id(s, 2) == NULL);
    CHECK_EQ(state_queue_count(s), 1);
    state_close(s);
    sim_db_state_free(durable);
}

TEST(queues_are_listed_by_tenant_and_name)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct queue **list;
    (void)make_queue(s, "b");
    (void)make_queue(s, "ab");
    (void)make_queue(s, "a");
    CHECK_EQ(state_queue_list(s, &TENANT_DEFAULT, &list), 3);
    CHECK_TEXT(list[0]->name, "a");
    CHECK_TEXT(list[1]->name, "ab");
    CHECK_TEXT(list[2]->name, "b");
    mem_free(list);
    state_close(s);
    sim_db_state_free(durable);
}

/* Goal: the table finds each of many partitions, also after growing, reloading and reaping. */
TEST(many_partitions_are_found_after_growth_and_reload)
{
    enum { COUNT = 30000 };
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct queue *a = make_queue(s, "a"), *b = make_queue(s, "b");
    for (unsigned i = 0; i < COUNT; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "p%u", i);
        (void)make_partition(s, a, name);
        if (i % 3 == 0)
            (void)make_partition(s, b, name);
    }
    for (unsigned round = 0; round < 2; round++) {
        CHECK_EQ(state_partition_count(s), COUNT + COUNT / 3);
        for (unsigned i = 0; i < COUNT; i++) {
            char name[32];
            (void)snprintf(name, sizeof(name), "p%u", i);
            struct partition *p = state_partition_find(s, a, span_str(name));
            CHECK(p != NULL);
            CHECK(p == a->partitions[i]);
            CHECK((state_partition_find(s, b, span_str(name)) != NULL) == (i % 3 == 0));
        }
        CHECK(state_partition_find(s, a, SPAN_LIT("p30000")) == NULL);
        checkpoint(s);
        state_close(s);
        s = open_state(durable);
        a = state_queue_by_id(s, 1);
        b = state_queue_by_id(s, 2);
    }
    state_queue_delete(s, a);
    CHECK_EQ(state_partition_count(s), COUNT / 3);
    while (state_reap(s, 1000))
        continue;
    CHECK(state_partition_find(s, b, SPAN_LIT("p29997")) != NULL);
    checkpoint(s);
    CHECK_EQ(sim_db_state_rows(durable), 1 + 1 + COUNT / 3); /* meta, one queue, its partitions */
    state_close(s);
    sim_db_state_free(durable);
}

TEST(every_field_survives_a_reload)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct state_meta *m = state_meta(s);
    struct queue *q = make_queue(s, "orders");
    struct partition *p = make_partition(s, q, "p");
    int32_t *ints = &q->options.lease_time; /* the integers lie side by side */
    for (int i = 0; i < 14; i++)
        ints[i] = 100 + i;
    q->options.retention_enabled = q->options.dead_letter_queue = true;
    state_queue_set_labels(s, q, SPAN_LIT("ns"), SPAN_LIT("task"));
    q->last_write_at = 5;
    q->dedup_floor = 6;
    q->log_length = 7;
    q->log_start = 8;
    q->dedup_classes = 1u << 12 | 1u << 31;
    q->dedup_until[2] = 99;
    p->next_offset = 14;
    p->log_start = 12;
    p->log_bytes = 15;
    p->last_write_at = 13;
    m->applied = 21;
    m->term = 22;
    m->last_clock = 23;
    m->last_count = 24;
    m->max_stamp = 25;
    m->kv_version = 26;
    checkpoint(s);
    struct state *again = open_state(durable);
    CHECK(same_digest(s, again));
    CHECK(memcmp(state_meta(again), m, sizeof(*m)) == 0);
    struct queue *r = state_queue_find(again, &TENANT_DEFAULT, SPAN_LIT("orders"));
    for (int i = 0; i < 14; i++)
        CHECK_EQ((&r->options.lease_time)[i], 100 + i);
    CHECK(r->options.retention_enabled && r->options.dead_letter_queue);
    CHECK(!r->options.encryption_enabled && !r->options.dlq_after_max_retries);
    CHECK(strcmp(r->options.retention_sink_hold, "hold") == 0);
    CHECK_TEXT(r->namespace_, "ns");
    CHECK_TEXT(r->task, "task");
    CHECK_EQ(r->dedup_until[2], 99);
    CHECK_EQ(r->partitions[0]->log_start, 12);
    CHECK_EQ(r->partitions[0]->log_bytes, 15);
    CHECK_EQ(r->records, 2); /* counted from the partitions */
    state_close(again);
    state_close(s);
    sim_db_state_free(durable);
}

TEST(the_cluster_id_of_the_founding_stays)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    const struct uuid other = {{42}};
    state_close(s);
    CHECK_EQ(state_open(sim_db_new(durable), &other, &s, NULL), ERR_OK);
    CHECK(memcmp(&state_meta(s)->cluster, &cluster, sizeof(cluster)) == 0);
    state_close(s);
    sim_db_state_free(durable);
}

/* --- deletion and pins --- */

TEST(a_deleted_name_is_free_at_once_and_its_queue_reported_freed)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct state_freed *freed;
    struct queue *q = make_queue(s, "orders");
    (void)make_partition(s, q, "p");
    state_meta(s)->applied = 5;
    state_queue_delete(s, q);
    CHECK(state_queue_find(s, &TENANT_DEFAULT, SPAN_LIT("orders")) == NULL);
    CHECK(state_queue_by_id(s, 1) == NULL);
    q = make_queue(s, "orders");
    CHECK_EQ(q->id, 2);
    CHECK(state_partition_find(s, q, SPAN_LIT("p")) == NULL);
    CHECK_EQ(state_take_freed(s, &freed), 1);
    CHECK_EQ(freed[0].queue_id, 1);
    CHECK_EQ(freed[0].index, 5);
    mem_free(freed);
    CHECK_EQ(state_take_freed(s, &freed), 0);
    CHECK(!state_reap(s, 100));
    state_close(s);
    sim_db_state_free(durable);
}

TEST(a_pinned_queue_stays_by_id_until_its_last_pin_ends)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct state_freed *freed;
    struct queue *q = make_queue(s, "orders");
    (void)make_partition(s, q, "p");
    state_pin_set(s, &TENANT_DEFAULT, SPAN_LIT("a"), 1, 10, 20);
    state_pin_set(s, &TENANT_DEFAULT, SPAN_LIT("b"), 1, 20, 30);
    state_pin_set(s, &TENANT_DEFAULT, SPAN_LIT("a"), 1, 15, 25); /* replaces */
    CHECK_EQ(q->pins, 2);
    state_queue_delete(s, q);
    CHECK(state_queue_by_id(s, 1) == q);
    CHECK(q->dead);
    checkpoint(s);
    state_close(s);
    CHECK_EQ(sim_db_state_rows(durable), 4); /* meta, queue, two pins: no partition */

    s = open_state(durable);
    q = state_queue_by_id(s, 1);
    CHECK(q != NULL && q->dead);
    CHECK(state_queue_find(s, &TENANT_DEFAULT, SPAN_LIT("orders")) == NULL);
    CHECK_EQ(state_pin_find(s, &TENANT_DEFAULT, SPAN_LIT("a"))->t_start, 15);
    state_pin_remove(s, &TENANT_DEFAULT, SPAN_LIT("a"));
    CHECK_EQ(state_take_freed(s, &freed), 0);
    state_pin_remove(s, &TENANT_DEFAULT, SPAN_LIT("b"));
    CHECK_EQ(state_take_freed(s, &freed), 1);
    mem_free(freed);
    CHECK(state_queue_by_id(s, 1) == NULL);
    checkpoint(s);
    CHECK_EQ(sim_db_state_rows(durable), 1);
    state_close(s);
    sim_db_state_free(durable);
}

TEST(a_pin_moves_from_queue_to_queue)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    const struct pin **list;
    struct queue *a = make_queue(s, "a"), *b = make_queue(s, "b");
    state_pin_set(s, &TENANT_DEFAULT, SPAN_LIT("k"), a->id, 1, 2);
    state_queue_delete(s, a);
    state_pin_set(s, &TENANT_DEFAULT, SPAN_LIT("k"), b->id, 3, 4);
    CHECK(state_queue_by_id(s, 1) == NULL);
    CHECK_EQ(b->pins, 1);
    CHECK_EQ(state_pin_list(s, &list), 1);
    CHECK_EQ(list[0]->queue_id, 2);
    mem_free(list);
    state_close(s);
    sim_db_state_free(durable);
}

/* --- deletion around a freeze --- */

/* Goal: a queue deleted after the freeze is written as it was; a crash then brings it back, and the
 * next checkpoint removes it. */
TEST(a_queue_deleted_after_the_freeze_is_in_the_batch)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct db *db = state_db(s);
    struct queue *q = make_queue(s, "orders");
    struct partition *p = make_partition(s, q, "p");
    (void)make_partition(s, q, "untouched");
    p->next_offset = 3;
    state_freeze(s);
    state_partition_touch(s, p);
    p->next_offset = 4;
    state_queue_delete(s, q);
    CHECK(!state_reap(s, 10));
    struct db_batch *batch = db->ops->batch_new(db);
    CHECK_EQ(state_frozen_write(s, batch, NULL), ERR_OK);
    CHECK_EQ(db->ops->batch_write(db, batch, NULL), ERR_OK);
    db->ops->batch_free(batch);
    struct state *then = open_state(durable);
    CHECK_EQ(state_partition_count(then), 2);
    q = state_queue_by_id(then, 1);
    CHECK(q != NULL && !q->dead);
    CHECK_EQ(q->partitions[0]->next_offset, 3);
    state_close(then);
    state_frozen_done(s);
    checkpoint(s);
    CHECK_EQ(sim_db_state_rows(durable), 1);
    state_close(s);
    sim_db_state_free(durable);
}

TEST(a_failed_checkpoint_merges_back)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct queue *q = make_queue(s, "orders"), *gone = make_queue(s, "gone");
    struct partition *p = make_partition(s, q, "p");
    (void)make_partition(s, gone, "x");
    checkpoint(s);
    state_partition_touch(s, p);
    p->next_offset = 1;
    state_queue_delete(s, gone);
    state_row_put(s, SPAN_LIT("D1"), SPAN_LIT("one"));
    state_row_put(s, SPAN_LIT("D2"), SPAN_LIT("two"));
    state_row_put(s, SPAN_LIT("D3"), SPAN_LIT("three"));
    state_freeze(s);
    state_rows_drop(s, SPAN_LIT("D2"), SPAN_LIT("D3"));
    state_row_put(s, SPAN_LIT("D3"), SPAN_LIT("3"));
    state_frozen_failed(s);
    CHECK(!state_reap(s, 10));
    checkpoint(s);
    struct state *again = open_state(durable);
    struct buf value = BUF_INIT;
    CHECK(same_digest(s, again));
    CHECK_EQ(state_queue_by_id(again, 1)->partitions[0]->next_offset, 1);
    CHECK_EQ(state_row_get(again, SPAN_LIT("D1"), &value, NULL), ERR_OK);
    CHECK_EQ(state_row_get(again, SPAN_LIT("D2"), &value, NULL), ERR_NOT_FOUND);
    CHECK_EQ(state_row_get(again, SPAN_LIT("D3"), &value, NULL), ERR_OK);
    CHECK_TEXT(buf_span(&value), "one3");
    CHECK_EQ(sim_db_state_rows(durable), 5); /* meta, queue, partition, D1, D3 */
    buf_deinit(&value);
    state_close(again);
    state_close(s);
    sim_db_state_free(durable);
}

/* --- random histories --- */

enum { NAMES = 6, PARTITIONS = 12, ROWS = 40, PIN_KEYS = 4 };

static struct span name_of(char *text, size_t size, char prefix, uint64_t i)
{
    int len = snprintf(text, size, "%c%llu", prefix, (unsigned long long)i);
    return span_make(text, (size_t)len);
}

static struct queue *random_queue(struct state *s, struct prng *rng)
{
    char text[24];
    return state_queue_find(s, &TENANT_DEFAULT,
                            name_of(text, sizeof(text), 'q', prng_below(rng, NAMES)));
}

static void op_create(struct state *s, struct prng *rng)
{
    char text[24];
    struct span name = name_of(text, sizeof(text), 'q', prng_below(rng, NAMES));
    if (state_queue_find(s, &TENANT_DEFAULT, name) == NULL)
        (void)make_queue(s, text);
}

static void op_push(struct state *s, struct prng *rng)
{
    char text[24];
    struct queue *q = random_queue(s, rng);
    uint64_t partition = prng_below(rng, PARTITIONS), count = prng_below(rng, 3);
    if (q == NULL)
        return;
    struct span name = name_of(text, sizeof(text), 'p', partition);
    struct partition *p = state_partition_find(s, q, name);
    if (p == NULL)
        p = make_partition(s, q, text);
    if (count == 0)
        return;
    state_queue_touch(s, q);
    state_partition_touch(s, p);
    p->next_offset += count;
    q->log_length += 100 * count;
}

static void op_pin(struct state *s, struct prng *rng)
{
    char text[24];
    struct queue *q = random_queue(s, rng);
    struct span key = name_of(text, sizeof(text), 'k', prng_below(rng, PIN_KEYS));
    if (q != NULL && prng_chance(rng, 60))
        state_pin_set(s, &TENANT_DEFAULT, key, q->id, (int64_t)prng_below(rng, 100), 100);
    else
        state_pin_remove(s, &TENANT_DEFAULT, key);
}

static void row_key(struct prng *rng, struct buf *key)
{
    buf_reset(key);
    buf_putc(key, prng_chance(rng, 50) ? STATE_KIND_KV : STATE_KIND_DEDUP);
    buf_put_padded(key, prng_below(rng, ROWS), 2);
}

/* rows: the plain model, NULL where it is not wanted. */
static void op_row(struct state *s, struct prng *rng, struct omap *rows)
{
    struct buf key = BUF_INIT, to = BUF_INIT, value = BUF_INIT;
    struct omap_row row;
    row_key(rng, &key);
    unsigned choice = (unsigned)prng_below(rng, 10);
    if (choice < 6) {
        buf_put_u64(&value, prng_u64(rng));
        state_row_put(s, buf_span(&key), buf_span(&value));
        if (rows != NULL)
            omap_put(rows, buf_span(&key), buf_span(&value));
    } else if (choice < 9) {
        state_row_delete(s, buf_span(&key));
        if (rows != NULL)
            omap_erase(rows, buf_span(&key));
    } else {
        row_key(rng, &to);
        state_rows_drop(s, buf_span(&key), buf_span(&to));
        while (rows != NULL && omap_seek(rows, buf_span(&key), false, &row) &&
               span_cmp(row.key, buf_span(&to)) < 0)
            omap_erase(rows, row.key);
    }
    buf_deinit(&key);
    buf_deinit(&to);
    buf_deinit(&value);
}

static void apply_entry(struct state *s, uint64_t seed, uint64_t index, struct omap *rows)
{
    struct prng rng;
    prng_init(&rng, seed + index * 7919);
    state_write_lock(s);
    struct state_meta *m = state_meta(s);
    m->applied = index;
    m->last_clock = (int64_t)index * 1000;
    m->last_count = (uint32_t)prng_below(&rng, 6);
    for (uint32_t i = 0; i < m->last_count; i++) {
        unsigned choice = (unsigned)prng_below(&rng, 100);
        struct queue *q;
        if (choice < 15)
            op_create(s, &rng);
        else if (choice < 22 && (q = random_queue(s, &rng)) != NULL)
            state_queue_delete(s, q);
        else if (choice < 55)
            op_push(s, &rng);
        else if (choice < 65)
            op_pin(s, &rng);
        else if (choice < 68 && (q = random_queue(s, &rng)) != NULL)
            state_queue_set_labels(s, q, q->name, SPAN_LIT("t"));
        else
            op_row(s, &rng, rows);
    }
    state_write_unlock(s);
}

/* Every key there could be, found exactly when the model has it. */
static void compare_absent(struct state *s, const struct omap *rows)
{
    static const char kinds[] = {STATE_KIND_DEDUP, STATE_KIND_KV};
    struct buf key = BUF_INIT, value = BUF_INIT;
    struct omap_row row;
    for (unsigned i = 0; i < ROWS * sizeof(kinds); i++) {
        buf_reset(&key);
        buf_putc(&key, (uint8_t)kinds[i % sizeof(kinds)]);
        buf_put_padded(&key, i / sizeof(kinds), 2);
        bool found = state_row_get(s, buf_span(&key), &value, NULL) == ERR_OK;
        CHECK_EQ(found, omap_get(rows, buf_span(&key), &row));
    }
    buf_deinit(&key);
    buf_deinit(&value);
}

static void compare_rows(struct state *s, const struct omap *rows)
{
    struct omap_row row;
    struct buf value = BUF_INIT;
    static const char kinds[] = {STATE_KIND_DEDUP, STATE_KIND_KV};
    state_read_lock(s);
    for (unsigned i = 0; i < sizeof(kinds); i++) {
        struct span first = span_make(&kinds[i], 1);
        struct state_iter *it = state_iter_new(s, first, SPAN_LIT(""));
        bool more = omap_seek(rows, first, false, &row);
        for (; state_iter_valid(it) && state_iter_key(it).ptr[0] == first.ptr[0];
             state_iter_next(it)) {
            CHECK(more);
            CHECK_SPAN(state_iter_key(it), row.key);
            CHECK_SPAN(state_iter_value(it), row.value);
            buf_reset(&value);
            CHECK_EQ(state_row_get(s, row.key, &value, NULL), ERR_OK);
            CHECK_SPAN(buf_span(&value), row.value);
            more = omap_seek(rows, row.key, true, &row);
        }
        CHECK(!more || row.key.ptr[0] != first.ptr[0]);
        state_iter_free(it);
    }
    compare_absent(s, rows);
    state_read_unlock(s);
    buf_deinit(&value);
}

struct history {
    struct prng rng;
    uint64_t seed;
    struct sim_db_state *durable;
    struct state *subject;
    struct db_batch *batch; /* between frozen_write and batch_write */
    bool frozen;
    uint64_t index;
};

static void batch_drop(struct history *h)
{
    if (h->batch != NULL)
        state_db(h->subject)->ops->batch_free(h->batch);
    h->batch = NULL;
}

/* Loses what was not durable, and applies the entries above it again. */
static void crash(struct history *h)
{
    batch_drop(h);
    state_close(h->subject);
    h->frozen = false;
    h->subject = open_state(h->durable);
    CHECK(state_meta(h->subject)->applied <= h->index);
    for (uint64_t i = state_meta(h->subject)->applied + 1; i <= h->index; i++)
        apply_entry(h->subject, h->seed, i, NULL);
}

static void checkpoint_step(struct history *h)
{
    struct db *db = state_db(h->subject);
    if (!h->frozen) {
        state_write_lock(h->subject);
        state_freeze(h->subject);
        CHECK_EQ(state_frozen_applied(h->subject), h->index);
        state_write_unlock(h->subject);
        h->frozen = true;
        return;
    }
    if (h->batch == NULL) {
        h->batch = db->ops->batch_new(db);
        CHECK_EQ(state_frozen_write(h->subject, h->batch, NULL), ERR_OK);
        return;
    }
    unsigned fate = (unsigned)prng_below(&h->rng, 10);
    if (fate == 0)
        sim_db_fail_next_write(db, ERR_NO_SPACE);
    if (fate == 1)
        sim_db_crash_next_write(db, prng_chance(&h->rng, 50));
    enum err err = db->ops->batch_write(db, h->batch, NULL);
    batch_drop(h);
    if (fate == 1) {
        CHECK_EQ(err, ERR_IO);
        crash(h);
        return;
    }
    CHECK_EQ(err, fate == 0 ? ERR_NO_SPACE : ERR_OK);
    if (err == ERR_OK)
        state_frozen_done(h->subject);
    else
        state_frozen_failed(h->subject);
    h->frozen = false;
}

static void reap_some(struct history *h)
{
    state_write_lock(h->subject);
    (void)state_reap(h->subject, prng_below(&h->rng, 8));
    state_write_unlock(h->subject);
    struct state_freed *freed;
    if (state_take_freed(h->subject, &freed) != 0)
        mem_free(freed);
}

static void random_history(uint64_t seed, uint64_t entries)
{
    struct sim_db_state *plain_db = sim_db_state_new();
    struct state *plain = open_state(plain_db);
    struct omap *rows = omap_new();
    struct history h = {.seed = seed, .durable = sim_db_state_new()};
    prng_init(&h.rng, seed * 31 + 1);
    h.subject = open_state(h.durable);
    for (h.index = 1; h.index <= entries; h.index++) {
        apply_entry(h.subject, seed, h.index, NULL);
        apply_entry(plain, seed, h.index, rows);
        if (prng_chance(&h.rng, 25))
            checkpoint_step(&h);
        if (prng_chance(&h.rng, 2))
            crash(&h);
        if (prng_chance(&h.rng, 20))
            reap_some(&h);
        if (prng_chance(&h.rng, 30)) {
            if (!same_digest(h.subject, plain))
                print_error("seed %llu index %llu\n", (unsigned long long)seed,
                            (unsigned long long)h.index);
            CHECK(same_digest(h.subject, plain));
            compare_rows(h.subject, rows);
        }
    }
    h.index--;
    crash(&h);
    CHECK(same_digest(h.subject, plain));
    compare_rows(h.subject, rows);
    checkpoint(h.subject);
    uint64_t left = sim_db_state_rows(h.durable);
    checkpoint(plain);
    CHECK_EQ(left, sim_db_state_rows(plain_db)); /* nothing is left behind either */
    state_close(h.subject);
    state_close(plain);
    omap_free(rows);
    sim_db_state_free(h.durable);
    sim_db_state_free(plain_db);
}

TEST(random_histories_with_checkpoints_and_crashes)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        random_history(seed, 400);
}

/* --- beside a running apply --- */

struct churn {
    struct state *s;
    struct queue *q;
    uint64_t rounds;
};

static void *churn_run(void *arg)
{
    struct churn *c = arg;
    struct prng rng;
    prng_init(&rng, 5);
    for (uint64_t i = 0; i < c->rounds; i++) {
        state_write_lock(c->s);
        state_meta(c->s)->applied++;
        state_queue_touch(c->s, c->q);
        c->q->log_length++;
        for (unsigned j = 0; j < 20; j++) { /* every entry adds 20 in all */
            struct partition *p = c->q->partitions[prng_below(&rng, c->q->partition_count)];
            state_partition_touch(c->s, p);
            p->next_offset++;
        }
        state_write_unlock(c->s);
    }
    return NULL;
}

/* Goal: what a checkpoint writes while entries apply is the state at its freeze.
 * Method: every entry moves 20 offsets, so the sum over all partitions tells the entry. */
TEST(a_checkpoint_beside_apply_is_consistent)
{
    enum { COUNT = 20000 };
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    struct queue *q = make_queue(s, "q");
    for (unsigned i = 0; i < COUNT; i++) {
        char name[24];
        (void)name_of(name, sizeof(name), 'p', i);
        (void)make_partition(s, q, name);
    }
    pthread_t thread;
    struct churn churn = {s, q, 20000};
    CHECK_EQ(pthread_create(&thread, NULL, churn_run, &churn), 0);
    for (unsigned round = 0; round < 8; round++) {
        checkpoint(s);
        struct state *then = open_state(durable);
        struct queue *r = state_queue_by_id(then, 1);
        uint64_t sum = 0;
        CHECK_EQ(r->partition_count, COUNT);
        for (size_t i = 0; i < r->partition_count; i++)
            sum += r->partitions[i]->next_offset;
        CHECK_EQ(sum, 20 * state_meta(then)->applied);
        CHECK_EQ(r->log_length, state_meta(then)->applied);
        state_close(then);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    state_close(s);
    sim_db_state_free(durable);
}

/* --- damage --- */

/* Goal: a database that does not fit together is refused, never repaired. */
TEST(damaged_rows_are_refused)
{
    const uint8_t mine[] = {STATE_FORMAT_VERSION, 0}, foreign[] = {STATE_FORMAT_VERSION + 1};
    const struct {
        struct span key, value;
    } rows[] = {
        {SPAN_LIT("M"), span_make(mine, sizeof(mine))},
        {SPAN_LIT("M"), span_make(foreign, sizeof(foreign))},
        {SPAN_LIT("Q\0\0\0\0\0\0\0\1"), SPAN_LIT("short")},
        {SPAN_LIT("P\0\0\0\0\0\0\0\7\0\0\0\0\0\0\0\1"), SPAN_LIT("short")},
        {SPAN_LIT("N"), SPAN_LIT("short")},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct sim_db_state *durable = sim_db_state_new();
        state_close(open_state(durable));
        struct db *db = sim_db_new(durable);
        struct db_batch *batch = db->ops->batch_new(db);
        struct state *s = NULL;
        struct error error;
        db->ops->batch_put(batch, rows[i].key, rows[i].value);
        CHECK_EQ(db->ops->batch_write(db, batch, NULL), ERR_OK);
        db->ops->batch_free(batch);
        enum err err = state_open(db, &cluster, &s, &error);
        CHECK_EQ(err, i == 1 ? ERR_VERSION : ERR_CORRUPT);
        CHECK(s == NULL);
        sim_db_state_free(durable);
    }
}

/* Goal: looking for a row that is not there costs nothing for deleted ones of other kinds. */
TEST(an_iterator_walks_over_deleted_rows_within_its_bounds_only)
{
    struct sim_db_state *durable = sim_db_state_new();
    struct state *s = open_state(durable);
    for (unsigned i = 0; i < 100; i++) {
        struct buf key = BUF_INIT;
        buf_putc(&key, i < 50 ? STATE_KIND_KV_EXPIRY : STATE_KIND_KV);
        buf_put_padded(&key, i, 3);
        state_row_put(s, buf_span(&key), SPAN_LIT("1"));
        state_row_delete(s, buf_span(&key));
        buf_deinit(&key);
    }
    state_row_put(s, SPAN_LIT("M"), SPAN_LIT("1"));
    size_t steps = 60;
    struct state_iter *it = state_iter_new_bounded(s, SPAN_LIT("D"), SPAN_LIT("E"), &steps);
    CHECK(!state_iter_valid(it));
    CHECK(!state_iter_spent(it));
    CHECK_EQ(steps, 60);
    state_iter_free(it);
    it = state_iter_new_bounded(s, SPAN_LIT("D"), SPAN_LIT("F"), &steps);
    CHECK(!state_iter_valid(it));
    CHECK(!state_iter_spent(it));
    CHECK_EQ(steps, 10);
    state_iter_free(it);
    it = state_iter_new_bounded(s, SPAN_LIT("D"), SPAN_LIT(""), &steps);
    CHECK(!state_iter_valid(it));
    CHECK(state_iter_spent(it));
    CHECK_TEXT(state_iter_key(it), "E010");
    CHECK_EQ(steps, 0);
    state_iter_free(it);
    it = state_iter_new(s, SPAN_LIT("D"), SPAN_LIT(""));
    CHECK(state_iter_valid(it));
    CHECK_TEXT(state_iter_key(it), "M");
    state_iter_free(it);
    state_close(s);
    sim_db_state_free(durable);
}

TEST_MAIN()
