/* Admission of pushes, before their bodies are read (spec/cluster.md 3, spec/decisions.md 25).
 *
 * What counts is bytes: bodies being read and commands the node has not applied. A push that would
 * pass the limit is held with its body on the client's side, in order of arrival, until there is
 * room, for admit_hold_ms at most (jittered, so that they do not all give up at once); then it is
 * 429. A body of unknown length counts nothing until the node has it. With nothing in flight any
 * push is let in, however large.
 *
 * A held admission is in the list; whoever takes it out (room, its timer, the drain) has the server
 * ask again, and the answer to that is in `state` (written before http_readmit(), read by the
 * thread that asks). Locks: the timers' before the gate's. */
#include "api/internal.h"

#include "base/mem.h"

enum admission_state { ADMISSION_NEW, ADMISSION_HELD, ADMISSION_CHARGED, ADMISSION_REFUSED };

struct admission {
    struct api *api;
    struct http_request *http;
    uint64_t length; /* counted while CHARGED */
    enum admission_state state;
    struct timer timer;
    struct admission *prev, *next; /* while HELD */
};

/* Counts the bytes when there is room for them. */
static bool charge(struct api *a, uint64_t length)
{
    uint64_t max = a->options.admit_max_bytes;
    uint64_t before = atomic_fetch_add(&a->gate.reading, length);
    uint64_t busy = before + node_queued_bytes(a->options.node);
    if (max == 0 || busy == 0 || (busy < max && length <= max - busy))
        return true;
    atomic_fetch_sub(&a->gate.reading, length);
    return false;
}

/* Gate lock held. */
static void unlink_held(struct api *a, struct admission *m)
{
    if (m->prev != NULL)
        m->prev->next = m->next;
    else
        a->gate.first = m->next;
    if (m->next != NULL)
        m->next->prev = m->prev;
    else
        a->gate.last = m->prev;
    atomic_fetch_sub(&a->gate.held, 1);
}

void admissions_wake(struct api *a)
{
    if (atomic_load(&a->gate.held) == 0)
        return;
    pthread_mutex_lock(&a->gate.lock);
    while (a->gate.first != NULL && charge(a, a->gate.first->length)) {
        struct admission *m = a->gate.first;
        unlink_held(a, m);
        m->state = ADMISSION_CHARGED;
        http_readmit(m->http);
    }
    pthread_mutex_unlock(&a->gate.lock);
}

void admissions_refuse(struct api *a)
{
    pthread_mutex_lock(&a->gate.lock);
    while (a->gate.first != NULL) {
        struct admission *m = a->gate.first;
        unlink_held(a, m);
        m->state = ADMISSION_REFUSED;
        http_readmit(m->http);
    }
    pthread_mutex_unlock(&a->gate.lock);
}

static void give_up(struct timer *t)
{
    struct admission *m =
        (struct admission *)(void *)((char *)t - offsetof(struct admission, timer));
    struct api *a = m->api;
    pthread_mutex_lock(&a->gate.lock);
    if (m->state == ADMISSION_HELD) {
        unlink_held(a, m);
        m->state = ADMISSION_REFUSED;
        http_readmit(m->http);
    }
    pthread_mutex_unlock(&a->gate.lock);
}

static void release(struct admission *m)
{
    struct api *a = m->api;
    (void)timers_disarm(a->timers, &m->timer); /* armed, fired or never armed */
    bool charged = m->state == ADMISSION_CHARGED;
    if (charged)
        atomic_fetch_sub(&a->gate.reading, m->length);
    mem_free(m);
    if (charged)
        admissions_wake(a);
}

void admission_end(struct admission *admission)
{
    if (admission != NULL)
        release(admission);
}

/* Puts it at the end of the list; false while the API drains. */
static bool hold(struct api *a, struct admission *m)
{
    pthread_mutex_lock(&a->gate.lock);
    bool ok = !atomic_load(&a->draining);
    if (ok) {
        m->state = ADMISSION_HELD;
        m->prev = a->gate.last;
        if (m->prev != NULL)
            m->prev->next = m;
        else
            a->gate.first = m;
        a->gate.last = m;
        atomic_fetch_add(&a->gate.held, 1);
    }
    pthread_mutex_unlock(&a->gate.lock);
    return ok;
}

/* A quarter of it more or less. */
static int64_t hold_us(struct api *a)
{
    uint64_t us = a->options.admit_hold_ms * 1000;
    uint64_t spread = us / 2;
    return (int64_t)(us - us / 4 + (spread > 0 ? entropy_u64(a->options.entropy) % spread : 0));
}

/* NEW: refused, to be released; HELD: out of this thread's hands. */
static enum admission_state first_ask(struct api *a, struct http_request *http, uint64_t length)
{
    struct admission *m = mem_new(sizeof(*m));
    *m = (struct admission){.api = a,
                            .http = http,
                            .length = length == UINT64_MAX ? 0 : length,
                            .timer = {.fire = give_up}};
    http_request_set_ctx(http, m);
    if (atomic_load(&a->gate.held) == 0 && charge(a, m->length)) {
        m->state = ADMISSION_CHARGED;
        return ADMISSION_CHARGED;
    }
    if (a->options.admit_hold_ms > 0 && hold(a, m)) {
        /* Woken already, perhaps, but only this thread goes on from there and frees it. */
        timers_arm(a->timers, &m->timer, clock_mono_us(a->options.clock) + hold_us(a));
        atomic_fetch_add(&a->counters.held, 1);
        http_hold(http);
        admissions_wake(a); /* what made room while it was on its way into the list */
        return ADMISSION_HELD;
    }
    return ADMISSION_NEW;
}

bool api_admit(void *ctx, struct http_request *http, uint64_t length)
{
    struct api *a = ctx;
    struct admission *m = http_request_ctx(http);
    if (!span_eq(http_request_path(http), SPAN_LIT("/api/v1/push")))
        return true;
    enum admission_state state = m == NULL ? first_ask(a, http, length) : m->state;
    if (state == ADMISSION_CHARGED)
        atomic_fetch_add(&a->counters.admitted, 1);
    if (state == ADMISSION_CHARGED || state == ADMISSION_HELD)
        return state == ADMISSION_CHARGED;
    m = http_request_ctx(http);
    http_request_set_ctx(http, NULL);
    release(m);
    if (atomic_load(&a->draining)) {
        answer_err(http, ERR_STOPPED);
    } else {
        atomic_fetch_add(&a->counters.overloaded, 1);
        answer_overloaded(a, http);
    }
    return false;
}

void api_aborted(void *ctx, struct http_request *http)
{
    struct admission *m = http_request_ctx(http);
    (void)ctx;
    if (m != NULL)
        release(m);
}
