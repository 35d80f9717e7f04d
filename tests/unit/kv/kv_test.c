/* The key-value store on an applied state (spec/kv.md). */
#include "kv/kv.h"

#include "base/mem.h"
#include "base/timefmt.h"
#include "json/json.h"
#include "lib/prng.h"
#include "lib/test.h"
#include "sim/sim_db.h"

#define NS SPAN_LIT("queen-s3")
#define CLOCK (1700000000 * US_PER_SEC)
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct rig {
    struct sim_db_state *durable;
    struct state *s;
    uint64_t index;
    int64_t clock;
    struct kv_result result; /* of the last call */
};

static const struct uuid cluster = {{1}};

static void rig_open(struct rig *r)
{
    *r = (struct rig){.durable = sim_db_state_new(), .clock = CLOCK};
    CHECK_EQ(state_open(sim_db_new(r->durable), &cluster, &r->s, NULL), ERR_OK);
}

static void rig_close(struct rig *r)
{
    kv_result_deinit(&r->result);
    state_close(r->s);
    sim_db_state_free(r->durable);
}

static void rig_reopen(struct rig *r)
{
    struct db *db = state_db(r->s);
    state_freeze(r->s);
    struct db_batch *batch = db->ops->batch_new(db);
    CHECK_EQ(state_frozen_write(r->s, batch, NULL), ERR_OK);
    CHECK_EQ(db->ops->batch_write(db, batch, NULL), ERR_OK);
    db->ops->batch_free(batch);
    state_frozen_done(r->s);
    state_close(r->s);
    CHECK_EQ(state_open(sim_db_new(r->durable), &cluster, &r->s, NULL), ERR_OK);
}

static struct apply_context next_entry(struct rig *r, int64_t us)
{
    struct state_meta *m = state_meta(r->s);
    r->clock += us;
    m->applied = ++r->index;
    m->last_clock = r->clock;
    m->last_count = 1;
    return (struct apply_context){.index = r->index, .now = r->clock};
}

static const struct kv_op_result *call(struct rig *r, int64_t us, const struct kv_op *ops, size_t n)
{
    struct apply_context at = next_entry(r, us);
    struct buf body = BUF_INIT;
    kv_encode(&body, &TENANT_DEFAULT, ops, n);
    kv_result_deinit(&r->result);
    CHECK_EQ(kv_apply(r->s, &at, buf_span(&body), &r->result, NULL), ERR_OK);
    buf_deinit(&body);
    return r->result.ops;
}

/* The same, read only. */
static const struct kv_op_result *look(struct rig *r, const struct kv_op *ops, size_t n)
{
    bool due;
    kv_result_deinit(&r->result);
    CHECK_EQ(kv_read(r->s, &TENANT_DEFAULT, ops, n, r->clock, r->clock, &r->result, &due, NULL),
             ERR_OK);
    CHECK(!due);
    return r->result.ops;
}

static struct kv_op op(enum kv_op_type type, const char *key)
{
    return (struct kv_op){.type = type, .ns = NS, .key = span_str(key)};
}

static struct kv_op put(const char *key, const char *value)
{
    struct kv_op o = op(KV_PUT, key);
    o.value = span_str(value);
    o.forever = true;
    return o;
}

static struct kv_op put_expect(const char *key, const char *value, uint64_t expect, bool required)
{
    struct kv_op o = put(key, value);
    o.has_expect = true;
    o.expect = expect;
    o.required = required;
    return o;
}

static struct kv_op incr(const char *key, const char *delta)
{
    struct kv_op o = op(KV_INCR, key);
    o.value = span_str(delta);
    o.forever = true;
    return o;
}

static const struct kv_op_result *one(struct rig *r, struct kv_op o)
{
    return call(r, 1, &o, 1);
}

static const struct kv_op_result *get(struct rig *r, const char *key)
{
    struct kv_op o = op(KV_GET, key);
    return look(r, &o, 1);
}

/* kv.md 8.1 */
TEST(of_two_put_if_absent_the_second_sees_the_first)
{
    struct rig r;
    rig_open(&r);
    struct kv_op a = op(KV_PUT_IF_ABSENT, "k");
    a.forever = true;
    a.value = SPAN_LIT("1");
    const struct kv_op_result *got = one(&r, a);
    CHECK(got->applied);
    CHECK_TEXT(got->row.key, "k");
    CHECK_TEXT(got->row.value, "1");
    uint64_t version = got->row.version;
    a.value = SPAN_LIT("2");
    got = one(&r, a);
    CHECK(!got->applied);
    CHECK_EQ(got->reason, KV_REASON_EXISTS);
    CHECK_TEXT(got->row.value, "1");
    CHECK_EQ(got->row.version, version);
    rig_close(&r);
}

/* kv.md 8.2, the CAS part */
TEST(compare_and_set_counts_exactly)
{
    struct rig r;
    rig_open(&r);
    uint64_t version = one(&r, put("n", "0"))->row.version;
    for (unsigned i = 1; i <= 1000; i++) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%u", i);
        const struct kv_op_result *got = one(&r, put_expect("n", text, version, false));
        CHECK(got->applied);
        CHECK(got->row.version > version);
        got = one(&r, put_expect("n", "x", version, false));
        CHECK_EQ(got->reason, KV_REASON_VERSION);
        CHECK_TEXT(got->row.value, text);
        version = got->row.version;
    }
    rig_close(&r);
}

