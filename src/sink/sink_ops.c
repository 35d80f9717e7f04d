/* Carrying out what a task's step asked for, and turning the answers into events. */
#include "sink/sink_internal.h"

#include "base/mem.h"

/* --- KV --- */

static void kv_outcome(struct op *op, enum err err, struct kv_result *result)
{
    op->err = err;
    switch (err) {
    case ERR_OK:
        op->outcome = result->aborted ? SINK_KV_LOST : SINK_KV_OK;
        return;
    case ERR_STORAGE_FULL:
    case ERR_OVERLOADED:
    case ERR_AGAIN:
    case ERR_NO_SPACE:
    case ERR_NOMEM:
        op->outcome = SINK_KV_RETRIABLE;
        break;
    case ERR_STOPPED: /* also a write that failed half way */
    case ERR_TIMEOUT:
        op->outcome = SINK_KV_UNKNOWN;
        break;
    default:
        op->outcome = SINK_KV_TERMINAL;
        break;
    }
    (void)error_set(&op->error, err, "%s",
                    op->error.text[0] != '\0' ? op->error.text : err_text(err));
}

static void kv_done(struct node_request *request)
{
    struct op *op = request->ctx;

    kv_outcome(op, request->err, &request->kv);
    sink_op_done(op);
}

static bool is_read(enum kv_op_type type)
{
    return type == KV_GET || type == KV_GET_MANY || type == KV_GET_PREFIX;
}

/* A call of writes: one command. Read operations in it see what it wrote. */
void sink_kv_submit(struct op *op, const struct kv_op *ops, size_t n)
{
    op->request.type = COMMAND_KV;
    op->request.done = kv_done;
    op->request.ctx = op;
    kv_encode(&op->request.body, &op->sink->tenant, ops, n);
    node_submit(op->sink->options.node, &op->request);
}

/* What a read borrows must live until it was made. */
static void keep_read(struct op *op, const struct kv_op *read)
{
    size_t size = read->key.len;

    for (size_t i = 0; i < read->n_keys; i++)
        size += read->keys[i].len;
    buf_reserve(&op->bytes, size);
    op->read = *read;
    op->is_read = true;
    buf_put_span(&op->bytes, read->key);
    op->read.key = buf_span(&op->bytes);
    op->read.keys = op->read_keys;
    ASSERT(read->n_keys <= sizeof(op->read_keys) / sizeof(op->read_keys[0]));
    for (size_t i = 0; i < read->n_keys; i++) {
        size_t at = op->bytes.len;
        buf_put_span(&op->bytes, read->keys[i]);
        op->read_keys[i] = span_make(op->bytes.ptr + at, read->keys[i].len);
    }
}

/* Clock of the last thing that was applied: every later command's is above it. */
static int64_t applied_end(struct state *state)
{
    const struct state_meta *meta = state_meta(state);

    return meta->last_clock + (meta->last_count > 0 ? (int64_t)meta->last_count - 1 : 0);
}

/* A row that is due by the proposer's clock, but not yet by what was applied, is read again behind
 * a clock entry, so that nothing that was called dead comes back (docs/architecture.md, Clock). */
void sink_kv_read(struct op *op)
{
    struct sink *s = op->sink;
    struct node *node = s->options.node;
    int64_t estimate = node_clock_estimate(node);
    bool due = false;

    kv_result_deinit(&op->result);
    op->result = (struct kv_result){0};
    struct state *state = node_read_begin(node);
    enum err err = kv_read(state, &s->tenant, &op->read, 1, applied_end(state), estimate,
                           &op->result, &due, &op->error);
    node_read_end(node);
    due = due && !node_clock_paused(node);
    if (err == ERR_OK && due && ++op->tries < SINK_READ_TRIES_MAX) {
        node_request_clock_entry(node);
        pthread_mutex_lock(&s->lock);
        op->next = s->rereads;
        s->rereads = op;
        s->entry_applied = false;
        s->reread_us = sink_now(s) + SINK_READ_AGAIN_US;
        atomic_store(&s->clock_next, INT64_MIN); /* any entry will do */
        pthread_mutex_unlock(&s->lock);
        return;
    }
    kv_outcome(op, err == ERR_OK && due ? ERR_TIMEOUT : err, &op->result);
    sink_op_done(op);
}

static void do_kv(struct op *op, const struct sink_action *action)
{
    if (action->kv.n == 1 && is_read(action->kv.ops[0].type)) {
        keep_read(op, &action->kv.ops[0]);
        sink_kv_read(op);
    } else {
        sink_kv_submit(op, action->kv.ops, action->kv.n);
    }
}

/* --- look-up --- */

static void do_look_up(struct op *op)
{
    struct node *node = op->sink->options.node;

    op->safe_time = node_safe_time(node); /* before the state is looked at */
    struct state *state = node_read_begin(node);
    const struct queue *q = state_queue_find(state, &op->sink->tenant, buf_span(&op->slot->name));
    if (q != NULL) {
        op->found = true;
        op->queue_id = q->id;
        op->partitions = q->partition_count;
        op->log_end = q->log_length;
    }
    node_read_end(node);
    sink_op_done(op);
}

