/* The bucket behind an S3 endpoint: one thread, libcurl's multi interface, and for each request an
 * operation that makes one HTTP call after another.
 *
 *   HASHING --> READY --> TRANSFER --> judged --> WAITING (retry) --> READY
 *                                          \--> the next call of an upload in parts, or done
 *
 * Bodies are hashed a piece at a time, and a few pieces between transfers, so that large ones do not
 * hold the others up. An operation that takes its turn, at hashing or at the wire, goes to the end of
 * the line for the next. Everything but `shared` belongs to the thread. submit() and cancel() wake it.
 *
 * A call is retried here (attempts.h); a request that fails nevertheless is its caller's again, who
 * retries the whole. cancel() is for good: transfers are dropped, uploads in parts get one short
 * ABORT, everything ends as BUCKET_CANCELLED. */
#include "s3/s3_client.h"

#include "base/mem.h"
#include "io/pool.h"
#include "s3/attempts.h"
#include "s3/digest.h"
#include "s3/multipart.h"
#include "s3/s3_transfer.h"

#include <errno.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 5000u /* objects.md 10 Sizes and timeouts */
#define REQUEST_TIMEOUT_MS 120000u
#define STALL_S 60u
#define ABORT_MS 250u     /* decisions.md 16 keeps back a second at most, the leases need some */
#define TRANSFERS_MAX 64u /* connections */
#define HASH_PIECE (1u << 20)
#define HASH_PIECES_MAX 4u /* between two looks at the transfers: some milliseconds */
#define POLL_MAX_MS 60000

enum op_state { OP_HASHING, OP_READY, OP_TRANSFER, OP_WAITING };

struct s3_op {
    struct wait wait; /* first */
    struct bucket_request *r;
    struct s3_op *prev, *next; /* in s3_client.ops */
    enum op_state state;
    enum s3_call call;
    unsigned attempts; /* of this call */
    bool in_parts, cancelled;
    struct multipart parts;
    struct buf completion;
    struct s3_body body; /* of this call */
    struct digest *digest;
    uint64_t digested;
    char sha256[DIGEST_SHA256_HEX]; /* empty: not hashed yet */
    char md5_hex[DIGEST_MD5_HEX];
    char md5_base64[DIGEST_MD5_BASE64];
    struct s3_transfer transfer;
    struct s3_verdict verdict;
};

struct s3_client {
    struct bucket bucket; /* first: what the interface hands out */
    struct s3_place place;
    struct buf strings; /* what place points into */
    char *ca_file, *ca_dir;
    uint64_t threshold;
    struct s3_limits limits;
    struct clock *clock;
    struct entropy *entropy;
    CURLM *multi;
    struct thread *thread;
    atomic_bool cancel;
    /* thread */
    struct s3_op *ops, *last_op; /* all, in the order of their turns */
    struct wait *waiting;
    struct s3_sockets sockets;
    unsigned transfers;
    bool cancelled;
    uint8_t *scratch; /* HASH_PIECE */
    pthread_mutex_t lock;
    struct {
        struct bucket_request *first, **end; /* submitted, not taken yet */
        size_t outstanding;
        bool closing;
    } shared;
};

static void lock(struct s3_client *c)
{
    ASSERT(pthread_mutex_lock(&c->lock) == 0);
}

static void unlock(struct s3_client *c)
{
    ASSERT(pthread_mutex_unlock(&c->lock) == 0);
}

static void wake(struct s3_client *c)
{
    ASSERT(curl_multi_wakeup(c->multi) == CURLM_OK);
}

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

static void op_append(struct s3_client *c, struct s3_op *op)
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
static void op_to_end(struct s3_client *c, struct s3_op *op)
{
    op_unlink(c, op);
    op_append(c, op);
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
    lock(c);
    c->shared.outstanding--;
    unlock(c);
    r->internal = NULL;
    r->done(r);
}

static void request_cancelled(struct s3_client *c, struct bucket_request *r)
{
    r->outcome = BUCKET_CANCELLED;
    r->code = 0;
    request_done(c, r);
}

