#include "sim/kv_model.h"

#include "base/mem.h"
#include "sim/world_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS 7u
#define CALLS_MAX 16u /* without an answer */
#define ROWS (KEYS + CALLS_MAX)
#define OPS_MAX 8u
#define VALUE_MAX 40u
#define VERSION_UNKNOWN UINT64_MAX /* of a write without an answer: nobody can expect it */

#define NAMESPACE SPAN_LIT("sim.clients")

struct model_row {
    bool there; /* and live until expires_at */
    char value[VALUE_MAX];
    uint64_t version;
    int64_t expires_at; /* 0: never */
};

/* One operation as it was sent. */
struct sent {
    enum kv_op_type type;
    unsigned key;
    char value[VALUE_MAX], min[VALUE_MAX], max[VALUE_MAX];
    uint64_t ttl; /* seconds; 0: for ever */
    bool has_expect, required;
    uint64_t expect;
};

struct call {
    struct node_request base;
    struct kv_model *model;
    struct call *next; /* of those without an answer, in order */
    uint64_t seq;
    bool lost; /* it will never get one */
    struct sent ops[OPS_MAX + 1];
    size_t n;
};

struct kv_model {
    struct world *world;
    char keys[ROWS][16];
    struct model_row rows[ROWS];
    uint64_t last_version;
    uint64_t seq;
    struct call *first; /* without an answer */
    unsigned unanswered;
};

/* What the model says of one operation. */
struct foretold {
    bool applied, found;
    enum kv_reason reason;
    bool shows; /* a row */
    struct model_row row;
};

/* A batch being played on a copy of the rows. */
struct play {
    const struct call *call;
    int64_t now;
    struct model_row rows[ROWS];
    size_t order[OPS_MAX + 1];
    struct foretold told[OPS_MAX + 1]; /* by request index */
    bool aborted;
    size_t failed;
};

static bool live(const struct model_row *row, int64_t now)
{
    return row->there && (row->expires_at == 0 || row->expires_at > now);
}

/* --- the model --- */

static enum kv_reason lost_by(const struct sent *op, const struct model_row *row, bool is_live)
{
    bool has_expect = op->has_expect || op->type == KV_PUT_IF_ABSENT;
    uint64_t expect = op->type == KV_PUT_IF_ABSENT ? 0 : op->expect;
    if (!has_expect)
        return op->type == KV_DELETE && !is_live ? KV_REASON_ABSENT : KV_REASON_NONE;
    if (expect == 0)
        return is_live ? KV_REASON_EXISTS : KV_REASON_NONE;
    if (!is_live)
        return KV_REASON_ABSENT;
    return row->version == expect ? KV_REASON_NONE : KV_REASON_VERSION;
}

static void put(struct model_row *row, const char *value, int64_t expires_at)
{
    *row = (struct model_row){.there = true, .version = VERSION_UNKNOWN, .expires_at = expires_at};
    snprintf(row->value, sizeof(row->value), "%s", value);
}

static int64_t expiry(const struct sent *op, int64_t now)
{
    return op->ttl == 0 ? 0 : now + (int64_t)op->ttl * 1000000;
}

static int64_t number(const char *text)
{
    return strtoll(text, NULL, 10);
}

static enum kv_reason add(struct play *p, const struct sent *op, struct model_row *row,
                          bool is_live)
{
    char sum[VALUE_MAX];
    if (is_live && row->value[0] == '"')
        return KV_REASON_TYPE;
    int64_t value = (is_live ? number(row->value) : 0) + number(op->value);
    if ((op->min[0] != '\0' && value < number(op->min)) ||
        (op->max[0] != '\0' && value > number(op->max)))
        return KV_REASON_LIMIT;
    snprintf(sum, sizeof(sum), "%" PRId64, value);
    put(row, sum, is_live ? row->expires_at : expiry(op, p->now));
    return KV_REASON_NONE;
}

