/* The asynchronous half of the bucket in a local folder: attempts, waits, cancelling.
 *
 * A request is an operation that moves between two places: a job on the executor, which makes one
 * attempt (file_store.h), and the list `waiting`, which one small thread watches and hands back to
 * the executor when the wait is over. So a wait holds no executor thread. cancel() is for good: it
 * ends the waits, makes attempts end at their next piece, and refuses what is submitted later.
 *
 * `done` runs on the executor or on the waiting thread; the bucket is not touched after it, so the
 * owner may close it once the last request is done (but not from inside `done`). */
#include "s3/bucket.h"

#include "base/mem.h"
#include "io/pool.h"
#include "s3/attempts.h"
#include "s3/file_store.h"

struct file_bucket {
    struct bucket bucket; /* first: what the interface hands out */
    struct file_store *store;
    struct executor *executor;
    struct clock *clock;
    struct entropy *entropy;
    atomic_bool cancel;
    struct thread *waiter;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        struct wait *waiting; /* of struct operation */
        size_t outstanding;
        bool closing;
    } shared;
};

struct operation {
    struct wait wait; /* first */
    struct file_bucket *b;
    struct bucket_request *r;
    unsigned attempts; /* made */
};

static void lock(struct file_bucket *b)
{
    ASSERT(pthread_mutex_lock(&b->lock) == 0);
}

static void unlock(struct file_bucket *b)
{
    ASSERT(pthread_mutex_unlock(&b->lock) == 0);
}

static void finish(struct operation *op)
{
    struct file_bucket *b = op->b;
    struct bucket_request *r = op->r;
    lock(b);
    b->shared.outstanding--;
    unlock(b);
    r->internal = NULL;
    mem_free(op);
    r->done(r);
}

static void finish_cancelled(struct operation *op)
{
    op->r->outcome = BUCKET_CANCELLED;
    op->r->code = 0;
    finish(op);
}

static void wait_for_next(struct operation *op)
{
    struct file_bucket *b = op->b;
    int64_t due =
        clock_mono_us(b->clock) + attempts_wait_us(b->entropy, ATTEMPTS_STEP_US, op->attempts, -1);
    lock(b);
    wait_add(&b->shared.waiting, &op->wait, due);
    ASSERT(pthread_cond_signal(&b->changed) == 0);
    unlock(b);
}

static void run_attempt(void *ctx)
{
    struct operation *op = ctx;
    struct file_bucket *b = op->b;
    struct bucket_request *r = op->r;
    if (atomic_load(&b->cancel)) {
        finish_cancelled(op);
        return;
    }
    file_store_attempt(b->store, r, &b->cancel);
    op->attempts++;
    if (r->attempt != NULL && r->outcome != BUCKET_CANCELLED)
        r->attempt(r, r->code, span_str(r->error));
    if (r->outcome == BUCKET_RETRIABLE && op->attempts < ATTEMPTS_MAX)
        wait_for_next(op);
    else
        finish(op);
}

/* Hands what waited back to the executor. */
static void release(struct wait *due)
{
    while (due != NULL) {
        struct operation *op = (struct operation *)due;
        due = due->next;
        if (atomic_load(&op->b->cancel))
            finish_cancelled(op);
        else
            executor_submit(op->b->executor, run_attempt, op);
    }
}

static void waiter_main(void *ctx)
{
    struct file_bucket *b = ctx;
    lock(b);
    while (!b->shared.closing) {
        int64_t nearest;
        struct wait *due = wait_take_due(&b->shared.waiting, clock_mono_us(b->clock),
                                         atomic_load(&b->cancel), &nearest);
        if (due != NULL) {
            unlock(b);
            release(due);
            lock(b);
            continue;
        }
        int64_t wait = nearest == INT64_MAX ? -1 : nearest - clock_mono_us(b->clock);
        if (nearest == INT64_MAX || wait > 0)
            (void)cond_wait_us(&b->changed, &b->lock, wait); /* looked at again either way */
    }
    unlock(b);
}

static void submit(struct bucket *bucket, struct bucket_request *r)
{
    struct file_bucket *b = (struct file_bucket *)bucket;
    struct operation *op = mem_new(sizeof(*op));
    op->b = b;
    op->r = r;
    r->internal = op;
    attempts_begin(r);
    lock(b);
    b->shared.outstanding++;
    unlock(b);
    executor_submit(b->executor, run_attempt, op);
}

static void cancel(struct bucket *bucket)
{
    struct file_bucket *b = (struct file_bucket *)bucket;
    atomic_store(&b->cancel, true);
    lock(b);
    ASSERT(pthread_cond_signal(&b->changed) == 0);
    unlock(b);
}

static void close_bucket(struct bucket *bucket)
{
    struct file_bucket *b = (struct file_bucket *)bucket;
    lock(b);
    ASSERT(b->shared.outstanding == 0);
    b->shared.closing = true;
    ASSERT(pthread_cond_signal(&b->changed) == 0);
    unlock(b);
    thread_join(b->waiter);
    (void)pthread_cond_destroy(&b->changed); /* nobody waits */
    (void)pthread_mutex_destroy(&b->lock);
    file_store_free(b->store);
    mem_free(b);
}

static const struct bucket_ops file_bucket_ops = {
    .submit = submit,
    .cancel = cancel,
    .close = close_bucket,
};

enum err file_bucket_open(const struct file_bucket_options *options, struct bucket **out,
                          struct error *error)
{
    struct span path = options->path;
    if (path.len == 0 || path.ptr[0] != '/')
        return error_set(error, ERR_INVALID, "the bucket's path " SPAN_FMT " is not absolute",
                         SPAN_ARG(path));
    struct span bucket = options->bucket;
    if (bucket.len == 0 || memchr(bucket.ptr, '/', bucket.len) != NULL ||
        span_eq(bucket, SPAN_LIT(".")) || span_eq(bucket, SPAN_LIT("..")))
        return error_set(error, ERR_INVALID, SPAN_FMT " is not a bucket name", SPAN_ARG(bucket));

    struct file_bucket *b = mem_new(sizeof(*b));
    b->bucket.ops = &file_bucket_ops;
    b->store = file_store_new(&(struct file_store_options){
        .path = path,
        .bucket = bucket,
        .instance = options->instance,
        .entropy = options->entropy,
    });
    b->executor = options->executor;
    b->clock = options->clock;
    b->entropy = options->entropy;
    ASSERT(pthread_mutex_init(&b->lock, NULL) == 0);
    cond_init_mono(&b->changed);
    b->waiter = thread_start("queen-s3-wait", waiter_main, b);
    *out = &b->bucket;
    return ERR_OK;
}
