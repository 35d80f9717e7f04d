/* One request: the HTTP calls it is made of, the hashes they need, and its end. See s3_client.c for
 * the states. */
#include "s3/s3_client_internal.h"

#include "base/mem.h"

/* ---- The end of a request ---- */

static void op_unlink(struct s3_client *c, struct s3_op *op)
{
    if (op->prev != NULL)
        op->prev->next = op->next;
    else
        c->ops = op->next;
    if (op->next != NULL)
        op->next->prev = op->prev;
    else
        c->last_op = op->prev;
}

void s3_op_append(struct s3_client *c, struct s3_op *op)
{
    op->prev = c->last_op;
    op->next = NULL;
    if (c->last_op != NULL)
        c->last_op->next = op;
    else
        c->ops = op;
    c->last_op = op;
}

/* It had a turn. */
void s3_op_to_end(struct s3_client *c, struct s3_op *op)
{
    op_unlink(c, op);
    s3_op_append(c, op);
}

static void op_free(struct s3_op *op)
{
    multipart_deinit(&op->parts);
    buf_deinit(&op->completion);
    digest_free(op->digest);
    s3_transfer_deinit(&op->transfer);
    s3_verdict_deinit(&op->verdict);
    mem_free(op);
}

static void request_done(struct s3_client *c, struct bucket_request *r)
{
    s3_client_lock(c);
    c->shared.outstanding--;
    s3_client_unlock(c);
    r->internal = NULL;
    r->done(r);
}

void s3_request_cancelled(struct s3_client *c, struct bucket_request *r)
{
    r->outcome = BUCKET_CANCELLED;
    r->code = 0;
    request_done(c, r);
}

void s3_op_finish(struct s3_client *c, struct s3_op *op)
{
    struct bucket_request *r = op->r;
    bool cancelled = op->cancelled;
    op_unlink(c, op);
    op_free(op);
    if (cancelled)
        s3_request_cancelled(c, r);
    else
        request_done(c, r);
}

/* Moves what was asked for into the request. */
static void take_results(struct s3_op *op)
{
    struct bucket_request *r = op->r;
    if (op->verdict.outcome != BUCKET_OK)
        return;
    if (op->call == S3_GET) {
        buf_deinit(&r->out);
        r->out = op->transfer.answer.body;
        op->transfer.answer.body = BUF_INIT;
    } else if (op->call == S3_LIST) {
        struct s3_list *list = &op->verdict.list;
        bucket_request_deinit(r);
        r->out = list->out;
        r->keys = list->keys;
        r->n_keys = list->n_keys;
        r->truncated = list->truncated;
        *list = (struct s3_list){.n_keys = 0};
    }
}

/* ---- Calls ---- */

static struct s3_body part_body(const struct s3_op *op)
{
    return (struct s3_body){.bytes = op->r->body.bytes,
                            .fd = op->r->body.fd,
                            .from = multipart_part_from(&op->parts),
                            .size = multipart_part_size(&op->parts)};
}

uint64_t s3_request_size(const struct bucket_request *r)
{
    return r->body.fd >= 0 ? r->body.size : r->body.bytes.len;
}

static void set_body(struct s3_op *op)
{
    op->body = (struct s3_body){.fd = -1};
    if (op->call == S3_PUT) {
        op->body = (struct s3_body){
            .bytes = op->r->body.bytes, .fd = op->r->body.fd, .size = s3_request_size(op->r)};
    } else if (op->call == S3_MULTIPART_PART) {
        op->body = part_body(op);
    } else if (op->call == S3_MULTIPART_COMPLETE) {
        buf_reset(&op->completion);
        multipart_put_completion(&op->parts, &op->completion);
        op->body.bytes = buf_span(&op->completion);
        op->body.size = op->completion.len;
    }
}

bool s3_op_needs_hash(const struct s3_op *op)
{
    return op->sha256[0] == '\0' && (op->body.size > 0 || op->call == S3_PUT);
}