static void play_op(struct play *p, size_t i)
{
    const struct sent *op = &p->call->ops[i];
    struct model_row *row = &p->rows[op->key];
    struct foretold *told = &p->told[i];
    bool was = live(row, p->now);
    *told = (struct foretold){.shows = was, .row = *row, .found = was};
    if (op->type == KV_GET)
        return;
    told->reason = op->type == KV_INCR ? add(p, op, row, was) : lost_by(op, row, was);
    told->applied = told->reason == KV_REASON_NONE;
    if (told->applied && (op->type == KV_PUT || op->type == KV_PUT_IF_ABSENT))
        put(row, op->value, expiry(op, p->now));
    else if (told->applied && op->type == KV_DELETE)
        row->there = false;
    if (told->applied &&
        (op->type == KV_PUT || op->type == KV_PUT_IF_ABSENT || op->type == KV_INCR)) {
        told->shows = true;
        told->row = *row;
    }
    if (!told->applied && op->required) {
        p->aborted = true;
        p->failed = i;
    }
}

/* By key, and as requested within a key. */
static void sort_ops(const struct kv_model *m, struct play *p)
{
    for (size_t i = 0; i < p->call->n; i++) {
        size_t at = i;
        for (; at > 0 && strcmp(m->keys[p->call->ops[p->order[at - 1]].key],
                                m->keys[p->call->ops[i].key]) > 0;
             at--)
            p->order[at] = p->order[at - 1];
        p->order[at] = i;
    }
}

static void play_begin(const struct kv_model *m, const struct call *c, int64_t now, struct play *p)
{
    *p = (struct play){.call = c, .now = now};
    memcpy(p->rows, m->rows, sizeof(p->rows));
    sort_ops(m, p);
}

static bool writes(const struct play *p, size_t i)
{
    enum kv_op_type type = p->call->ops[i].type;
    return p->told[i].applied && (type == KV_PUT || type == KV_PUT_IF_ABSENT || type == KV_INCR);
}

/* --- answers --- */

static void wrong(struct kv_model *m, const struct call *c, size_t i, const char *what)
{
    const struct sent *op = &c->ops[i];
    world_fail(m->world, "kv batch %" PRIu64 ", operation %zu (type %d of %s): %s", c->seq, i,
               (int)op->type, m->keys[op->key], what);
}

static bool same_value(const struct model_row *row, const struct kv_row *got)
{
    return span_eq(span_str(row->value), got->value);
}

static void check_row(struct kv_model *m, const struct play *p, size_t i, const struct kv_row *got)
{
    const struct foretold *told = &p->told[i];
    if (!told->shows) {
        if (got->version != 0 || got->value.len != 0)
            wrong(m, p->call, i, "shows a row that is not there");
        return;
    }
    if (!same_value(&told->row, got))
        wrong(m, p->call, i, "shows another value");
    else if (told->row.version != VERSION_UNKNOWN && told->row.version != got->version)
        wrong(m, p->call, i, "shows another version");
    else if (told->row.expires_at != got->expires_at)
        wrong(m, p->call, i, "shows another expiry");
    else if (writes(p, i) && got->updated_at != p->now)
        wrong(m, p->call, i, "was not written at the clock of its entry");
}

static void check_op(struct kv_model *m, struct play *p, size_t i, const struct kv_op_result *got)
{
    const struct foretold *told = &p->told[i];
    if (p->call->ops[i].type == KV_GET) {
        if (got->found != told->found)
            wrong(m, p->call, i, "finds what is not there, or does not find it");
    } else if (got->applied != told->applied || got->reason != told->reason) {
        wrong(m, p->call, i,
              kv_reason_text(got->reason)[0] == '\0' ? "is applied and must not be"
                                                     : "is lost for a wrong reason");
    }
    check_row(m, p, i, &got->row);
    if (!writes(p, i))
        return;
    if (got->row.version <= m->last_version)
        wrong(m, p->call, i, "got a version that does not rise");
    m->last_version = got->row.version;
    p->rows[p->call->ops[i].key].version = got->row.version;
}