/* --- crash points --- */

static void crash(struct sink *s, enum sink_crash_point point)
{
    if (s->options.crash != NULL)
        s->options.crash(s->options.crash_ctx, point);
    pthread_mutex_lock(&s->lock);
    s->crashed = true; /* a simulator drops everything now */
    pthread_mutex_unlock(&s->lock);
}

static void do_crash(struct sink *s, enum sink_crash_point point)
{
    sink_log_crash(point);
    crash(s, point);
}

/* The other place of mid_upload (spec/settings.md 5). */
static void between_parts(struct bucket_request *r)
{
    struct op *op = r->ctx;

    if (op->sink->node->crash_at != SINK_CRASH_MID_UPLOAD)
        return;
    sink_log_crash_between_parts();
    crash(op->sink, SINK_CRASH_MID_UPLOAD);
}

/* --- bucket --- */

static void bucket_attempt(struct bucket_request *r, unsigned code, struct span error)
{
    struct op *op = r->ctx;

    if (!sink_bucket_attempt(op, code, error) || error.len == 0 || op->slot == NULL)
        return;
    struct op *told = sink_op_new(op->sink, op->slot, OP_ATTEMPT, op->number);
    buf_put_span(&told->bytes, buf_span(&op->told));
    sink_op_done(told);
}

static void bucket_done(struct bucket_request *r)
{
    struct op *op = r->ctx;

    op->retry_after_us = r->retry_after_us;
    if (op->is_checkpoint && r->outcome == BUCKET_OK)
        sink_job_submit(op, sink_job_load_checkpoint); /* may hold a million rows */
    else
        sink_op_done(op);
}

void sink_bucket_submit(struct op *op)
{
    op->bucket.key = buf_span(&op->key);
    op->bucket.done = bucket_done;
    op->bucket.attempt = bucket_attempt;
    op->bucket.between_parts = between_parts;
    op->bucket.ctx = op;
    op->bucket.retry_after_us = -1;
    bucket_submit(op->sink->options.bucket, &op->bucket);
}

static void do_put(struct op *op, const struct sink_action *action)
{
    struct slot *slot = op->slot;
    struct sink *s = op->sink;

    op->bucket.op = BUCKET_PUT;
    op->bucket.content_type = action->put.content_type;
    buf_put_span(&op->key, action->put.key);
    if (action->type == SINK_DO_PUT_OBJECT) {
        pthread_mutex_lock(&s->lock);
        ASSERT(slot->built != NULL);
        op->built = slot->built;
        op->built->refs++;
        pthread_mutex_unlock(&s->lock);
        const struct lake_object *object = &op->built->object;
        op->bucket.body = (struct bucket_body){
            .bytes = buf_span(&object->bytes), .fd = object->fd, .size = object->size};
    } else {
        buf_put_span(&op->bytes,
                     action->type == SINK_DO_PUT ? action->put.bytes : buf_span(&slot->checkpoint));
        op->bucket.body =
            (struct bucket_body){.bytes = buf_span(&op->bytes), .fd = -1, .size = op->bytes.len};
    }
    sink_bucket_submit(op);
}

static void do_get(struct op *op, const struct sink_action *action)
{
    op->bucket.op = BUCKET_GET;
    op->is_checkpoint = action->get.is_checkpoint;
    op->bucket.get_max = op->is_checkpoint ? SINK_CHECKPOINT_MAX : SINK_MANIFEST_MAX;
    buf_put_span(&op->key, action->get.key);
    sink_bucket_submit(op);
}

static void do_list(struct op *op, const struct sink_action *action)
{
    op->bucket.op = BUCKET_LIST;
    buf_put_span(&op->key, action->list.prefix);
    buf_put_span(&op->after, action->list.start_after);
    op->bucket.start_after = buf_span(&op->after);
    sink_bucket_submit(op);
}

/* --- jobs --- */

static struct span keep(struct op *op, struct span text)
{
    size_t at = op->bytes.len;

    buf_put_span(&op->bytes, text);
    return span_make(op->bytes.ptr + at, text.len);
}

/* The task may be on to another run before the build is done: its strings are copied. */
static void do_build(struct op *op, const struct sink_action *action)
{
    struct lake_spec *spec = &op->action.build.window.spec;

    op->action = *action;
    buf_reserve(&op->bytes, spec->endpoint.len + spec->bucket.len + spec->prefix.len +
                                spec->tenant.len + spec->queue.len);
    spec->endpoint = keep(op, spec->endpoint);
    spec->bucket = keep(op, spec->bucket);
    spec->prefix = keep(op, spec->prefix);
    spec->tenant = keep(op, spec->tenant);
    spec->queue = keep(op, spec->queue);
    sink_job_submit(op, sink_job_build);
}

static void do_job(struct op *op, const struct sink_action *action, void (*job)(void *ctx))
{
    op->action = *action;
    sink_job_submit(op, job);
}

