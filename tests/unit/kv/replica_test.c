/* Goal: applying is a function of the log alone (docs/architecture.md).
 * Method: random commands of every kind go to two states. One is only fed. The other is
 * checkpointed, with failing writes among them, swept, reaped, crashed and reopened at random, and
 * fed again what it lost. Results and digests must be equal all along. Here because kv is the
 * uppermost module of the commands. */
#include "base/bytes.h"
#include "base/mem.h"
#include "base/timefmt.h"
#include "broker/configure.h"
#include "broker/dedup.h"
#include "broker/push.h"
#include "kv/kv.h"
#include "lib/prng.h"
#include "lib/test.h"
#include "sim/sim_db.h"

enum { ENTRIES = 600, QUEUES = 4, PARTITIONS = 5, IDS = 25, KEYS = 8, COMMANDS_MAX = 4 };

struct command {
    enum command_type type;
    struct buf body;
};

struct entry {
    int64_t clock;
    uint32_t count;
    struct command commands[COMMANDS_MAX];
};

struct world {
    struct prng rng;
    struct entry log[ENTRIES + 1]; /* by index, from 1 */
    uint64_t index;                /* of the last entry */
    int64_t clock;                 /* the least the next one may have */
    uint64_t ids;
    struct state *plain, *replica;
    struct sim_db_state *plain_db, *replica_db;
    bool frozen;
};

static const struct uuid cluster = {{1}};
static const char *const queue_names[QUEUES] = {"a", "b.c", "d", ""};
static const char *const ids[IDS] = {"",  "a", "b", "c", "d", "e", "f", "g", "h",
                                     "i", "j", "k", "l", "m", "n", "o", "p", "q",
                                     "r", "s", "t", "u", "v", "w", "x"};

static struct state *open_state(struct sim_db_state *durable)
{
    struct state *s = NULL;
    CHECK_EQ(state_open(sim_db_new(durable), &cluster, &s, NULL), ERR_OK);
    return s;
}

/* --- making commands --- */

static void make_push(struct world *w, struct buf *body)
{
    struct push_item items[12];
    size_t n = prng_below(&w->rng, 12);
    for (size_t i = 0; i < n; i++) {
        struct push_item *item = &items[i];
        *item = (struct push_item){
            .queue = span_str(queue_names[prng_below(&w->rng, QUEUES)]),
            .partition = span_str(ids[prng_below(&w->rng, PARTITIONS)]),
            .transaction_id = span_str(ids[prng_below(&w->rng, IDS)]),
            .minted = prng_chance(&w->rng, 30),
            .payload = SPAN_LIT("{}"),
        };
        if (i > 0 && prng_chance(&w->rng, 50)) {
            item->queue = items[i - 1].queue;
            item->partition = items[i - 1].partition;
        }
        w->ids++;
        memcpy(item->message_id.bytes, &w->ids, sizeof(w->ids));
    }
    push_encode(body, &TENANT_DEFAULT, items, n);
}

static void make_configure(struct world *w, struct buf *body)
{
    static const int32_t windows[] = {0, 2, 900, 1024, 3600, 50000, 400000};
    struct configure_request request = {
        .tenant = TENANT_DEFAULT,
        .queue = span_str(queue_names[prng_below(&w->rng, QUEUES)]),
        .set = 1u << QUEUE_OPTION_dedup_window_seconds,
        .options.dedup_window_seconds = windows[prng_below(&w->rng, 7)],
        .task_set = prng_chance(&w->rng, 50),
        .task = SPAN_LIT("task"),
    };
    if (prng_chance(&w->rng, 30)) {
        request.reset = request.set;
        request.set = 0;
    }
    configure_encode(body, &request);
}