static void check_abort(struct kv_model *m, const struct play *p, const struct kv_result *got)
{
    if (!p->aborted)
        wrong(m, p->call, 0, "the batch is undone and must not be");
    else if (got->failed_index != p->failed || got->failed_reason != p->told[p->failed].reason)
        wrong(m, p->call, p->failed, "is not named as what undid the batch");
    else if (got->n != 0)
        wrong(m, p->call, 0, "a batch that is undone has results");
    else
        check_row(m, p, p->failed, &got->failed_row);
}

static void answered(struct kv_model *m, struct call *c)
{
    const struct kv_result *got = &c->base.kv;
    struct play p;
    play_begin(m, c, c->base.now, &p);
    for (size_t at = 0; at < c->n && !p.aborted && m->world->result->ok; at++) {
        size_t i = p.order[at];
        play_op(&p, i);
        if (p.aborted)
            break;
        if (!got->aborted && got->n == c->n)
            check_op(m, &p, i, &got->ops[i]);
        else if (!got->aborted)
            wrong(m, c, i, "the batch has another number of results");
    }
    if (got->aborted)
        check_abort(m, &p, got);
    else if (p.aborted)
        wrong(m, c, p.failed, "is required, lost, and the batch is applied");
    if (!p.aborted)
        memcpy(m->rows, p.rows, sizeof(m->rows));
}

static void forget(struct kv_model *m, struct call *c)
{
    struct call **at = &m->first;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    m->unanswered--;
    mem_free(c);
}

static void call_done(struct node_request *base)
{
    struct call *c = (struct call *)base;
    struct kv_model *m = c->model;
    world_detail(m->world, "kv batch %" PRIu64 ": %s", c->seq,
                 base->err != ERR_OK ? err_text(base->err)
                 : base->kv.aborted  ? "undone"
                                     : "applied");
    if (base->err == ERR_OK) {
        world_check_stamp(m->world, base->now);
        answered(m, c);
    }
    c->lost = base->err == ERR_STOPPED;
    node_request_deinit(base);
    if (!c->lost)
        forget(m, c);
}

/* --- batches --- */

static uint64_t roll(struct kv_model *m, uint64_t n)
{
    return prng_below(&m->world->prng, n);
}

static void draw_value(struct kv_model *m, struct sent *op)
{
    if (op->type == KV_INCR || roll(m, 2) == 0)
        snprintf(op->value, sizeof(op->value), "%d", (int)roll(m, 100) - 50);
    else
        snprintf(op->value, sizeof(op->value), "\"%" PRIu64 "-%" PRIu64 "\"", m->seq,
                 roll(m, 1000));
    if (op->type == KV_INCR && roll(m, 2) == 0)
        snprintf(op->min, sizeof(op->min), "%d", -(int)roll(m, 60));
    if (op->type == KV_INCR && roll(m, 2) == 0)
        snprintf(op->max, sizeof(op->max), "%d", (int)roll(m, 60));
}

static void draw_op(struct kv_model *m, struct sent *op)
{
    static const enum kv_op_type types[] = {KV_GET,    KV_PUT,    KV_PUT,  KV_PUT_IF_ABSENT,
                                            KV_DELETE, KV_DELETE, KV_INCR, KV_CHECK};
    op->type = types[roll(m, 8)];
    op->key = (unsigned)roll(m, KEYS);
    op->required = op->type != KV_GET && roll(m, 4) == 0;
    op->ttl = roll(m, 2) == 0 ? 0 : 1 + roll(m, 6);
    draw_value(m, op);
    if (op->type == KV_INCR || op->type == KV_PUT_IF_ABSENT)
        return;
    op->has_expect = op->type == KV_CHECK || roll(m, 2) == 0;
    uint64_t version = m->rows[op->key].version;
    if (op->has_expect && roll(m, 5) > 0 && version != VERSION_UNKNOWN)
        op->expect = roll(m, 5) > 0 ? version : version / 2;
}

/* Whose seq it is tells the row that the batch was applied. */
static void draw_marker(const struct call *c, struct sent *op)
{
    *op = (struct sent){.type = KV_PUT, .key = KEYS + (unsigned)(c->seq % CALLS_MAX)};
    snprintf(op->value, sizeof(op->value), "%" PRIu64, c->seq);
}

