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
#include "s3/file_store.h"

#define ATTEMPTS_MAX 6                 /* objects.md 10 Retries */
#define STEP_FIRST_US INT64_C(1000000) /* doubles with every attempt */
#define STEP_MAX_US INT64_C(60000000)

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
        struct operation *waiting;
        size_t outstanding;
        bool closing;
    } shared;
};

struct operation {
    struct file_bucket *b;
    struct bucket_request *r;
    unsigned attempts; /* made */
    int64_t due_us;    /* while waiting, on the monotonic clock */
    struct operation *next;
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

/* Full jitter: uniform in [step/10, step]. */
static int64_t wait_us(struct file_bucket *b, unsigned attempts)
{
    int64_t step = STEP_FIRST_US << (attempts - 1);
    if (step > STEP_MAX_US)
        step = STEP_MAX_US;
    int64_t least = step / 10;
    return least + (int64_t)(entropy_u64(b->entropy) % (uint64_t)(step - least + 1));
}

static void wait_for_next(struct operation *op)
{
    struct file_bucket *b = op->b;
    op->due_us = clock_mono_us(b->clock) + wait_us(b, op->attempts);
    lock(b);
    op->next = b->shared.waiting;
    b->shared.waiting = op;
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

/* Takes the operations whose wait is over (all when cancelled) off the list; *nearest_out: when the
 * next one is due. Locked. */
static struct operation *take_due(struct file_bucket *b, int64_t *nearest_out)
{
    int64_t now = clock_mono_us(b->clock);
    bool all = atomic_load(&b->cancel);
    struct operation *due = NULL;
    struct operation **link = &b->shared.waiting;
    *nearest_out = INT64_MAX;
    while (*link != NULL) {
        struct operation *op = *link;
        if (all || op->due_us <= now) {
            *link = op->next;
            op->next = due;
            due = op;
            continue;
        }
        if (op->due_us < *nearest_out)
            *nearest_out = op->due_us;
        link = &op->next;
    }
    return due;
}

static void release(struct operation *op)
{
    while (op != NULL) {
        struct operation *next = op->next;
        if (atomic_load(&op->b->cancel))
            finish_cancelled(op);
        else
            executor_submit(op->b->executor, run_attempt, op);
        op = next;
    }
}

static void waiter_main(void *ctx)
{
    struct file_bucket *b = ctx;
    lock(b);
    while (!b->shared.closing) {
        int64_t nearest;
        struct operation *due = take_due(b, &nearest);
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
    r->outcome = BUCKET_RETRIABLE;
    r->code = 0;
    r->retry_after_us = -1;
    r->error[0] = '\0';
    r->n_keys = 0;
    r->truncated = false;
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