static void make_kv_op(struct world *w, struct kv_op *op)
{
    static const enum kv_op_type types[] = {KV_GET,    KV_PUT,  KV_PUT,  KV_PUT_IF_ABSENT,
                                            KV_DELETE, KV_INCR, KV_CHECK};
    static const char *const values[] = {"1", "2.5", "\"x\"", "{}", "-7"};
    op->type = types[prng_below(&w->rng, 7)];
    op->ns = SPAN_LIT("queen-s3");
    op->key = span_str(ids[prng_below(&w->rng, KEYS)]);
    op->value = span_str(values[prng_below(&w->rng, 5)]);
    op->forever = prng_chance(&w->rng, 50);
    op->ttl_seconds = 1 + prng_below(&w->rng, 2000);
    op->required = prng_chance(&w->rng, 20);
    op->has_expect = op->type == KV_CHECK || (op->type != KV_INCR && op->type != KV_PUT_IF_ABSENT &&
                                              prng_chance(&w->rng, 40));
    op->expect = prng_chance(&w->rng, 50) ? 0 : state_meta(w->plain)->kv_version;
    if (op->type == KV_INCR)
        op->value = prng_chance(&w->rng, 50) ? SPAN_LIT("1") : SPAN_LIT("-0.25");
    if (op->type == KV_PUT && prng_chance(&w->rng, 30)) {
        const struct span queue = span_str(queue_names[prng_below(&w->rng, QUEUES)]);
        const struct queue *q = state_queue_find(w->plain, &TENANT_DEFAULT, queue);
        op->pin = KV_PIN_SET;
        op->pin_queue = queue;
        op->pin_queue_id = q == NULL ? 99 : q->id;
        op->pin_t_start = w->clock;
    } else if (op->type == KV_PUT && prng_chance(&w->rng, 20)) {
        op->pin = KV_PIN_CLEAR;
        op->pin_key = span_str(ids[prng_below(&w->rng, KEYS)]);
    }
}

static void make_kv(struct world *w, struct buf *body)
{
    struct kv_op ops[8] = {0};
    struct span keys[] = {SPAN_LIT("a"), SPAN_LIT("e"), SPAN_LIT("x")};
    size_t n = prng_below(&w->rng, 7);
    for (size_t i = 0; i < n; i++)
        make_kv_op(w, &ops[i]);
    ops[n] = (struct kv_op){.type = prng_chance(&w->rng, 50) ? KV_GET_MANY : KV_GET_PREFIX,
                            .ns = SPAN_LIT("queen-s3"),
                            .keys = keys,
                            .n_keys = 3,
                            .limit = 4};
    kv_encode(body, &TENANT_DEFAULT, ops, n + 1);
}

static void make_entry(struct world *w)
{
    static const int64_t steps[] = {0, 0, 1, US_PER_SEC, 100 * US_PER_SEC, 1100 * US_PER_SEC};
    struct entry *e = &w->log[++w->index];
    e->clock = w->clock + steps[prng_below(&w->rng, 6)];
    e->count = (uint32_t)prng_below(&w->rng, COMMANDS_MAX + 1);
    for (uint32_t i = 0; i < e->count; i++) {
        struct command *c = &e->commands[i];
        unsigned choice = (unsigned)prng_below(&w->rng, 100);
        if (choice < 50) {
            c->type = COMMAND_PUSH;
            make_push(w, &c->body);
        } else if (choice < 58) {
            c->type = COMMAND_CONFIGURE;
            make_configure(w, &c->body);
        } else if (choice < 63) {
            c->type = COMMAND_QUEUE_DELETE;
            queue_delete_encode(&c->body, &TENANT_DEFAULT,
                                span_str(queue_names[prng_below(&w->rng, QUEUES)]));
        } else {
            c->type = COMMAND_KV;
            make_kv(w, &c->body);
        }
    }
    w->clock = e->clock + (e->count > 1 ? e->count : 1);
}

/* --- applying --- */

static void print_push(struct buf *out, const struct push_result *result,
                       const struct push_effects *effects)
{
    for (size_t i = 0; i < result->n; i++) {
        const struct push_item_result *item = &result->items[i];
        buf_printf(out, "%u %llu ", item->status, (unsigned long long)item->offset);
        buf_put_uuid(out, &item->message_id);
    }
    for (size_t i = 0; i < effects->n; i++) {
        const struct qlog_run *run = &effects->runs[i].run;
        buf_printf(out, "|%llu %llu %llu %u %lld", (unsigned long long)effects->runs[i].queue->id,
                   (unsigned long long)run->partition_id, (unsigned long long)run->first_offset,
                   run->count, (long long)run->stamp);
    }
}