static void encode(struct kv_model *m, struct call *c)
{
    struct kv_op ops[OPS_MAX + 1] = {0};
    for (size_t i = 0; i < c->n; i++) {
        const struct sent *sent = &c->ops[i];
        ops[i] = (struct kv_op){
            .type = sent->type,
            .ns = NAMESPACE,
            .key = span_str(m->keys[sent->key]),
            .value = span_str(sent->value),
            .forever = sent->ttl == 0,
            .ttl_seconds = sent->ttl,
            .has_expect = sent->has_expect,
            .expect = sent->expect,
            .required = sent->required,
            .has_min = sent->min[0] != '\0',
            .has_max = sent->max[0] != '\0',
            .min = span_str(sent->min),
            .max = span_str(sent->max),
        };
    }
    kv_encode(&c->base.body, &TENANT_DEFAULT, ops, c->n);
}

static void send_batch(struct kv_model *m)
{
    struct call *c = mem_new(sizeof(*c));
    struct call **end = &m->first;
    c->model = m;
    c->seq = ++m->seq;
    c->n = 1 + (size_t)roll(m, OPS_MAX) + 1;
    for (size_t i = 0; i + 1 < c->n; i++)
        draw_op(m, &c->ops[i]);
    draw_marker(c, &c->ops[c->n - 1]);
    encode(m, c);
    c->base.type = COMMAND_KV;
    c->base.done = call_done;
    c->base.grows_storage = true;
    while (*end != NULL)
        end = &(*end)->next;
    *end = c;
    m->unanswered++;
    world_detail(m->world, "kv batch %" PRIu64 " of %zu", c->seq, c->n);
    m->world->result->kv_batches++;
    node_submit(m->world->node, &c->base); /* c may be gone now */
}

/* --- reading --- */

/* Every row of the namespace, in the order of the keys. */
static bool read_all(struct kv_model *m, struct kv_result *out)
{
    struct world *w = m->world;
    struct kv_op op = {.type = KV_GET_PREFIX, .ns = NAMESPACE, .key = SPAN_LIT("k"), .limit = 1000};
    return storage_read_rows(w, &op, world_applied_end(w), out);
}

static const struct kv_row *find(const struct kv_model *m, const struct kv_result *rows,
                                 unsigned key)
{
    const struct kv_op_result *op = &rows->ops[0];
    for (size_t i = 0; i < op->n_rows; i++) {
        if (span_eq(op->rows[i].key, span_str(m->keys[key])))
            return &op->rows[i];
    }
    return NULL;
}

static void compare_row(struct kv_model *m, unsigned key, const struct kv_row *got, int64_t now)
{
    struct model_row *row = &m->rows[key];
    const char *what = NULL;
    if (live(row, now) != (got != NULL))
        what = got == NULL ? "is gone" : "is there and must not be";
    else if (got == NULL)
        return;
    else if (!same_value(row, got))
        what = "has another value";
    else if (row->version == VERSION_UNKNOWN)
        row->version = got->version;
    else if (row->version != got->version)
        what = "has another version";
    else if (row->expires_at != got->expires_at)
        what = "has another expiry";
    if (what != NULL)
        world_fail(m->world, "kv row %s %s (batch %" PRIu64 ")", m->keys[key], what, m->seq);
}

static void compare_all(struct kv_model *m, const struct kv_result *rows)
{
    int64_t now = world_applied_end(m->world);
    size_t n = 0;
    for (unsigned key = 0; key < ROWS && m->world->result->ok; key++) {
        compare_row(m, key, find(m, rows, key), now);
        n += live(&m->rows[key], now);
    }
    if (n != rows->ops[0].n_rows)
        world_fail(m->world, "kv: %zu rows are read, %zu are there", rows->ops[0].n_rows, n);
}

static void read_and_compare(struct kv_model *m)
{
    struct kv_result rows = {0};
    if (m->unanswered > 0 && m->world->full)
        return; /* one that does not fit is decided and can be read already */
    if (read_all(m, &rows))
        compare_all(m, &rows);
    kv_result_deinit(&rows);
}