static void finish(struct s3_client *c, struct s3_op *op)
{
    struct bucket_request *r = op->r;
    bool cancelled = op->cancelled;
    op_unlink(c, op);
    op_free(op);
    if (cancelled)
        request_cancelled(c, r);
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

static uint64_t request_size(const struct bucket_request *r)
{
    return r->body.fd >= 0 ? r->body.size : r->body.bytes.len;
}

static void set_body(struct s3_op *op)
{
    op->body = (struct s3_body){.fd = -1};
    if (op->call == S3_PUT) {
        op->body = (struct s3_body){
            .bytes = op->r->body.bytes, .fd = op->r->body.fd, .size = request_size(op->r)};
    } else if (op->call == S3_MULTIPART_PART) {
        op->body = part_body(op);
    } else if (op->call == S3_MULTIPART_COMPLETE) {
        buf_reset(&op->completion);
        multipart_put_completion(&op->parts, &op->completion);
        op->body.bytes = buf_span(&op->completion);
        op->body.size = op->completion.len;
    }
}

static bool needs_hash(const struct s3_op *op)
{
    return op->sha256[0] == '\0' && (op->body.size > 0 || op->call == S3_PUT);
}

static void call_begin(struct s3_op *op, enum s3_call call)
{
    op->call = call;
    op->attempts = 0;
    op->sha256[0] = '\0';
    set_body(op);
    op->state = needs_hash(op) ? OP_HASHING : OP_READY;
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
        call_begin(op, call);
        break;
    case MULTIPART_RESTART:
        call_begin(op, S3_MULTIPART_CREATE);
        wait_for_next(c, op, op->parts.restarts, -1);
        break;
    case MULTIPART_END:
        finish(c, op);
        break;
    }
}

/* An attempt was judged. The ABORT of an upload leaves the request as the failure before it did. */
static void attempt_judged(struct s3_client *c, struct s3_op *op, unsigned code,
                           int64_t retry_after_us)
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
        finish(c, op);
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
    attempt_judged(c, op, 0, -1);
}

static void hash_piece(struct s3_client *c, struct s3_op *op)
{
    if (op->digest == NULL) {
        op->digest = digest_new(op->call == S3_PUT);
        op->digested = 0;
    }
    if (op->digested < op->body.size) {
        long n = s3_body_read(&op->body, op->digested, c->scratch, HASH_PIECE);
        if (n <= 0) {
            unreadable_body(c, op, (int)-n);
            return;
        }
        digest_update(op->digest, span_make(c->scratch, (size_t)n));
        op->digested += (uint64_t)n;
        op_to_end(c, op);
    }
    if (op->digested < op->body.size)
        return;
    digest_final(op->digest, op->sha256, op->md5_hex, op->md5_base64);
    digest_free(op->digest);
    op->digest = NULL;
    op->state = OP_READY;
}

/* ---- Transfers ---- */

/* Closes a socket for libcurl, after reading what its transfer has left unread in it. Encrypted
 * bytes would be of no use. */
static int close_socket(void *ctx, curl_socket_t fd)
{
    struct s3_client *c = ctx;
    for (struct s3_op *op = c->ops; op != NULL && !c->place.https; op = op->next) {
        if (op->state == OP_TRANSFER && op->transfer.fd == fd && op->transfer.answer.code == 0)
            s3_transfer_drain(&op->transfer);
    }
    s3_sockets_remove(&c->sockets, fd);
    return close(fd);
}

static struct span span_of(const char *text)
{
    return text != NULL ? span_str(text) : (struct span){NULL, 0};
}

static void build(struct s3_client *c, struct s3_op *op)
{
    struct bucket_request *r = op->r;
    s3_request_build(&c->place,
                     &(struct s3_call_spec){.call = op->call,
                                            .key = r->key,
                                            .start_after = r->start_after,
                                            .content_type = span_of(r->content_type),
                                            .upload_id = buf_span(&op->parts.upload_id),
                                            .part = op->parts.part,
                                            .sha256 = span_str(op->sha256),
                                            .md5 = span_str(op->md5_base64),
                                            .wall_us = clock_wall_us(c->clock)},
                     &op->transfer.wire);
}