/* --- */

void sink_carry_out(struct slot *slot, const struct sink_actions *actions)
{
    struct sink *s = slot->sink;

    for (size_t i = 0; i < actions->n; i++) {
        const struct sink_action *a = &actions->items[i];
        switch (a->type) {
        case SINK_DO_KV:
            do_kv(sink_op_new(s, slot, OP_KV, a->op), a);
            break;
        case SINK_DO_LOOK_UP:
            do_look_up(sink_op_new(s, slot, OP_LOOK_UP, a->op));
            break;
        case SINK_DO_SCAN:
            do_job(sink_op_new(s, slot, OP_SCAN, a->op), a, sink_job_scan);
            break;
        case SINK_DO_BUILD:
            do_build(sink_op_new(s, slot, OP_BUILD, a->op), a);
            break;
        case SINK_DO_BUILD_CHECKPOINT:
            do_job(sink_op_new(s, slot, OP_CHECKPOINT, a->op), a, sink_job_checkpoint);
            break;
        case SINK_DO_PUT_OBJECT:
        case SINK_DO_PUT_CHECKPOINT:
        case SINK_DO_PUT:
            do_put(sink_op_new(s, slot, OP_BUCKET, a->op), a);
            break;
        case SINK_DO_GET:
            do_get(sink_op_new(s, slot, OP_BUCKET, a->op), a);
            break;
        case SINK_DO_LIST:
            do_list(sink_op_new(s, slot, OP_BUCKET, a->op), a);
            break;
        case SINK_DO_CRASH:
            do_crash(s, a->crash);
            break;
        case SINK_DO_NOTE:
            sink_log_note(&s->log, buf_span(&slot->name), &a->note, sink_now(s));
            break;
        }
    }
}

/* --- answers --- */

static void bucket_event(struct op *op, struct sink_event *event)
{
    const struct bucket_request *r = &op->bucket;

    if (op->is_checkpoint && r->outcome == BUCKET_OK) {
        event->type = SINK_EVENT_CHECKPOINT;
        event->checkpoint.err = op->err;
        event->checkpoint.rows = op->rows;
        event->checkpoint.k = op->k;
        event->checkpoint.t_end = op->t_end;
        event->checkpoint.near = op->near;
        return;
    }
    event->type = SINK_EVENT_BUCKET;
    event->error = op->told.len > 0 ? buf_span(&op->told) : span_str(r->error);
    event->bucket.outcome = r->outcome;
    event->bucket.body = buf_span(&r->out);
    event->bucket.keys = r->keys;
    event->bucket.n_keys = r->n_keys;
    event->bucket.truncated = r->truncated;
}

static void built_event(struct op *op, struct sink_event *event)
{
    struct slot *slot = op->slot;

    event->type = SINK_EVENT_BUILT;
    event->built.err = op->err;
    event->built.out = op->summary;
    if (op->err != ERR_OK || op->number != slot->build_op)
        return;
    sink_built_unref(slot->built);
    slot->built = op->built;
    op->built = NULL;
}

void sink_op_event(struct op *op, struct sink_event *event)
{
    struct slot *slot = op->slot;

    event->op = op->number;
    event->error = span_str(op->error.text);
    event->retry_after_us = op->retry_after_us;
    switch (op->kind) {
    case OP_KV:
        event->type = SINK_EVENT_KV;
        event->kv.outcome = op->outcome;
        event->kv.result = op->is_read ? &op->result : &op->request.kv;
        break;
    case OP_LOOK_UP:
        event->type = SINK_EVENT_QUEUE;
        event->safe_time = op->safe_time;
        event->queue.found = op->found;
        event->queue.id = op->queue_id;
        event->queue.partitions = op->partitions;
        event->queue.log_end = op->log_end;
        break;
    case OP_SCAN:
        event->type = SINK_EVENT_SCANNED;
        event->scanned.err = op->err;
        event->scanned.out = op->scanned;
        if (op->err == ERR_OK)
            slot->fetch_ok++;
        else
            slot->fetch_error++;
        break;
    case OP_BUILD:
        built_event(op, event);
        break;
    case OP_CHECKPOINT:
        event->type = SINK_EVENT_CHECKPOINT;
        event->checkpoint.err = op->err;
        event->checkpoint.rows = op->rows;
        if (op->err == ERR_OK && op->number == slot->checkpoint_op) {
            buf_deinit(&slot->checkpoint);
            slot->checkpoint = op->bytes;
            op->bytes = BUF_INIT;
        }
        break;
    case OP_BUCKET:
        bucket_event(op, event);
        break;
    case OP_ATTEMPT:
        event->type = SINK_EVENT_ATTEMPT;
        event->error = buf_span(&op->bytes);
        break;
    case OP_PROBE:
    case OP_PROBE_LIST:
    case OP_BEAT:
    case OP_BEAT_PAGE:
    case OP_PRESENCE_LOOK:
    case OP_PRESENCE_DELETE:
        break; /* the unit's, never in a slot's inbox */
    }
}