/* kv.md 8.3 */
TEST(versions_of_a_key_only_grow)
{
    struct rig r;
    rig_open(&r);
    uint64_t first = one(&r, put("k", "1"))->row.version;
    const struct kv_op_result *got = one(&r, op(KV_DELETE, "k"));
    CHECK(got->applied);
    CHECK_TEXT(got->row.value, "1");
    CHECK_EQ(got->row.version, first);
    uint64_t second = one(&r, put("k", "1"))->row.version;
    CHECK(second > first);
    struct kv_op mortal = put("k", "2");
    mortal.forever = false;
    mortal.ttl_seconds = 1;
    uint64_t third = one(&r, mortal)->row.version;
    CHECK(third > second);
    r.clock += 2 * US_PER_SEC;
    CHECK_EQ(kv_expire(r.s, r.clock, 10, NULL), ERR_OK);
    rig_reopen(&r);
    CHECK(!get(&r, "k")->found);
    CHECK(one(&r, put("k", "3"))->row.version > third);
    rig_close(&r);
}

/* kv.md 8.4 */
TEST(a_row_is_gone_at_its_instant)
{
    struct rig r;
    rig_open(&r);
    struct kv_op mortal = put("k", "1");
    mortal.forever = false;
    mortal.ttl_seconds = 1;
    const struct kv_op_result *got = one(&r, mortal);
    uint64_t version = got->row.version;
    CHECK_EQ(got->row.expires_at, r.clock + US_PER_SEC);
    r.clock += US_PER_SEC - 1;
    CHECK(get(&r, "k")->found);
    CHECK_EQ(r.result.ops[0].row.expires_at, r.clock + 1);
    CHECK_EQ(r.result.ops[0].row.updated_at, r.clock + 1 - US_PER_SEC);
    r.clock += 1;
    CHECK(!get(&r, "k")->found);
    got = one(&r, put_expect("k", "2", version, false));
    CHECK_EQ(got->reason, KV_REASON_ABSENT);
    CHECK_EQ(got->row.version, 0);
    CHECK_EQ(got->row.value.len, 0);
    CHECK(one(&r, put_expect("k", "2", 0, false))->applied);
    rig_close(&r);
}

TEST(a_read_tells_of_rows_that_are_due)
{
    struct rig r;
    bool due;
    rig_open(&r);
    struct kv_op mortal = put("k", "1");
    mortal.forever = false;
    mortal.ttl_seconds = 1;
    (void)one(&r, mortal);
    struct span keys[] = {SPAN_LIT("k")};
    struct kv_op many = op(KV_GET_MANY, ""), prefix = op(KV_GET_PREFIX, "k");
    many.keys = keys;
    many.n_keys = 1;
    prefix.limit = 10;
    const struct kv_op ops[] = {op(KV_GET, "k"), many, prefix};
    for (unsigned i = 0; i < 3; i++) {
        for (int64_t ahead = US_PER_SEC - 1; ahead <= US_PER_SEC; ahead++) {
            kv_result_deinit(&r.result);
            CHECK_EQ(kv_read(r.s, &TENANT_DEFAULT, &ops[i], 1, r.clock, r.clock + ahead, &r.result,
                             &due, NULL),
                     ERR_OK);
            CHECK_EQ(due, ahead == US_PER_SEC);
        }
    }
    rig_close(&r);
}

/* kv.md 8.5 and 3.3.2: the first loser in byte order is named, not the first in the request. */
TEST(a_lost_required_operation_undoes_the_call)
{
    struct rig r;
    rig_open(&r);
    uint64_t version = one(&r, put("b", "\"old\""))->row.version;
    uint64_t counter = state_meta(r.s)->kv_version;
    const struct kv_op ops[] = {
        put("e", "1"), put_expect("d", "1", 9, true),
        put("c", "1"), put_expect("b", "1", version + 7, true),
        put("a", "1"),
    };
    (void)call(&r, 1, ops, COUNT(ops));
    CHECK(r.result.aborted);
    CHECK_EQ(r.result.failed_index, 3);
    CHECK_EQ(r.result.failed_reason, KV_REASON_VERSION);
    CHECK_TEXT(r.result.failed_row.value, "\"old\"");
    CHECK_EQ(r.result.failed_row.version, version);
    CHECK_EQ(r.result.n, 0);
    CHECK_EQ(state_meta(r.s)->kv_version, counter);
    CHECK(!get(&r, "a")->found);
    CHECK(!get(&r, "c")->found);
    CHECK(!get(&r, "e")->found);
    CHECK_TEXT(get(&r, "b")->row.value, "\"old\"");
    rig_close(&r);
}

TEST(a_lost_operation_that_is_not_required_stands_alone)
{
    struct rig r;
    rig_open(&r);
    const struct kv_op ops[] = {put("a", "1"), put_expect("b", "1", 5, false), put("c", "1")};
    const struct kv_op_result *got = call(&r, 1, ops, COUNT(ops));
    CHECK(got[0].applied && !got[1].applied && got[2].applied);
    CHECK_EQ(got[1].reason, KV_REASON_ABSENT);
    CHECK(got[2].row.version > got[0].row.version);
    rig_close(&r);
}