void s3_op_call(struct s3_op *op, enum s3_call call)
{
    op->call = call;
    op->attempts = 0;
    op->sha256[0] = '\0';
    set_body(op);
    op->state = s3_op_needs_hash(op) ? OP_HASHING : OP_READY;
}

static void wait_for_next(struct s3_client *c, struct s3_op *op, unsigned made,
                          int64_t retry_after_us)
{
    int64_t wait = attempts_wait_us(c->entropy, c->limits.retry_step_us, made, retry_after_us);
    op->state = OP_WAITING;
    wait_add(&c->waiting, &op->wait, clock_mono_us(c->clock) + wait);
}

static void next_part(struct s3_client *c, struct s3_op *op)
{
    enum s3_call call = S3_MULTIPART_CREATE;
    switch (multipart_step(&op->parts, op->call, &op->verdict, &call)) {
    case MULTIPART_CALL:
        if (call == S3_MULTIPART_PART && op->parts.part > 1 && op->r->between_parts != NULL)
            op->r->between_parts(op->r);
        s3_op_call(op, call);
        break;
    case MULTIPART_RESTART:
        s3_op_call(op, S3_MULTIPART_CREATE);
        wait_for_next(c, op, op->parts.restarts, -1);
        break;
    case MULTIPART_END:
        s3_op_finish(c, op);
        break;
    }
}

/* An attempt was judged. The ABORT of an upload leaves the request as the failure before it did. */
void s3_op_judged(struct s3_client *c, struct s3_op *op, unsigned code, int64_t retry_after_us)
{
    struct bucket_request *r = op->r;
    struct s3_verdict *v = &op->verdict;
    op->attempts++;
    op->transfer.fresh = false;
    if (op->call != S3_MULTIPART_ABORT) {
        r->outcome = v->outcome;
        r->code = code;
        r->retry_after_us = retry_after_us;
        (void)snprintf(r->error, sizeof(r->error), "%s", v->error); /* of the same size */
    }
    r->attempt_label = s3_call_label(op->call);
    r->clue = v->clue;
    if (r->attempt != NULL)
        r->attempt(r, code, span_str(v->error));
    if (v->outcome == BUCKET_RETRIABLE && !v->upload_gone && op->call != S3_MULTIPART_ABORT &&
        op->attempts < ATTEMPTS_MAX) {
        wait_for_next(c, op, op->attempts, retry_after_us);
    } else if (op->in_parts) {
        next_part(c, op);
    } else {
        take_results(op);
        s3_op_finish(c, op);
    }
}

/* ---- Hashing ---- */

static void unreadable_body(struct s3_client *c, struct s3_op *op, int error)
{
    char text[256];
    (void)snprintf(text, sizeof(text), "read the object's spool file: %s",
                   strerrordesc_np(error)); /* fits */
    digest_free(op->digest);
    op->digest = NULL;
    s3_verdict_reset(&op->verdict);
    op->verdict.outcome = BUCKET_RETRIABLE;
    op->verdict.clue.silence = BUCKET_SILENT;
    s3_answer_text(op->verdict.error, "transport: ", span_str(text), NULL, 0);
    s3_op_judged(c, op, 0, -1);
}

void s3_op_hash_piece(struct s3_client *c, struct s3_op *op)
{
    if (op->digest == NULL) {
        op->digest = digest_new(op->call == S3_PUT);
        op->digested = 0;
    }
    if (op->digested < op->body.size) {
        long n = s3_body_read(&op->body, op->digested, c->scratch, S3_HASH_PIECE);
        if (n <= 0) {
            unreadable_body(c, op, (int)-n);
            return;
        }
        digest_update(op->digest, span_make(c->scratch, (size_t)n));
        op->digested += (uint64_t)n;
        s3_op_to_end(c, op);
    }
    if (op->digested < op->body.size)
        return;
    digest_final(op->digest, op->sha256, op->md5_hex, op->md5_base64);
    digest_free(op->digest);
    op->digest = NULL;
    op->state = OP_READY;
}
