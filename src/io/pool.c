/* Threads with names, and a pool of them that works off a queue.
 *
 * Every thread made here starts with signals blocked, so that SIGTERM and its like are always
 * delivered to the main thread. The ones a fault of our own raises (SIGSEGV, SIGABRT, ...) stay
 * open: a blocked one would end the process without the sanitizer's or the crash handler's report.
 */
#include "io/pool.h"

#include "base/mem.h"

#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define NAME_SIZE 16 /* the kernel's limit, with the NUL */

struct thread {
    pthread_t id;
    thread_fn fn;
    void *ctx;
    char name[NAME_SIZE];
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    (void)pthread_setname_np(pthread_self(), t->name); /* a wrong name harms nobody */
    t->fn(t->ctx);
    return NULL;
}

struct thread *thread_start(const char *name, thread_fn fn, void *ctx)
{
    struct thread *t = mem_new(sizeof(*t));
    t->fn = fn;
    t->ctx = ctx;
    (void)snprintf(t->name, sizeof(t->name), "%s", name); /* cut to fit */

    sigset_t blocked, before;
    sigfillset(&blocked);
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        sigdelset(&blocked, faults[i]);
    ASSERT(pthread_sigmask(SIG_SETMASK, &blocked, &before) == 0);
    ASSERT(pthread_create(&t->id, NULL, thread_main, t) == 0);
    ASSERT(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return t;
}

void thread_join(struct thread *t)
{
    if (t == NULL)
        return;
    ASSERT(pthread_join(t->id, NULL) == 0);
    mem_free(t);
}

struct job {
    struct job *next;
    thread_fn fn;
    void *ctx;
};

struct pool {
    struct thread **threads;
    unsigned n_threads;
    struct { /* under mutex */
        pthread_mutex_t mutex;
        pthread_cond_t changed;
        struct job *first;
        struct job **end; /* where the next one is hung on */
        bool ending;
    } shared;
};

/* Waits for a job; NULL when the pool ends and nothing is left. */
static struct job *take_job(struct pool *p)
{
    pthread_mutex_lock(&p->shared.mutex);
    while (p->shared.first == NULL && !p->shared.ending)
        pthread_cond_wait(&p->shared.changed, &p->shared.mutex);
    struct job *job = p->shared.first;
    if (job != NULL) {
        p->shared.first = job->next;
        if (p->shared.first == NULL)
            p->shared.end = &p->shared.first;
    }
    pthread_mutex_unlock(&p->shared.mutex);
    return job;
}

static void work(void *ctx)
{
    struct job *job;
    while ((job = take_job(ctx)) != NULL) {
        job->fn(job->ctx);
        mem_free(job);
    }
}

struct pool *pool_new(const char *name, unsigned threads)
{
    ASSERT(threads > 0);
    struct pool *p = mem_new(sizeof(*p));
    pthread_mutex_init(&p->shared.mutex, NULL);
    pthread_cond_init(&p->shared.changed, NULL);
    p->shared.end = &p->shared.first;
    p->threads = MEM_ARRAY(struct thread *, threads);
    p->n_threads = threads;
    for (unsigned i = 0; i < threads; i++) {
        char full[32];
        (void)snprintf(full, sizeof(full), "%.11s-%u", name, i); /* cut to fit */
        p->threads[i] = thread_start(full, work, p);
    }
    return p;
}

void pool_submit(struct pool *p, thread_fn fn, void *ctx)
{
    struct job *job = mem_new(sizeof(*job));
    job->fn = fn;
    job->ctx = ctx;
    pthread_mutex_lock(&p->shared.mutex);
    *p->shared.end = job;
    p->shared.end = &job->next;
    pthread_cond_signal(&p->shared.changed);
    pthread_mutex_unlock(&p->shared.mutex);
}

void pool_free(struct pool *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->shared.mutex);
    p->shared.ending = true;
    pthread_cond_broadcast(&p->shared.changed);
    pthread_mutex_unlock(&p->shared.mutex);
    for (unsigned i = 0; i < p->n_threads; i++)
        thread_join(p->threads[i]);
    pthread_cond_destroy(&p->shared.changed);
    pthread_mutex_destroy(&p->shared.mutex);
    mem_free(p->threads);
    mem_free(p);
}

static void executor_to_pool(struct executor *e, void (*fn)(void *ctx), void *ctx)
{
    pool_submit(((struct pool_executor *)e)->pool, fn, ctx);
}

void pool_executor_init(struct pool_executor *e, struct pool *p)
{
    *e = (struct pool_executor){{executor_to_pool}, p};
}

void cond_init_mono(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    ASSERT(pthread_condattr_init(&attr) == 0);
    ASSERT(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    ASSERT(pthread_cond_init(cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

bool cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t timeout_us)
{
    if (timeout_us < 0) {
        ASSERT(pthread_cond_wait(cond, mutex) == 0);
        return true;
    }
    struct timespec until;
    ASSERT(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    int64_t ns = until.tv_nsec + timeout_us % 1000000 * 1000;
    until.tv_sec += timeout_us / 1000000 + ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    int result = pthread_cond_timedwait(cond, mutex, &until);
    ASSERT(result == 0 || result == ETIMEDOUT);
    return result == 0;
}