/* kv.md 8.6 */
TEST(a_get_sees_what_stands_before_it_and_prefixes_see_all)
{
    struct rig r;
    rig_open(&r);
    struct kv_op prefix = op(KV_GET_PREFIX, "k"), many = op(KV_GET_MANY, "");
    struct span keys[] = {SPAN_LIT("k"), SPAN_LIT("a"), SPAN_LIT("k"), SPAN_LIT("zz")};
    prefix.limit = 100;
    many.keys = keys;
    many.n_keys = COUNT(keys);
    (void)one(&r, put("k", "1"));
    const struct kv_op ops[] = {prefix,          many,         op(KV_GET, "k"), put("k", "2"),
                                op(KV_GET, "k"), put("a", "0")};
    const struct kv_op_result *got = call(&r, 1, ops, COUNT(ops));
    CHECK_TEXT(got[2].row.value, "1");
    CHECK_TEXT(got[4].row.value, "2");
    CHECK_EQ(got[0].n_rows, 1);
    CHECK_TEXT(got[0].rows[0].value, "2");
    CHECK_EQ(got[1].n_rows, 2);
    CHECK_TEXT(got[1].rows[0].key, "a");
    CHECK_TEXT(got[1].rows[1].value, "2");
    CHECK_EQ(got[1].n_missing, 1);
    CHECK_TEXT(got[1].missing[0], "zz");
    CHECK(!got[1].truncated);
    rig_close(&r);
}

TEST(operations_of_one_key_go_in_request_order)
{
    struct rig r;
    rig_open(&r);
    const struct kv_op ops[] = {op(KV_DELETE, "k"), put("k", "1"), op(KV_GET, "k"),
                                op(KV_DELETE, "k"), op(KV_GET, "k")};
    const struct kv_op_result *got = call(&r, 1, ops, COUNT(ops));
    CHECK_EQ(got[0].reason, KV_REASON_ABSENT);
    CHECK(got[1].applied && got[2].found && got[3].applied && !got[4].found);
    CHECK_TEXT(got[3].row.value, "1");
    CHECK(!get(&r, "k")->found);
    rig_close(&r);
}

TEST(deletes_of_nothing)
{
    struct rig r;
    rig_open(&r);
    const struct kv_op_result *got = one(&r, op(KV_DELETE, "k"));
    CHECK(!got->applied);
    CHECK_EQ(got->reason, KV_REASON_ABSENT);
    struct kv_op zero = op(KV_DELETE, "k");
    zero.has_expect = true;
    got = one(&r, zero);
    CHECK(got->applied);
    CHECK_EQ(got->row.version, 0);
    CHECK_EQ(got->row.value.len, 0);
    uint64_t version = one(&r, put("k", "1"))->row.version;
    CHECK_EQ(one(&r, zero)->reason, KV_REASON_EXISTS);
    zero.expect = version + 1;
    CHECK_EQ(one(&r, zero)->reason, KV_REASON_VERSION);
    zero.expect = version;
    CHECK(one(&r, zero)->applied);
    CHECK_EQ(one(&r, zero)->reason, KV_REASON_ABSENT);
    rig_close(&r);
}

TEST(check_compares_and_writes_nothing)
{
    struct rig r;
    rig_open(&r);
    uint64_t version = one(&r, put("k", "1"))->row.version;
    struct kv_op check = op(KV_CHECK, "k");
    check.has_expect = true;
    check.expect = version;
    const struct kv_op_result *got = one(&r, check);
    CHECK(got->applied);
    CHECK_EQ(got->row.version, version);
    CHECK_EQ(state_meta(r.s)->kv_version, version);
    check.expect = 0;
    CHECK_EQ(one(&r, check)->reason, KV_REASON_EXISTS);
    check.required = true;
    const struct kv_op ops[] = {put("a", "1"), check};
    (void)call(&r, 1, ops, 2);
    CHECK(r.result.aborted);
    CHECK(!get(&r, "a")->found);
    rig_close(&r);
}

