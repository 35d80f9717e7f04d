/* A binary heap under one lock. Request deadlines are all alike and mostly disarmed long before
 * they are due, so arming appends at the bottom and rarely moves; the thread is only woken for a
 * timer that is due before the moment it sleeps to anyway (SLEEP_MAX_US at most). */
#include "api/timers.h"

#include "base/err.h"
#include "base/mem.h"
#include "io/pool.h"

#define SLEEP_MAX_US 1000000

struct timers {
    struct clock *clock;
    struct thread *thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct timer **heap;
    size_t count, cap;
    int64_t sleeps_until_us;
    bool stop;
};

static void place(struct timers *ts, size_t at, struct timer *t)
{
    ts->heap[at] = t;
    t->slot = at + 1;
}

static void sift_up(struct timers *ts, size_t at, struct timer *t)
{
    while (at > 0 && ts->heap[(at - 1) / 2]->due_us > t->due_us) {
        place(ts, at, ts->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(ts, at, t);
}

static void sift_down(struct timers *ts, size_t at, struct timer *t)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= ts->count)
            break;
        if (child + 1 < ts->count && ts->heap[child + 1]->due_us < ts->heap[child]->due_us)
            child++;
        if (ts->heap[child]->due_us >= t->due_us)
            break;
        place(ts, at, ts->heap[child]);
        at = child;
    }
    place(ts, at, t);
}

static void heap_remove(struct timers *ts, struct timer *t)
{
    size_t at = t->slot - 1;
    struct timer *last = ts->heap[--ts->count];
    t->slot = 0;
    if (last == t)
        return;
    if (at > 0 && ts->heap[(at - 1) / 2]->due_us > last->due_us)
        sift_up(ts, at, last);
    else
        sift_down(ts, at, last);
}

static void fire_due(struct timers *ts, int64_t now)
{
    while (ts->count > 0 && ts->heap[0]->due_us <= now) {
        struct timer *t = ts->heap[0];
        heap_remove(ts, t);
        t->fire(t);
    }
}

static void run(void *ctx)
{
    struct timers *ts = ctx;
    pthread_mutex_lock(&ts->lock);
    while (!ts->stop) {
        int64_t now = clock_mono_us(ts->clock);
        fire_due(ts, now);
        int64_t pause = SLEEP_MAX_US;
        if (ts->count > 0 && ts->heap[0]->due_us - now < pause)
            pause = ts->heap[0]->due_us - now;
        ts->sleeps_until_us = now + pause;
        (void)cond_wait_us(&ts->wake, &ts->lock, pause); /* either way the heap says what is due */
    }
    pthread_mutex_unlock(&ts->lock);
}

struct timers *timers_new(struct clock *clock)
{
    struct timers *ts = mem_new(sizeof(*ts));
    ts->clock = clock;
    pthread_mutex_init(&ts->lock, NULL);
    cond_init_mono(&ts->wake);
    ts->thread = thread_start("queen-timers", run, ts);
    return ts;
}

void timers_free(struct timers *ts)
{
    if (ts == NULL)
        return;
    pthread_mutex_lock(&ts->lock);
    ts->stop = true;
    pthread_cond_signal(&ts->wake);
    pthread_mutex_unlock(&ts->lock);
    thread_join(ts->thread);
    pthread_cond_destroy(&ts->wake);
    pthread_mutex_destroy(&ts->lock);
    mem_free(ts->heap);
    mem_free(ts);
}

void timers_arm(struct timers *ts, struct timer *t, int64_t due_us)
{
    pthread_mutex_lock(&ts->lock);
    ASSERT(t->slot == 0);
    t->due_us = due_us;
    if (ts->count == ts->cap) {
        ts->cap = ts->cap == 0 ? 64 : 2 * ts->cap;
        ts->heap = mem_grow(ts->heap, ts->cap * sizeof(ts->heap[0]));
    }
    sift_up(ts, ts->count++, t);
    if (due_us < ts->sleeps_until_us)
        pthread_cond_signal(&ts->wake);
    pthread_mutex_unlock(&ts->lock);
}

bool timers_disarm(struct timers *ts, struct timer *t)
{
    pthread_mutex_lock(&ts->lock);
    bool armed = t->slot != 0;
    if (armed)
        heap_remove(ts, t);
    pthread_mutex_unlock(&ts->lock);
    return armed;
}