void kv_model_act(struct kv_model *m)
{
    if (m->first != NULL && m->first->lost)
        return; /* it is settled by a boot whose disk works */
    if (roll(m, 4) == 0)
        read_and_compare(m);
    else if (m->unanswered < CALLS_MAX)
        send_batch(m);
}

int64_t kv_model_next_end(const struct kv_model *m, int64_t after)
{
    int64_t next = INT64_MAX;
    for (unsigned key = 0; key < ROWS; key++) {
        int64_t at = m->rows[key].expires_at;
        if (m->rows[key].there && at > after && at < next)
            next = at;
    }
    return next;
}

/* --- after a crash --- */

/* It had no answer and was applied, at this clock. */
static void apply_lost(struct kv_model *m, const struct call *c, int64_t now)
{
    struct play p;
    play_begin(m, c, now, &p);
    for (size_t at = 0; at < c->n && !p.aborted; at++)
        play_op(&p, p.order[at]);
    if (p.aborted)
        wrong(m, c, p.failed, "is required, lost, and the batch is applied after a restart");
    else
        memcpy(m->rows, p.rows, sizeof(m->rows));
}

static bool may_abort(const struct call *c)
{
    for (size_t i = 0; i < c->n; i++) {
        if (c->ops[i].required)
            return true;
    }
    return false;
}

static void settle(struct kv_model *m, const struct kv_result *rows)
{
    bool ended = false;
    for (struct call *c = m->first; c != NULL && m->world->result->ok; c = c->next) {
        unsigned key = c->ops[c->n - 1].key;
        const struct kv_row *marker = find(m, rows, key);
        bool applied = marker != NULL && span_eq(marker->value, span_str(c->ops[c->n - 1].value));
        world_detail(m->world, "kv batch %" PRIu64 " %s", c->seq,
                     applied ? "was applied" : "is lost");
        if (applied && ended)
            wrong(m, c, 0, "the batch is there and one before it is not");
        if (applied)
            apply_lost(m, c, marker->updated_at);
        if (!applied && !may_abort(c))
            ended = true;
    }
    while (m->first != NULL)
        forget(m, m->first);
}

static void rise(struct kv_model *m, const struct kv_result *rows)
{
    uint64_t before = m->last_version;
    for (size_t i = 0; i < rows->ops[0].n_rows; i++) {
        uint64_t version = rows->ops[0].rows[i].version;
        const struct model_row *row = NULL;
        for (unsigned key = 0; key < ROWS; key++) {
            if (span_eq(rows->ops[0].rows[i].key, span_str(m->keys[key])))
                row = &m->rows[key];
        }
        if (row != NULL && row->version == VERSION_UNKNOWN && version <= before)
            world_fail(m->world, "kv: a version does not rise over a restart");
        m->last_version = version > m->last_version ? version : m->last_version;
    }
}

void kv_model_check(struct kv_model *m)
{
    struct kv_result rows = {0};
    if (m->seq == 0 || !read_all(m, &rows)) {
        kv_result_deinit(&rows);
        return;
    }
    settle(m, &rows);
    rise(m, &rows);
    compare_all(m, &rows);
    kv_result_deinit(&rows);
}

/* --- beginning and end --- */

struct kv_model *kv_model_new(struct world *w)
{
    static const char *const names[KEYS] = {"k", "k/a", "k/a b", "k/ü", "k%2F", "kk", "k\"\\"};
    struct kv_model *m = mem_new(sizeof(*m));
    m->world = w;
    for (unsigned i = 0; i < ROWS; i++) {
        if (i < KEYS)
            snprintf(m->keys[i], sizeof(m->keys[i]), "%s", names[i]);
        else /* behind all others: the last version of a batch is its marker's */
            snprintf(m->keys[i], sizeof(m->keys[i]), "k~%02u", i - KEYS);
    }
    return m;
}

void kv_model_free(struct kv_model *m)
{
    if (m == NULL)
        return;
    while (m->first != NULL)
        forget(m, m->first);
    mem_free(m);
}