/* kv.md 8.7 */
TEST(prefixes_are_read_in_pages)
{
    struct rig r;
    rig_open(&r);
    for (unsigned i = 0; i < 2500; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "p%04u", i);
        (void)one(&r, put(key, "1"));
        if (i % 400 == 0)
            rig_reopen(&r); /* so that the rows lie in every layer */
    }
    (void)one(&r, put("o", "1"));
    (void)one(&r, put("q", "1"));
    struct kv_op prefix = op(KV_GET_PREFIX, "p");
    char after[16] = "";
    prefix.limit = 1000;
    static const size_t sizes[] = {1000, 1000, 500};
    for (unsigned page = 0; page < 3; page++) {
        prefix.after = span_str(after);
        const struct kv_op_result *got = look(&r, &prefix, 1);
        CHECK_EQ(got->n_rows, sizes[page]);
        CHECK_EQ(got->truncated, page < 2);
        CHECK_EQ(got->has_next, page < 2);
        for (size_t i = 0; i < got->n_rows; i++) {
            char key[16];
            (void)snprintf(key, sizeof(key), "p%04zu", 1000 * page + i);
            CHECK_TEXT(got->rows[i].key, key);
        }
        if (got->has_next)
            (void)snprintf(after, sizeof(after), SPAN_FMT, SPAN_ARG(got->next_after));
    }
    prefix.limit = 500;
    prefix.keys_only = true;
    prefix.after = SPAN_LIT("p1999");
    const struct kv_op_result *got = look(&r, &prefix, 1);
    CHECK_EQ(got->n_rows, 500);
    CHECK(!got->truncated && !got->has_next); /* exactly at the end */
    CHECK_EQ(got->rows[0].value.len, 0);
    CHECK(got->rows[0].version != 0);
    prefix.after = SPAN_LIT("a"); /* before the prefix */
    CHECK_TEXT(look(&r, &prefix, 1)->rows[0].key, "p0000");
    prefix.after = SPAN_LIT("z"); /* behind it */
    CHECK_EQ(look(&r, &prefix, 1)->n_rows, 0);
    rig_close(&r);
}

TEST(a_prefix_may_end_in_the_highest_byte)
{
    struct rig r;
    rig_open(&r);
    (void)one(&r, put("\xf4\x8f\xbf\xbf", "1"));
    (void)one(&r, put("\xf4\x8f\xbf\xbfx", "2"));
    struct kv_op prefix = op(KV_GET_PREFIX, "\xf4\x8f\xbf\xbf");
    prefix.limit = 10;
    CHECK_EQ(look(&r, &prefix, 1)->n_rows, 2);
    prefix.key = SPAN_LIT("\xf4\x8f\xbf\xbfx");
    CHECK_EQ(look(&r, &prefix, 1)->n_rows, 1);
    rig_close(&r);
}

TEST(a_call_reads_four_mebibytes_and_the_row_that_crosses)
{
    enum { SIZE = KV_VALUE_MAX, ROWS = 100, FIT = KV_READ_BYTES_MAX / SIZE };
    struct rig r;
    rig_open(&r);
    char *big = mem_new(SIZE + 1);
    struct span keys[ROWS];
    char names[ROWS][8];
    memset(big, '1', SIZE);
    for (unsigned i = 0; i < ROWS; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "k%03u", i);
        keys[i] = span_str(names[i]);
        (void)one(&r, put(names[i], big));
    }
    struct kv_op prefix = op(KV_GET_PREFIX, "k"), many = op(KV_GET_MANY, "");
    prefix.limit = 1000;
    many.keys = keys;
    many.n_keys = ROWS;
    const struct kv_op_result *got = look(&r, &prefix, 1);
    CHECK_EQ(got->n_rows, FIT); /* a key is 4 bytes: the last of them crosses */
    CHECK(got->truncated);
    CHECK_TEXT(got->next_after, names[FIT - 1]);
    const struct kv_op both[] = {many, prefix};
    got = look(&r, both, 2);
    CHECK_EQ(got[0].n_rows, FIT);
    CHECK(got[0].truncated);
    CHECK_EQ(got[0].n_missing, 0);
    CHECK_EQ(got[1].n_rows, 1); /* the budget is the call's, but paging goes on */
    CHECK(got[1].truncated && got[1].has_next);
    mem_free(big);
    rig_close(&r);
}

TEST(tenants_and_namespaces_are_apart)
{
    struct rig r;
    const struct tenant_id other = {{7}};
    struct buf body = BUF_INIT;
    rig_open(&r);
    (void)one(&r, put("k", "1"));
    struct kv_op o = put("k", "2");
    struct apply_context at = next_entry(&r, 1);
    kv_encode(&body, &other, &o, 1);
    CHECK_EQ(kv_apply(r.s, &at, buf_span(&body), NULL, NULL), ERR_OK);
    buf_deinit(&body);
    o.ns = SPAN_LIT("queen");
    (void)one(&r, o);
    CHECK_TEXT(get(&r, "k")->row.value, "1");
    struct kv_op prefix = op(KV_GET_PREFIX, "k");
    prefix.limit = 10;
    CHECK_EQ(look(&r, &prefix, 1)->n_rows, 1);
    rig_close(&r);
}

/* --- incr --- */

TEST(incr_creates_adds_and_keeps_the_expiry)
{
    struct rig r;
    rig_open(&r);
    struct kv_op o = incr("n", "5");
    o.forever = false;
    o.ttl_seconds = 10;
    const struct kv_op_result *got = one(&r, o);
    CHECK(got->applied);
    CHECK_TEXT(got->row.value, "5");
    int64_t expires_at = got->row.expires_at;
    uint64_t version = got->row.version;
    o.ttl_seconds = 1000;
    got = one(&r, o);
    CHECK_TEXT(got->row.value, "10");
    CHECK_EQ(got->row.expires_at, expires_at);
    CHECK(got->row.version > version);
    r.clock = expires_at;
    got = one(&r, o);
    CHECK_TEXT(got->row.value, "5");
    CHECK_EQ(got->row.expires_at, r.clock + 1000 * US_PER_SEC);
    rig_close(&r);
}

