/* Applying a call with writes (kv.md 3.3).
 *
 * Operations of one key are evaluated in byte order of (namespace, key) and by request position
 * within a key. What they do to a key is gathered beside the state; only when no required operation
 * has lost is it written, then the pins follow, then the multi-key reads see all of it. An abort so
 * leaves nothing behind, not even a version. */
#include "kv/kv.h"

#include "base/mem.h"
#include "kv/kv_internal.h"

struct turn {
    const struct kv_op *op;
    uint32_t index; /* in the request */
};

/* A key's row at the end of the call, where it changed. */
struct change {
    struct buf key; /* of the state row */
    struct kv_stored row;
};

struct job {
    struct state *s;
    int64_t now;
    struct kv_call call;
    struct turn *turns; /* single-key operations in order of evaluation */
    size_t turn_count;
    struct change *changes;
    size_t change_count;
    const struct kv_op **pin_ops; /* whose pin takes effect */
    size_t pin_count;
    uint64_t version;         /* last one given */
    struct kv_result *result; /* being built; NULL on replay */
    struct kv_reader reader;
    struct error *error;
    bool aborted;
};

static int turn_order(const void *a, const void *b)
{
    const struct turn *ta = a, *tb = b;
    int order = span_cmp(ta->op->ns, tb->op->ns);
    if (order == 0)
        order = span_cmp(ta->op->key, tb->op->key);
    if (order == 0)
        order = (ta->index > tb->index) - (ta->index < tb->index);
    return order;
}

static bool same_key(const struct kv_op *a, const struct kv_op *b)
{
    return span_eq(a->ns, b->ns) && span_eq(a->key, b->key);
}

/* --- one operation against its key's row --- */

static enum kv_reason check_expect(const struct kv_op *op, const struct kv_stored *row)
{
    if (op->type != KV_PUT_IF_ABSENT && !op->has_expect)
        return op->type == KV_DELETE && !row->live ? KV_REASON_ABSENT : KV_REASON_NONE;
    uint64_t expect = op->type == KV_PUT_IF_ABSENT ? 0 : op->expect;
    if (expect == 0)
        return row->live ? KV_REASON_EXISTS : KV_REASON_NONE;
    if (!row->live)
        return KV_REASON_ABSENT;
    return row->version == expect ? KV_REASON_NONE : KV_REASON_VERSION;
}

/* The queue id must be the live one of its name when the intent applies (design: window pin). */
static bool pin_refused(struct job *job, const struct kv_op *op)
{
    if (op->pin != KV_PIN_SET)
        return false;
    const struct queue *q = state_queue_find(job->s, &job->call.tenant, op->pin_queue);
    return q == NULL || q->id != op->pin_queue_id;
}

static void write_row(struct job *job, const struct kv_op *op, struct kv_stored *row,
                      struct span value, int64_t expires_at)
{
    (void)op;
    buf_reset(&row->value);
    buf_put_span(&row->value, value);
    row->live = true;
    row->version = ++job->version;
    row->expires_at = expires_at;
    row->updated_at = job->now;
}

static enum kv_reason eval_incr(struct job *job, const struct kv_op *op, struct kv_stored *row,
                                bool *changed)
{
    struct buf sum = BUF_INIT;
    enum kv_reason reason = kv_number_add(row->live ? buf_span(&row->value) : SPAN_LIT("0"),
                                          op->value, op->min, op->max, &sum);
    if (reason == KV_REASON_NONE) {
        write_row(job, op, row, buf_span(&sum),
                  row->live ? row->expires_at : kv_expiry(op, job->now));
        *changed = true;
    }
    buf_deinit(&sum);
    return reason;
}

/* Changes *row as the operation says and fills in `result` (may be NULL). */
static enum kv_reason eval_write(struct job *job, const struct kv_op *op, struct kv_stored *row,
                                 bool *changed, struct kv_op_result *result)
{
    enum kv_reason reason = check_expect(op, row);
    if (reason == KV_REASON_NONE && pin_refused(job, op))
        reason = KV_REASON_QUEUE;
    bool removes = op->type == KV_DELETE && reason == KV_REASON_NONE && row->live;
    if (removes && result != NULL) /* what a delete shows is what it removes */
        kv_result_row(job->result, &result->row, op->key, row);
    if (reason == KV_REASON_NONE && (op->type == KV_PUT || op->type == KV_PUT_IF_ABSENT)) {
        write_row(job, op, row, op->value, kv_expiry(op, job->now));
        *changed = true;
    }
    if (op->type == KV_INCR)
        reason = eval_incr(job, op, row, changed);
    if (removes) {
        row->live = false;
        *changed = true;
    }
    if (result != NULL) {
        if (!removes)
            kv_result_row(job->result, &result->row, op->key, row);
        result->applied = reason == KV_REASON_NONE;
        result->reason = reason;
    }
    return reason;
}

/* Does the operation's pin, or the pin of the row it deletes, change with it? */
static bool moves_pin(const struct kv_op *op, enum kv_reason reason, const struct kv_stored *row)
{
    if (op->type == KV_DELETE) /* also where the row had expired or was gone */
        return !row->live && span_eq(op->ns, span_str(KV_PIN_NAMESPACE));
    return op->pin != KV_PIN_NONE && reason == KV_REASON_NONE;
}

static void abort_call(struct job *job, const struct turn *turn, enum kv_reason reason,
                       const struct kv_stored *row)
{
    job->aborted = true;
    if (job->result == NULL)
        return;
    kv_result_empty(job->result);
    job->result->aborted = true;
    job->result->failed_index = turn->index;
    job->result->failed_reason = reason;
    kv_result_row(job->result, &job->result->failed_row, turn->op->key, row);
}