static void print_row(struct buf *out, const struct kv_row *row)
{
    buf_put_span(out, row->key);
    buf_putc(out, '=');
    buf_put_span(out, row->value);
    buf_printf(out, " %llu %lld %lld;", (unsigned long long)row->version,
               (long long)row->expires_at, (long long)row->updated_at);
}

static void print_kv(struct buf *out, const struct kv_result *result)
{
    buf_printf(out, "%d %u %d ", result->aborted, result->failed_index, (int)result->failed_reason);
    print_row(out, &result->failed_row);
    for (size_t i = 0; i < result->n; i++) {
        const struct kv_op_result *op = &result->ops[i];
        buf_printf(out, "%d %d %d ", op->found, op->applied, (int)op->reason);
        print_row(out, &op->row);
        for (size_t j = 0; j < op->n_rows; j++)
            print_row(out, &op->rows[j]);
        for (size_t j = 0; j < op->n_missing; j++)
            buf_put_span(out, op->missing[j]);
    }
}

/* text NULL: replay, without results. */
static void apply_command(struct state *s, struct apply_context *at, const struct command *c,
                          struct buf *text)
{
    struct span body = buf_span(&c->body);
    struct push_effects effects = {0};
    struct push_result pushed = {0};
    struct configure_result configured = {0};
    struct kv_result kv = {0};
    bool existed = false;
    switch (c->type) {
    case COMMAND_PUSH:
        CHECK_EQ(push_apply(s, at, body, &effects, text == NULL ? NULL : &pushed, NULL), ERR_OK);
        for (size_t i = 0; i < effects.n; i++) /* as node does after its appends */
            effects.runs[i].queue->log_length += effects.runs[i].run.count;
        break;
    case COMMAND_CONFIGURE:
        CHECK_EQ(configure_apply(s, at, body, text == NULL ? NULL : &configured, NULL), ERR_OK);
        break;
    case COMMAND_QUEUE_DELETE:
        CHECK_EQ(queue_delete_apply(s, at, body, text == NULL ? NULL : &existed, NULL), ERR_OK);
        break;
    case COMMAND_KV:
        CHECK_EQ(kv_apply(s, at, body, text == NULL ? NULL : &kv, NULL), ERR_OK);
        break;
    }
    if (text != NULL) {
        print_push(text, &pushed, &effects);
        buf_put_uuid(text, &configured.queue_uuid);
        buf_printf(text, "%d %d\n", configured.options.dedup_window_seconds, existed);
        print_kv(text, &kv);
    }
    push_effects_deinit(&effects);
    push_result_deinit(&pushed);
    configure_result_deinit(&configured);
    kv_result_deinit(&kv);
}

static void apply_entry(struct world *w, struct state *s, uint64_t index, struct buf *text)
{
    const struct entry *e = &w->log[index];
    struct apply_context at = {.index = index, .now = e->clock};
    struct state_meta *m = state_meta(s);
    m->applied = index;
    for (; at.ordinal < e->count; at.ordinal++, at.now++, at.minted = 0)
        apply_command(s, &at, &e->commands[at.ordinal], text);
    m->last_clock = e->clock;
    m->last_count = e->count;
    CHECK_EQ(kv_expire(s, e->clock, 2, NULL), ERR_OK);
}

/* --- what happens to the replica beside its entries --- */

static void crash(struct world *w)
{
    state_close(w->replica);
    w->frozen = false;
    w->replica = open_state(w->replica_db);
    for (uint64_t i = state_meta(w->replica)->applied + 1; i <= w->index; i++)
        apply_entry(w, w->replica, i, NULL);
}

static void checkpoint_step(struct world *w)
{
    struct db *db = state_db(w->replica);
    if (!w->frozen) {
        state_freeze(w->replica);
        w->frozen = true;
        return;
    }
    bool fails = prng_chance(&w->rng, 20);
    struct db_batch *batch = db->ops->batch_new(db);
    CHECK_EQ(state_frozen_write(w->replica, batch, NULL), ERR_OK);
    if (fails)
        sim_db_fail_next_write(db, ERR_NO_SPACE);
    CHECK_EQ(db->ops->batch_write(db, batch, NULL), fails ? ERR_NO_SPACE : ERR_OK);
    db->ops->batch_free(batch);
    if (fails)
        state_frozen_failed(w->replica);
    else
        state_frozen_done(w->replica);
    w->frozen = false;
}