TEST(incr_stops_at_its_bounds_and_at_other_types)
{
    struct rig r;
    rig_open(&r);
    (void)one(&r, put("n", "9"));
    (void)one(&r, put("s", "\"9\""));
    struct kv_op o = incr("n", "1");
    o.has_max = o.has_min = true;
    o.max = SPAN_LIT("10.5");
    o.min = SPAN_LIT("-1e0");
    CHECK_TEXT(one(&r, o)->row.value, "10");
    const struct kv_op_result *got = one(&r, o);
    CHECK_EQ(got->reason, KV_REASON_LIMIT);
    CHECK_TEXT(got->row.value, "10");
    o.value = SPAN_LIT("0.5");
    CHECK_TEXT(one(&r, o)->row.value, "10.5");
    o.value = SPAN_LIT("-11.5000000000000000000000000001");
    CHECK_EQ(one(&r, o)->reason, KV_REASON_LIMIT);
    o.value = SPAN_LIT("-11.5");
    CHECK_TEXT(one(&r, o)->row.value, "-1");
    CHECK_EQ(one(&r, incr("s", "1"))->reason, KV_REASON_TYPE);
    CHECK_TEXT(r.result.ops[0].row.value, "\"9\"");
    rig_close(&r);
}

/* --- pins --- */

static uint64_t make_queue(struct rig *r, const char *name)
{
    const struct uuid uuid = {{3}};
    const struct queue_options options = {0};
    return state_queue_create(r->s, &TENANT_DEFAULT, span_str(name), &uuid, r->clock, &options)->id;
}

static struct kv_op intent(uint64_t queue_id)
{
    struct kv_op o = put("s3:intent", "{}");
    o.pin = KV_PIN_SET;
    o.pin_queue = SPAN_LIT("q");
    o.pin_queue_id = queue_id;
    o.pin_t_start = 10;
    o.pin_t_end = 20;
    o.required = true;
    return o;
}

static struct kv_op commit(void)
{
    struct kv_op o = put("s3:committed", "{}");
    o.pin = KV_PIN_CLEAR;
    o.pin_key = SPAN_LIT("s3:intent");
    return o;
}

static const struct pin *find_pin(struct rig *r)
{
    return state_pin_find(r->s, &TENANT_DEFAULT, SPAN_LIT("s3:intent"));
}

TEST(an_intent_pins_from_its_apply_to_its_commit)
{
    struct rig r;
    rig_open(&r);
    uint64_t id = make_queue(&r, "q");
    CHECK(one(&r, intent(id))->applied);
    CHECK(find_pin(&r) != NULL);
    CHECK_EQ(find_pin(&r)->queue_id, id);
    CHECK_EQ(find_pin(&r)->t_end, 20);
    rig_reopen(&r);
    CHECK(find_pin(&r) != NULL);
    state_queue_delete(r.s, state_queue_by_id(r.s, id));
    CHECK(state_queue_by_id(r.s, id) != NULL);
    CHECK(one(&r, commit())->applied);
    CHECK(find_pin(&r) == NULL);
    CHECK(state_queue_by_id(r.s, id) == NULL);
    rig_close(&r);
}

TEST(an_intent_for_another_queue_of_the_name_rolls_back)
{
    struct rig r;
    rig_open(&r);
    uint64_t id = make_queue(&r, "q");
    state_queue_delete(r.s, state_queue_by_id(r.s, id));
    const struct kv_op ops[] = {put("s3:lease", "{}"), intent(id)};
    for (unsigned i = 0; i < 2; i++) { /* missing, then another id */
        (void)call(&r, 1, ops, 2);
        CHECK(r.result.aborted);
        CHECK_EQ(r.result.failed_index, 1);
        CHECK_TEXT(span_str(kv_reason_text(r.result.failed_reason)), "queue");
        CHECK(find_pin(&r) == NULL);
        CHECK(!get(&r, "s3:lease")->found);
        if (i == 0)
            (void)make_queue(&r, "q");
    }
    rig_close(&r);
}

TEST(an_aborted_call_moves_no_pin)
{
    struct rig r;
    rig_open(&r);
    uint64_t id = make_queue(&r, "q");
    const struct kv_op lost = put_expect("s3:lease", "{}", 99, true);
    const struct kv_op set[] = {intent(id), lost}, clear[] = {commit(), lost},
                       drop[] = {op(KV_DELETE, "s3:intent"), lost};
    (void)call(&r, 1, set, 2);
    CHECK(r.result.aborted);
    CHECK(find_pin(&r) == NULL);
    (void)one(&r, intent(id));
    (void)call(&r, 1, clear, 2);
    CHECK(find_pin(&r) != NULL);
    (void)call(&r, 1, drop, 2);
    CHECK(find_pin(&r) != NULL);
    rig_close(&r);
}

TEST(deleting_the_intent_row_ends_its_pin)
{
    struct rig r;
    rig_open(&r);
    (void)one(&r, intent(make_queue(&r, "q")));
    struct kv_op elsewhere = op(KV_DELETE, "s3:intent");
    elsewhere.ns = SPAN_LIT("other");
    (void)one(&r, elsewhere);
    CHECK(find_pin(&r) != NULL);
    struct kv_op lost = op(KV_DELETE, "s3:intent");
    lost.has_expect = true;
    lost.expect = 99;
    (void)one(&r, lost);
    CHECK(find_pin(&r) != NULL);
    (void)one(&r, put("s3:intent", "[]")); /* replaced by anybody: the pin stays */
    CHECK(find_pin(&r) != NULL);
    (void)one(&r, op(KV_DELETE, "s3:intent"));
    CHECK(find_pin(&r) == NULL);
    rig_close(&r);
}

