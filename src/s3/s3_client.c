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
#include "s3/s3_client_internal.h"

#include "base/mem.h"

#include <errno.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_MS 5000u /* objects.md 10 Sizes and timeouts */
#define REQUEST_TIMEOUT_MS 120000u
#define STALL_S 60u
#define ABORT_MS 250u      /* decisions.md 16 keeps back a second at most, the leases need some */
#define TRANSFERS_MAX 64u  /* connections */
#define HASH_PIECES_MAX 4u /* between two looks at the transfers: some milliseconds */
#define POLL_MAX_MS 60000

static void wake(struct s3_client *c)
{
    ASSERT(curl_multi_wakeup(c->multi) == CURLM_OK);
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
    s3_op_to_end(c, op);
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
    s3_op_judged(c, op, code, retry_after_us);
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
        s3_op_call(op, S3_MULTIPART_ABORT);
    else
        s3_op_finish(c, op);
}

static void cancel_all(struct s3_client *c)
{
    int64_t nearest;
    c->cancelled = true;
    c->aborts_end_us = clock_mono_us(c->clock) + (int64_t)c->limits.abort_ms * 1000;
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
        s3_request_cancelled(c, r);
        return;
    }
    struct s3_op *op = mem_new(sizeof(*op));
    op->r = r;
    op->transfer.fd = -1;
    s3_op_append(c, op);
    r->internal = op;
    op->in_parts = r->op == BUCKET_PUT && s3_request_size(r) > c->threshold;
    if (op->in_parts)
        multipart_init(&op->parts, s3_request_size(r), c->limits.part_bytes);
    s3_op_call(op, op->in_parts ? S3_MULTIPART_CREATE : calls[r->op]);
}

/* Takes what was submitted; false at the end. */
static bool take_submitted(struct s3_client *c)
{
    s3_client_lock(c);
    struct bucket_request *r = c->shared.first;
    c->shared.first = NULL;
    c->shared.end = &c->shared.first;
    bool closing = c->shared.closing;
    s3_client_unlock(c);
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
        op->state = s3_op_needs_hash(op) ? OP_HASHING : OP_READY;
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
                s3_op_hash_piece(c, op); /* may end it */
        } else if (op->state == OP_READY && c->transfers < c->limits.transfers_max) {
            if (op->cancelled && clock_mono_us(c->clock) >= c->aborts_end_us)
                s3_op_finish(c,
                             op); /* a redo makes another upload; the store's rules end this one */
            else
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
    s3_client_lock(c);
    ASSERT(!c->shared.closing);
    *c->shared.end = r;
    c->shared.end = &r->next;
    c->shared.outstanding++;
    s3_client_unlock(c);
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
    s3_client_lock(c);
    ASSERT(c->shared.outstanding == 0);
    c->shared.closing = true;
    s3_client_unlock(c);
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
    c->scratch = mem_new(S3_HASH_PIECE);
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