static void transfer_begin(struct s3_client *c, struct s3_op *op)
{
    bool last = op->cancelled; /* the abort after cancel() */
    struct s3_transfer_setup setup = {
        .https = c->place.https,
        .ca_file = c->ca_file,
        .ca_dir = c->ca_dir,
        .connect_timeout_ms = last ? c->limits.abort_ms : c->limits.connect_timeout_ms,
        .timeout_ms = last ? c->limits.abort_ms : c->limits.request_timeout_ms,
        .stall_s = c->limits.stall_s,
        .keep_max = op->call == S3_GET ? op->r->get_max : S3_ANSWER_LIST_MAX,
        .sockets = &c->sockets,
        .close_socket = close_socket,
        .close_ctx = c,
    };
    build(c, op);
    s3_transfer_begin(&op->transfer, op->call, &op->body, &setup);
    ASSERT(curl_easy_setopt(op->transfer.easy, CURLOPT_PRIVATE, op) == CURLE_OK);
    ASSERT(curl_multi_add_handle(c->multi, op->transfer.easy) == CURLM_OK);
    op->state = OP_TRANSFER;
    c->transfers++;
    op_to_end(c, op);
}

static void judge_too_large(struct s3_op *op, const struct s3_expect *e)
{
    char text[96];
    (void)snprintf(text, sizeof(text), "the answer is larger than the %zu bytes that it may have",
                   op->transfer.keep_max); /* fits */
    s3_verdict_reset(&op->verdict);
    op->verdict.outcome = op->call == S3_GET ? BUCKET_TERMINAL : BUCKET_RETRIABLE;
    s3_answer_text(op->verdict.error, "body: ", span_str(text), e->secrets, e->n_secrets);
}

static void transfer_ended(struct s3_client *c, struct s3_op *op, CURLcode result)
{
    struct s3_transfer *t = &op->transfer;
    struct span secrets[] = {c->place.key.access, c->place.key.secret, span_str(t->wire.signature)};
    struct s3_expect e = {
        .call = op->call,
        .md5_hex = c->place.sse == S3_SSE_KMS ? (struct span){NULL, 0} : span_str(op->md5_hex),
        .parts = op->parts.parts,
        .prefix = op->r->key,
        .after = op->r->start_after,
        .secrets = secrets,
        .n_secrets = sizeof(secrets) / sizeof(secrets[0]),
    };
    unsigned code = 0;
    int64_t retry_after_us = -1;
    switch (s3_transfer_end(t, result, &e.body_sent)) {
    case S3_ENDED_STALE: /* not an attempt */
        t->fresh = true;
        op->state = OP_READY;
        return;
    case S3_ENDED_ANSWERED:
        code = t->answer.code;
        retry_after_us = t->answer.retry_after_us;
        if (t->too_large)
            judge_too_large(op, &e);
        else
            s3_answer_judge(&t->answer, &e, &op->verdict);
        break;
    case S3_ENDED_FAILED:
        s3_verdict_reset(&op->verdict);
        op->verdict.outcome = BUCKET_RETRIABLE;
        op->verdict.clue.silence = t->silence;
        s3_answer_text(op->verdict.error, "transport: ", span_str(t->text), e.secrets, e.n_secrets);
        break;
    }
    attempt_judged(c, op, code, retry_after_us);
}

static void take_messages(struct s3_client *c)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(c->multi, &left)) != NULL) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURL *easy = message->easy_handle;
        CURLcode result = message->data.result; /* not valid any more after the next call */
        char *op = NULL;
        ASSERT(curl_easy_getinfo(easy, CURLINFO_PRIVATE, &op) == CURLE_OK && op != NULL);
        ASSERT(curl_multi_remove_handle(c->multi, easy) == CURLM_OK);
        c->transfers--;
        transfer_ended(c, (struct s3_op *)(void *)op, result);
    }
}

/* ---- Cancelling ---- */

/* Ends an operation; an upload in parts goes on with its abort. */
static void cancel_op(struct s3_client *c, struct s3_op *op)
{
    if (op->state == OP_TRANSFER) {
        ASSERT(curl_multi_remove_handle(c->multi, op->transfer.easy) == CURLM_OK);
        s3_transfer_drop(&op->transfer);
        c->transfers--;
    }
    op->cancelled = true;
    digest_free(op->digest);
    op->digest = NULL;
    if (op->in_parts && op->parts.upload_id.len > 0)
        call_begin(op, S3_MULTIPART_ABORT);
    else
        finish(c, op);
}

static void cancel_all(struct s3_client *c)
{
    int64_t nearest;
    c->cancelled = true;
    (void)wait_take_due(&c->waiting, 0, true, &nearest); /* they stand in ops too */
    for (struct s3_op *op = c->ops, *next; op != NULL; op = next) {
        next = op->next;
        cancel_op(c, op);
    }
}