/* --- sweeping --- */

static struct kv_op put_for(const char *key, uint64_t ttl)
{
    struct kv_op o = put(key, "1");
    o.forever = ttl == 0;
    o.ttl_seconds = ttl;
    return o;
}

static struct kv_size size_of(struct rig *r, const char *ns)
{
    struct kv_size size;
    CHECK_EQ(kv_size(r->s, &TENANT_DEFAULT, span_str(ns), &size, NULL), ERR_OK);
    return size;
}

static void expire(struct rig *r, size_t limit)
{
    CHECK_EQ(kv_expire(r->s, r->clock, limit, NULL), ERR_OK);
}

/* Goal: what expired goes, the earliest first and no more than is asked for, and nothing else does.
 * Method: rows of three kinds of life, with reopenings in between, counted in the database. */
TEST(expired_rows_are_removed_and_no_others)
{
    struct rig r;
    rig_open(&r);
    for (unsigned i = 0; i < 300; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%03u", i);
        (void)one(&r, put_for(key, i % 3 == 0 ? 0 : i % 3 == 1 ? 1000 - i : 5000));
    }
    (void)next_entry(&r, 2000 * US_PER_SEC);
    CHECK_EQ(size_of(&r, "").rows, 300);
    expire(&r, 1);
    CHECK_EQ(size_of(&r, "").rows, 299);
    rig_reopen(&r);
    CHECK_EQ(kv_expire_next(r.s), INT64_MIN);
    CHECK_EQ(kv_expire_find(r.s, NULL), ERR_OK);
    CHECK(kv_expire_next(r.s) < CLOCK + 1000 * US_PER_SEC);
    for (unsigned i = 0; i < 14; i++)
        expire(&r, 7);
    CHECK_EQ(size_of(&r, "").rows, 201);
    CHECK_EQ(size_of(&r, "queen-s3").bytes, 201 * 5);
    expire(&r, 7);
    expire(&r, 7);
    CHECK_EQ(size_of(&r, "").rows, 200);
    CHECK(kv_expire_next(r.s) > r.clock);
    rig_reopen(&r);
    /* meta, rows, the index of those that still expire, sizes of namespace and tenant */
    CHECK_EQ(sim_db_state_rows(r.durable), 1 + 200 + 100 + 2);
    rig_close(&r);
}

/* Goal: writers alone keep the number of dead rows small: each row written pays for two that go. */
TEST(writing_removes_expired_rows)
{
    struct rig r;
    rig_open(&r);
    for (unsigned i = 0; i < 1000; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%u", i);
        (void)call(&r, US_PER_SEC / 10, &(struct kv_op){0}, 0); /* nothing written: nothing goes */
        (void)one(&r, put_for(key, 1));
    }
    CHECK(size_of(&r, "").rows <= 12); /* a second's worth */
    rig_close(&r);
}

TEST(a_new_expiry_replaces_the_old_one)
{
    struct rig r;
    rig_open(&r);
    (void)one(&r, put_for("longer", 1));
    (void)one(&r, put_for("longer", 100));
    (void)one(&r, put_for("forever", 1));
    (void)one(&r, put_for("forever", 0));
    (void)one(&r, put_for("shorter", 1000));
    (void)one(&r, put_for("shorter", 1));
    (void)one(&r, put_for("deleted", 1));
    (void)one(&r, op(KV_DELETE, "deleted"));
    CHECK_EQ(size_of(&r, "").rows, 3);
    (void)next_entry(&r, 2 * US_PER_SEC);
    expire(&r, 100);
    CHECK_EQ(size_of(&r, "").rows, 2);
    CHECK(get(&r, "longer")->found);
    CHECK(get(&r, "forever")->found);
    (void)next_entry(&r, 200 * US_PER_SEC);
    expire(&r, 100);
    CHECK_EQ(size_of(&r, "").rows, 1);
    CHECK_EQ(kv_expire_next(r.s), INT64_MAX);
    (void)one(&r, put_for("shorter", 1)); /* the index is empty: found again all the same */
    CHECK_EQ(kv_expire_next(r.s), r.clock + US_PER_SEC);
    rig_close(&r);
}