static void disturb(struct world *w)
{
    struct state_freed *freed;
    if (prng_chance(&w->rng, 30))
        checkpoint_step(w);
    if (prng_chance(&w->rng, 15))
        dedup_sweep(w->replica, state_meta(w->replica)->last_clock);
    if (prng_chance(&w->rng, 20))
        (void)state_reap(w->replica, 2);
    if (state_take_freed(w->replica, &freed) != 0)
        mem_free(freed);
    if (prng_chance(&w->rng, 3))
        crash(w);
}

/* What is counted, and the index of what will expire, against the rows. */
static void check_sizes(struct state *s)
{
    struct kv_size counted, kept;
    uint64_t mortal = 0, indexed = 0;
    memset(&counted, 0, sizeof(counted));
    struct state_iter *it = state_iter_new(s, SPAN_LIT("E"), SPAN_LIT(""));
    for (; state_iter_valid(it) && state_iter_key(it).ptr[0] <= 'K'; state_iter_next(it)) {
        struct span key = state_iter_key(it), value = state_iter_value(it);
        indexed += key.ptr[0] == 'E';
        if (key.ptr[0] != 'K')
            continue;
        counted.rows++;
        counted.bytes += key.len - strlen("K0123456789abcdefqueen-s3") - 1 + value.len - 24;
        mortal += le64_get(value.ptr + 8) != 0;
    }
    state_iter_free(it);
    CHECK_EQ(indexed, mortal);
    CHECK_EQ(kv_size(s, &TENANT_DEFAULT, SPAN_LIT("queen-s3"), &kept, NULL), ERR_OK);
    CHECK_EQ(kept.rows, counted.rows);
    CHECK_EQ(kept.bytes, counted.bytes);
    CHECK_EQ(kv_size(s, &TENANT_DEFAULT, SPAN_LIT(""), &kept, NULL), ERR_OK);
    CHECK_EQ(kept.rows, counted.rows);
    CHECK_EQ(kept.bytes, counted.bytes);
}

static void compare(struct world *w)
{
    uint8_t a[32], b[32];
    check_sizes(w->replica);
    state_digest(w->plain, a);
    state_digest(w->replica, b);
    CHECK(memcmp(a, b, sizeof(a)) == 0);
}

static void run(uint64_t seed)
{
    struct world *w = mem_new(sizeof(*w));
    struct buf plain = BUF_INIT, replica = BUF_INIT;
    prng_init(&w->rng, seed);
    w->clock = 1700000000 * US_PER_SEC;
    w->plain_db = sim_db_state_new();
    w->replica_db = sim_db_state_new();
    w->plain = open_state(w->plain_db);
    w->replica = open_state(w->replica_db);
    while (w->index < ENTRIES) {
        buf_reset(&plain);
        buf_reset(&replica);
        make_entry(w);
        apply_entry(w, w->plain, w->index, &plain);
        apply_entry(w, w->replica, w->index, &replica);
        if (!span_eq(buf_span(&plain), buf_span(&replica)))
            print_error("seed %llu entry %llu\n", (unsigned long long)seed,
                        (unsigned long long)w->index);
        CHECK_SPAN(buf_span(&replica), buf_span(&plain));
        if (prng_chance(&w->rng, 20))
            compare(w);
        disturb(w);
    }
    crash(w);
    compare(w);
    buf_deinit(&plain);
    buf_deinit(&replica);
    state_close(w->plain);
    state_close(w->replica);
    sim_db_state_free(w->plain_db);
    sim_db_state_free(w->replica_db);
    for (uint64_t i = 1; i <= w->index; i++) {
        for (uint32_t j = 0; j < w->log[i].count; j++)
            buf_deinit(&w->log[i].commands[j].body);
    }
    mem_free(w);
}

TEST(results_and_states_depend_on_the_log_alone)
{
    for (uint64_t seed = 1; seed <= 15; seed++)
        run(seed);
}

TEST_MAIN()