/* ---- The thread ---- */

static void op_begin(struct s3_client *c, struct bucket_request *r)
{
    static const enum s3_call calls[] = {[BUCKET_HEAD] = S3_HEAD,
                                         [BUCKET_PUT] = S3_PUT,
                                         [BUCKET_GET] = S3_GET,
                                         [BUCKET_LIST] = S3_LIST};
    if (c->cancelled) {
        request_cancelled(c, r);
        return;
    }
    struct s3_op *op = mem_new(sizeof(*op));
    op->r = r;
    op->transfer.fd = -1;
    op_append(c, op);
    r->internal = op;
    op->in_parts = r->op == BUCKET_PUT && request_size(r) > c->threshold;
    if (op->in_parts)
        multipart_init(&op->parts, request_size(r), c->limits.part_bytes);
    call_begin(op, op->in_parts ? S3_MULTIPART_CREATE : calls[r->op]);
}

/* Takes what was submitted; false at the end. */
static bool take_submitted(struct s3_client *c)
{
    lock(c);
    struct bucket_request *r = c->shared.first;
    c->shared.first = NULL;
    c->shared.end = &c->shared.first;
    bool closing = c->shared.closing;
    unlock(c);
    while (r != NULL) {
        struct bucket_request *next = r->next;
        op_begin(c, r);
        r = next;
    }
    return !closing;
}

static void end_waits(struct s3_client *c)
{
    int64_t nearest;
    struct wait *due = wait_take_due(&c->waiting, clock_mono_us(c->clock), false, &nearest);
    while (due != NULL) {
        struct s3_op *op = (struct s3_op *)due;
        due = due->next;
        op->state = needs_hash(op) ? OP_HASHING : OP_READY;
    }
}

/* Moves operations on that do not wait for the network or the clock. Those that had a turn are met
 * again at the end: in another state, or while pieces are left. */
static void work(struct s3_client *c)
{
    unsigned pieces = 0;
    for (struct s3_op *op = c->ops, *next; op != NULL; op = next) {
        next = op->next;
        if (op->state == OP_HASHING) {
            if (pieces++ < HASH_PIECES_MAX)
                hash_piece(c, op); /* may end it */
        } else if (op->state == OP_READY && c->transfers < c->limits.transfers_max) {
            transfer_begin(c, op);
        }
    }
}

static bool is_work_left(const struct s3_client *c)
{
    for (const struct s3_op *op = c->ops; op != NULL; op = op->next) {
        if (op->state == OP_HASHING ||
            (op->state == OP_READY && c->transfers < c->limits.transfers_max))
            return true;
    }
    return false;
}

static int poll_ms(struct s3_client *c)
{
    if (is_work_left(c))
        return 0;
    if (c->waiting == NULL)
        return POLL_MAX_MS;
    int64_t nearest = INT64_MAX;
    for (const struct wait *w = c->waiting; w != NULL; w = w->next)
        nearest = w->due_us < nearest ? w->due_us : nearest;
    int64_t ms = (nearest - clock_mono_us(c->clock) + 999) / 1000;
    return ms < 0 ? 0 : ms > POLL_MAX_MS ? POLL_MAX_MS : (int)ms;
}

static void client_main(void *ctx)
{
    struct s3_client *c = ctx;
    while (take_submitted(c)) {
        int running;
        if (atomic_load(&c->cancel) && !c->cancelled)
            cancel_all(c);
        end_waits(c);
        work(c);
        ASSERT(curl_multi_perform(c->multi, &running) == CURLM_OK);
        take_messages(c);
        ASSERT(curl_multi_poll(c->multi, NULL, 0, poll_ms(c), NULL) == CURLM_OK);
    }
}

/* ---- The interface ---- */

static void submit(struct bucket *bucket, struct bucket_request *r)
{
    struct s3_client *c = (struct s3_client *)bucket;
    attempts_begin(r);
    r->next = NULL;
    lock(c);
    ASSERT(!c->shared.closing);
    *c->shared.end = r;
    c->shared.end = &r->next;
    c->shared.outstanding++;
    unlock(c);
    wake(c);
}

static void cancel(struct bucket *bucket)
{
    struct s3_client *c = (struct s3_client *)bucket;
    atomic_store(&c->cancel, true);
    wake(c);
}

