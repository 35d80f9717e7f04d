/* Lease refreshes that fall due together go together: one command for many queues, instead of one
 * each. A thousand idle queues so cost the log a write or two a second.
 *
 * The operations of such a command are independent: none is `required`, so one that loses says so
 * and leaves the others alone. One that lost is sent again by itself, as its task made it: the
 * answer then names the row that it lost to.
 *
 * The first op carries the command; the others hang behind it by `next` until the answer. */
#include "sink/sink_internal.h"

#include "base/mem.h"

#define TOGETHER_MAX 256u

void sink_refresh_add(struct op *op, const struct kv_op *write)
{
    struct sink *s = op->sink;

    buf_reserve(&op->bytes, write->key.len + write->value.len);
    op->read = *write;
    buf_put_span(&op->bytes, write->key);
    buf_put_span(&op->bytes, write->value);
    op->read.key = span_make(op->bytes.ptr, write->key.len);
    op->read.value = span_make(op->bytes.ptr + write->key.len, write->value.len);
    pthread_mutex_lock(&s->lock);
    *s->refreshes_last = op;
    s->refreshes_last = &op->next;
    s->n_refreshes++;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

bool sink_refresh_due(const struct sink *s)
{
    return s->n_refreshes >= TOGETHER_MAX;
}

/* What became of one of them; the lease's version as the task reads it. */
static void take_result(struct op *op, enum err err, const struct kv_op_result *mine)
{
    op->is_refresh = true;
    if (err == ERR_OK) {
        op->result.ops = MEM_ARRAY(struct kv_op_result, 1);
        op->result.n = 1;
        op->result.ops[0].applied = true;
        op->result.ops[0].row.version = mine->row.version;
    }
    sink_kv_outcome(op, err, &op->result);
    sink_op_done(op);
}

static void refresh_done(struct node_request *request)
{
    struct op *first = request->ctx, *op = first->next;
    const struct kv_op_result *mine = request->err == ERR_OK ? request->kv.ops : NULL;
    bool lost = mine != NULL && !mine->applied;

    for (size_t i = 1; op != NULL; i++) {
        struct op *next = op->next;
        op->next = NULL;
        if (mine != NULL && !mine[i].applied)
            sink_kv_submit(op, &op->read, 1);
        else
            take_result(op, request->err, mine == NULL ? NULL : &mine[i]);
        op = next;
    }
    first->next = NULL;
    if (!lost) {
        take_result(first, request->err, mine);
        return;
    }
    node_request_deinit(request); /* it is used again */
    *request = (struct node_request){0};
    sink_kv_submit(first, &first->read, 1);
}

void sink_refresh_send(struct sink *s)
{
    struct op *first = s->refreshes;
    struct kv_op *ops = MEM_ARRAY(struct kv_op, s->n_refreshes);
    size_t n = 0;

    for (struct op *op = first; op != NULL; op = op->next) {
        ops[n] = op->read;
        ops[n++].required = false;
    }
    s->refreshes = NULL;
    s->refreshes_last = &s->refreshes;
    s->n_refreshes = 0;
    pthread_mutex_unlock(&s->lock);
    first->request.type = COMMAND_KV;
    first->request.done = refresh_done;
    first->request.ctx = first;
    kv_encode(&first->request.body, &s->tenant, ops, n);
    mem_free(ops);
    node_submit(s->options.node, &first->request);
    pthread_mutex_lock(&s->lock);
}