/* One key's operations, turns[from] on; *next_out: the first of the next key. */
static enum err eval_key(struct job *job, size_t from, size_t *next_out)
{
    const struct kv_op *first = job->turns[from].op;
    struct change *change = &job->changes[job->change_count];
    bool changed = false;
    size_t i = from;
    kv_key_make(&change->key, &job->call.tenant, first->ns, first->key);
    TRY(kv_row_load(job->s, buf_span(&change->key), job->now, &change->row, NULL, job->error));
    for (; i < job->turn_count && same_key(job->turns[i].op, first) && !job->aborted; i++) {
        const struct turn *turn = &job->turns[i];
        struct kv_op_result *result = job->result == NULL ? NULL : &job->result->ops[turn->index];
        if (turn->op->type == KV_GET) {
            if (result != NULL) {
                result->found = change->row.live;
                kv_result_row(job->result, &result->row, turn->op->key, &change->row);
                job->reader.bytes += change->row.live ? change->row.value.len : 0;
            }
            continue;
        }
        enum kv_reason reason = eval_write(job, turn->op, &change->row, &changed, result);
        if (reason != KV_REASON_NONE && turn->op->required)
            abort_call(job, turn, reason, &change->row);
        else if (moves_pin(turn->op, reason, &change->row))
            job->pin_ops[job->pin_count++] = turn->op;
    }
    job->change_count += changed;
    *next_out = i;
    return ERR_OK;
}

/* --- the call --- */

static void turns_make(struct job *job)
{
    size_t n = job->call.n;
    job->turns = MEM_ARRAY(struct turn, n + 1);
    job->changes = MEM_ARRAY(struct change, n + 1);
    job->pin_ops = MEM_ARRAY(const struct kv_op *, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (kv_op_single(job->call.ops[i].type))
            job->turns[job->turn_count++] = (struct turn){&job->call.ops[i], (uint32_t)i};
    }
    qsort(job->turns, job->turn_count, sizeof(*job->turns), turn_order);
}

/* Each row written pays for the removal of two that expired: their number cannot grow for long. */
#define EXPIRE_PER_CHANGE 2

static enum err write_changes(struct job *job)
{
    struct kv_tally tally = {.s = job->s, .error = job->error};
    enum err err = ERR_OK;
    for (size_t i = 0; i < job->change_count && err == ERR_OK; i++)
        err = kv_row_store(job->s, buf_span(&job->changes[i].key), &job->changes[i].row, &tally);
    enum err end = kv_tally_end(&tally);
    TRY(err);
    TRY(end);
    state_meta(job->s)->kv_version = job->version;
    return kv_expire(job->s, job->now, EXPIRE_PER_CHANGE * job->change_count, job->error);
}

static void move_pins(struct job *job)
{
    const struct tenant_id *tenant = &job->call.tenant;
    for (size_t i = 0; i < job->pin_count; i++) {
        const struct kv_op *op = job->pin_ops[i];
        if (op->type == KV_DELETE)
            state_pin_remove(job->s, tenant, op->key);
        else if (op->pin == KV_PIN_SET)
            state_pin_set(job->s, tenant, op->key, op->pin_queue_id, op->pin_t_start,
                          op->pin_t_end);
        else
            state_pin_remove(job->s, tenant, op->pin_key);
    }
}

static enum err read_multi(struct job *job)
{
    for (size_t i = 0; i < job->call.n && job->result != NULL; i++) {
        if (!kv_op_single(job->call.ops[i].type))
            TRY(kv_read_op(&job->reader, &job->call.ops[i], &job->result->ops[i]));
    }
    return ERR_OK;
}

static enum err run(struct job *job)
{
    turns_make(job);
    for (size_t at = 0; at < job->turn_count && !job->aborted;)
        TRY(eval_key(job, at, &at));
    if (job->aborted)
        return ERR_OK;
    TRY(write_changes(job));
    move_pins(job);
    return read_multi(job);
}

static void job_deinit(struct job *job)
{
    for (size_t i = 0; job->changes != NULL && i < job->call.n + 1; i++) {
        buf_deinit(&job->changes[i].key);
        buf_deinit(&job->changes[i].row.value);
    }
    mem_free(job->changes);
    mem_free(job->turns);
    mem_free(job->pin_ops);
    kv_call_deinit(&job->call);
}

enum err kv_apply(struct state *s, struct apply_context *at, struct span body,
                  struct kv_result *result, struct error *error)
{
    struct kv_result built;
    struct job job = {
        .s = s,
        .now = at->now,
        .version = state_meta(s)->kv_version,
        .error = error,
        .result = result == NULL ? NULL : &built,
    };
    if (kv_decode(body, &job.call) != ERR_OK)
        return error_set(error, ERR_CORRUPT, "a kv command does not decode");
    job.reader = (struct kv_reader){.s = s,
                                    .tenant = job.call.tenant,
                                    .now = at->now,
                                    .steps = KV_READ_STEPS_MAX,
                                    .result = &built,
                                    .error = error};
    if (result != NULL)
        kv_result_begin(&built, job.call.ops, job.call.n);

    enum err err = run(&job);
    job_deinit(&job);
    if (result == NULL)
        return err;
    if (err != ERR_OK) {
        kv_result_deinit(&built);
        return err;
    }
    kv_result_end(&built);
    *result = built;
    return ERR_OK;
}