TEST(sizes_count_keys_and_values_of_each_namespace)
{
    struct rig r;
    rig_open(&r);
    struct kv_op a = put("key", "\"four\""), b = put("k", "1"), c = put("kk", "22");
    b.ns = c.ns = SPAN_LIT("b");
    const struct kv_op ops[] = {a, b, c};
    (void)call(&r, 1, ops, 3);
    CHECK_EQ(size_of(&r, "queen-s3").rows, 1);
    CHECK_EQ(size_of(&r, "queen-s3").bytes, 9);
    CHECK_EQ(size_of(&r, "b").rows, 2);
    CHECK_EQ(size_of(&r, "b").bytes, 6);
    CHECK_EQ(size_of(&r, "").rows, 3);
    CHECK_EQ(size_of(&r, "").bytes, 15);
    CHECK_EQ(size_of(&r, "none").rows, 0);
    b.value = SPAN_LIT("12345");
    c.type = KV_DELETE;
    const struct kv_op more[] = {b, c};
    (void)call(&r, 1, more, 2);
    CHECK_EQ(size_of(&r, "b").rows, 1);
    CHECK_EQ(size_of(&r, "b").bytes, 6);
    b.type = KV_DELETE;
    (void)one(&r, b);
    CHECK_EQ(size_of(&r, "b").rows, 0);
    CHECK_EQ(size_of(&r, "").rows, 1);
    rig_close(&r);
}

/* Pages through a prefix; counts what comes and the pages. */
static size_t page_through(struct rig *r, bool with_expired, size_t *pages_out)
{
    struct kv_op o = op(KV_GET_PREFIX, "k");
    struct buf after = BUF_INIT;
    size_t rows = 0;
    bool more = true;
    o.limit = 1000;
    o.with_expired = with_expired;
    for (*pages_out = 0; more; ++*pages_out) {
        const struct kv_op_result *got = look(r, &o, 1);
        rows += got->n_rows;
        more = got->truncated;
        CHECK_EQ(got->has_next, more);
        CHECK(!more || span_cmp(got->next_after, o.after) > 0);
        buf_reset(&after);
        buf_put_span(&after, got->next_after);
        o.after = buf_span(&after);
    }
    buf_deinit(&after);
    return rows;
}

/* Goal: a page looks at a bounded number of rows, and paging finds every live one all the same.
 * Method: three live rows among many dead ones, which are first expired and there, then removed. */
TEST(a_page_that_passes_many_dead_rows_ends_early)
{
    enum { DEAD = 35000 };
    struct rig r;
    size_t pages;
    rig_open(&r);
    for (unsigned i = 0; i <= DEAD; i++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "k%05u", i);
        (void)one(&r, put_for(key, i % (DEAD / 2) == 0 ? 0 : 100000));
    }
    (void)next_entry(&r, 200000 * US_PER_SEC);
    CHECK_EQ(page_through(&r, false, &pages), 3);
    CHECK_EQ(pages, 4);
    CHECK_EQ(page_through(&r, true, &pages), DEAD + 1);
    expire(&r, SIZE_MAX);
    CHECK_EQ(size_of(&r, "").rows, 3);
    CHECK_EQ(page_through(&r, true, &pages), 3);
    CHECK_EQ(pages, 4);
    rig_reopen(&r);
    CHECK_EQ(page_through(&r, false, &pages), 3);
    CHECK_EQ(pages, 1);
    rig_close(&r);
}

TEST(a_listing_may_show_what_expired)
{
    struct rig r;
    rig_open(&r);
    const struct kv_op ops[] = {put_for("a", 0), put_for("b", 1), put_for("c", 100)};
    (void)call(&r, 1, ops, 3);
    (void)next_entry(&r, 10 * US_PER_SEC);
    struct kv_op o = op(KV_GET_PREFIX, "");
    o.limit = 10;
    CHECK_EQ(look(&r, &o, 1)->n_rows, 2);
    o.with_expired = true;
    const struct kv_op_result *got = look(&r, &o, 1);
    CHECK_EQ(got->n_rows, 3);
    CHECK(!got->rows[0].expired);
    CHECK(got->rows[1].expired);
    CHECK_TEXT(got->rows[1].key, "b");
    CHECK(!got->rows[2].expired);
    rig_close(&r);
}

static void append_namespace(void *ctx, struct span ns, const struct kv_size *size)
{
    buf_put_span(ctx, ns);
    buf_printf(ctx, "=%llu ", (unsigned long long)size->rows);
}

static void list(struct rig *r, size_t limit, struct buf *out)
{
    struct buf after = BUF_INIT;
    bool more = true;
    unsigned calls = 0;
    buf_reset(out);
    while (more) {
        CHECK(++calls < 20);
        CHECK_EQ(
            kv_namespaces(r->s, &TENANT_DEFAULT, &after, limit, append_namespace, out, &more, NULL),
            ERR_OK);
    }
    buf_deinit(&after);
}

TEST(namespaces_are_listed_in_pages)
{
    static const char *const names[] = {"b", "a", "b.c", "a-", "b0"};
    struct rig r;
    struct buf text = BUF_INIT;
    struct kv_op elsewhere = put("k", "1");
    struct tenant_id other = TENANT_DEFAULT;
    rig_open(&r);
    list(&r, 3, &text);
    CHECK_EQ(text.len, 0);
    for (size_t i = 0; i < COUNT(names); i++) {
        for (size_t j = 0; j <= i; j++) {
            char key[2] = {(char)('a' + j), 0};
            struct kv_op o = put(key, "1");
            o.ns = span_str(names[i]);
            (void)one(&r, o);
        }
    }
    other.bytes[15] = 2; /* another tenant's are not listed */
    struct buf body = BUF_INIT;
    kv_encode(&body, &other, &elsewhere, 1);
    struct apply_context at = next_entry(&r, 1);
    CHECK_EQ(kv_apply(r.s, &at, buf_span(&body), NULL, NULL), ERR_OK);
    for (size_t limit = 1; limit <= 6; limit++) {
        list(&r, limit, &text);
        CHECK_TEXT(buf_span(&text), "a=2 a-=4 b=1 b.c=3 b0=5 ");
    }
    struct kv_op gone = op(KV_DELETE, "a");
    gone.ns = SPAN_LIT("b");
    (void)one(&r, gone);
    for (size_t limit = 1; limit <= 6; limit++) {
        list(&r, limit, &text);
        CHECK_TEXT(buf_span(&text), "a=2 a-=4 b.c=3 b0=5 ");
    }
    buf_deinit(&body);
    buf_deinit(&text);
    rig_close(&r);
}