static void client_free(struct s3_client *c)
{
    if (c->multi != NULL)
        (void)curl_multi_cleanup(c->multi); /* nothing is on it */
    (void)pthread_mutex_destroy(&c->lock);  /* unlocked */
    mem_free(c->sockets.fds);
    mem_free(c->scratch);
    mem_free(c->ca_file);
    mem_free(c->ca_dir);
    buf_deinit(&c->strings);
    mem_free(c);
}

static void close_client(struct bucket *bucket)
{
    struct s3_client *c = (struct s3_client *)bucket;
    lock(c);
    ASSERT(c->shared.outstanding == 0);
    c->shared.closing = true;
    unlock(c);
    wake(c);
    thread_join(c->thread);
    client_free(c);
}

static const struct bucket_ops s3_bucket_ops = {
    .submit = submit,
    .cancel = cancel,
    .close = close_client,
};

static void start_libcurl(void)
{
    ASSERT(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static struct span keep(struct s3_client *c, struct span text)
{
    size_t at = c->strings.len;
    buf_put_span(&c->strings, text);
    return span_make(c->strings.ptr + at, text.len);
}

static void copy_place(struct s3_client *c, const struct s3_client_options *o)
{
    struct s3_place *p = &c->place;
    buf_reserve(&c->strings, p->authority.len + o->bucket.len + o->region.len + o->access_key.len +
                                 o->secret_key.len + o->kms_key_id.len);
    p->path_style = o->path_style;
    p->authority = keep(c, p->authority);
    p->bucket = keep(c, o->bucket);
    p->key.region = keep(c, o->region);
    p->key.access = keep(c, o->access_key);
    p->key.secret = keep(c, o->secret_key);
    p->sse = o->sse;
    p->kms_key_id = keep(c, o->kms_key_id);
}

static void set_limits(struct s3_limits *l)
{
    l->connect_timeout_ms = l->connect_timeout_ms ? l->connect_timeout_ms : CONNECT_TIMEOUT_MS;
    l->request_timeout_ms = l->request_timeout_ms ? l->request_timeout_ms : REQUEST_TIMEOUT_MS;
    l->stall_s = l->stall_s ? l->stall_s : STALL_S;
    l->abort_ms = l->abort_ms ? l->abort_ms : ABORT_MS;
    l->transfers_max = l->transfers_max ? l->transfers_max : TRANSFERS_MAX;
    l->retry_step_us = l->retry_step_us ? l->retry_step_us : ATTEMPTS_STEP_US;
    l->part_bytes = l->part_bytes ? l->part_bytes : S3_PART_BYTES;
}

enum err s3_client_open(const struct s3_client_options *options, struct bucket **out,
                        struct error *error)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct s3_place place = {.https = false};
    if (s3_place_set_endpoint(&place, options->endpoint) != ERR_OK)
        return error_set(error, ERR_INVALID,
                         "the endpoint " SPAN_FMT " is no http(s)://host[:port]",
                         SPAN_ARG(options->endpoint));
    ASSERT(options->multipart_threshold > 0);
    ASSERT(pthread_once(&once, start_libcurl) == 0);
    struct s3_client *c = mem_new(sizeof(*c));
    c->bucket.ops = &s3_bucket_ops;
    c->place = place;
    copy_place(c, options);
    c->ca_file = options->ca_file.len > 0 ? span_dup(options->ca_file) : NULL;
    c->ca_dir = options->ca_dir.len > 0 ? span_dup(options->ca_dir) : NULL;
    c->threshold = options->multipart_threshold;
    c->limits = options->limits;
    set_limits(&c->limits);
    c->clock = options->clock;
    c->entropy = options->entropy;
    c->scratch = mem_new(HASH_PIECE);
    c->shared.end = &c->shared.first;
    ASSERT(pthread_mutex_init(&c->lock, NULL) == 0);
    c->multi = curl_multi_init();
    if (c->multi == NULL) {
        client_free(c);
        return error_set(error, ERR_NOMEM, "libcurl does not start");
    }
    ASSERT(curl_multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, (long)c->limits.transfers_max) ==
           CURLM_OK);
    c->thread = thread_start("queen-s3-http", client_main, c);
    *out = &c->bucket;
    return ERR_OK;
}
