/* Named threads and a worker pool (the only users of pthread_create outside tests and the HTTP
 * library). Signals are blocked in every thread made here. */
#ifndef IO_POOL_H
#define IO_POOL_H

#include "base/err.h"
#include "io/executor.h"

#include <pthread.h>
#include <stdint.h>

typedef void (*thread_fn)(void *ctx);

struct thread; /* a joinable thread */
struct thread *thread_start(const char *name, thread_fn fn,
                            void *ctx); /* name <= 15 bytes; aborts */
void thread_join(struct thread *t);     /* joins and frees; NULL is allowed */

struct pool;
/* A fixed number of threads and an unbounded FIFO of jobs. */
struct pool *pool_new(const char *name, unsigned threads);
void pool_submit(struct pool *p, thread_fn fn, void *ctx); /* Any thread, never blocks */
void pool_free(struct pool *p); /* runs what was submitted, then joins; NULL is allowed */

/* The pool as an executor; the struct is the caller's and outlives what was submitted. */
struct pool_executor {
    struct executor base;
    struct pool *pool;
};

void pool_executor_init(struct pool_executor *e, struct pool *p);

/* Timed wait on the monotonic clock: condition variables made by cond_init_mono(). Returns false on
 * timeout. timeout_us < 0 waits without end. */
void cond_init_mono(pthread_cond_t *cond);
bool cond_wait_us(pthread_cond_t *cond, pthread_mutex_t *mutex, int64_t timeout_us);

#endif