TEST(damaged_rows_of_index_and_size_are_found)
{
    const struct {
        struct span key, value;
    } rows[] = {
        {SPAN_LIT("E"), SPAN_LIT("\0\0\0\0")},
        {SPAN_LIT("E\0\0\0\0\0\0\0\1"), SPAN_LIT("\0\0\0\0")},
        {SPAN_LIT("E\0\0\0\0\0\0\0\1"
                  "0123456789abcdefn"),
         SPAN_LIT("\0\0\0\0")},
        {SPAN_LIT("E\0\0\0\0\0\0\0\1"
                  "0123456789abcdefn\0k"),
         SPAN_LIT("\0\0\0")},
        {SPAN_LIT("E\0\0\0\0\0\0\0\1"
                  "0123456789abcdefn\0k"),
         SPAN_LIT("\0\0\0\0")},
        {SPAN_LIT("S0123456789abcdef"), SPAN_LIT("short")},
    };
    struct tenant_id tenant;
    memcpy(tenant.bytes, "0123456789abcdef", sizeof(tenant.bytes));
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct rig r;
        struct kv_size size = {.rows = 99};
        rig_open(&r);
        state_row_put(r.s, rows[i].key, rows[i].value);
        bool sized = i == COUNT(rows) - 1;
        CHECK_EQ(kv_expire(r.s, r.clock, 10, NULL), sized ? ERR_OK : ERR_CORRUPT);
        CHECK_EQ(kv_size(r.s, &tenant, SPAN_LIT(""), &size, NULL), sized ? ERR_CORRUPT : ERR_OK);
        CHECK_EQ(size.rows, sized ? 99 : 0);
        rig_close(&r);
    }
}

/* --- bodies --- */

static enum err apply_body(struct rig *r, struct span body)
{
    struct apply_context at = next_entry(r, 1);
    struct kv_result result;
    enum err err = kv_apply(r->s, &at, body, &result, NULL);
    if (err == ERR_OK)
        kv_result_deinit(&result);
    return err;
}

TEST(every_truncation_is_refused)
{
    struct rig r;
    struct buf body = BUF_INIT;
    struct span keys[] = {SPAN_LIT("a"), SPAN_LIT("b")};
    rig_open(&r);
    struct kv_op many = op(KV_GET_MANY, ""), prefix = op(KV_GET_PREFIX, "p"), check;
    struct kv_op bounded = incr("i", "1.5");
    many.keys = keys;
    many.n_keys = 2;
    prefix.after = SPAN_LIT("pp");
    bounded.has_min = bounded.has_max = true;
    bounded.min = SPAN_LIT("0");
    bounded.max = SPAN_LIT("9");
    check = op(KV_CHECK, "k");
    check.has_expect = true;
    const struct kv_op ops[] = {many,
                                prefix,
                                bounded,
                                check,
                                intent(make_queue(&r, "q")),
                                commit(),
                                op(KV_DELETE, "d"),
                                op(KV_GET, "g")};
    kv_encode(&body, &TENANT_DEFAULT, ops, COUNT(ops));
    for (size_t len = 0; len < body.len; len++)
        CHECK_EQ(apply_body(&r, span_make(body.ptr, len)), ERR_CORRUPT);
    CHECK_EQ(state_meta(r.s)->kv_version, 0);
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_OK);
    CHECK_EQ(state_meta(r.s)->kv_version, 3);
    buf_putc(&body, 0);
    CHECK_EQ(apply_body(&r, buf_span(&body)), ERR_CORRUPT);
    buf_deinit(&body);
    rig_close(&r);
}

TEST(namespaces_follow_their_pattern)
{
    char long_ns[66];
    memset(long_ns, 'a', sizeof(long_ns));
    CHECK(kv_namespace_valid(span_make(long_ns, 64)));
    CHECK(!kv_namespace_valid(span_make(long_ns, 65)));
    CHECK(kv_namespace_valid(SPAN_LIT("0._-a")));
    CHECK(!kv_namespace_valid(SPAN_LIT("")));
    CHECK(!kv_namespace_valid(SPAN_LIT("-a")));
    CHECK(!kv_namespace_valid(SPAN_LIT("aB")));
    CHECK(!kv_namespace_valid(SPAN_LIT("a/b")));
    CHECK(!kv_namespace_valid(SPAN_LIT("a\0b")));
}

TEST_MAIN()
