/* Admission of bodies, before they are read (spec/cluster.md 3, spec/decisions.md 25).
 *
 * What counts is bytes: bodies being read and commands the node has not applied. A push that would
 * pass the limit is held with its body on the client's side, in order of arrival, until there is
 * room, for admit_hold_ms at most (jittered, so that they do not all give up at once); then it is
 * 429. With nothing in flight any push is let in, however large.
 *
 * A small push does not stand in line behind large ones: a quarter of the limit, on top of it, is for
 * pushes of SMALL_MAX and less, which count there until they are answered.
 *
 * Room that was taken for an announced length is not kept for a body that dawdles: after DAWDLE_US
 * it counts what has come, and grows. So does a body of unknown length from its beginning. What
 * grows may go a quarter above the limit; past that it is thrown away and answered 429.
 *
 * Bodies of other requests grow too, under a limit of their own, so that reads and deletes go on
 * when pushes have filled theirs. Those of FREE_MAX and less are not counted.
 *
 * A held admission is in the list; whoever takes it out (room, its timer, the drain) has the server
 * ask again, and the answer to that is in `state` (written before http_readmit(), read by the
 * thread that asks). Locks: the timers' before the gate's. */
#include "api/internal.h"

#include "base/mem.h"

#define DAWDLE_US 10000000
#define SMALL_MAX 65536u
#define FREE_MAX 4096u                     /* times the connections there can be */
#define OTHERS_MAX (64u * 1024 * 1024 + 1) /* one of the largest, or many */

enum admission_state { ADMISSION_NEW, ADMISSION_HELD, ADMISSION_CHARGED, ADMISSION_REFUSED };

struct admission {
    struct api *api;
    struct http_request *http;
    uint64_t length;  /* counted while CHARGED; gate lock from then on */
    uint64_t arrived; /* gate lock */
    enum admission_state state;
    bool small;                    /* counted in gate.small */
    bool other;                    /* no push */
    bool grows;                    /* gate lock: `length` is what has arrived */
    struct timer timer;            /* HELD: gives up; CHARGED: sees whether it dawdles */
    struct admission *prev, *next; /* while HELD */
};

static atomic_uint_least64_t *counter_of(const struct admission *m)
{
    struct api *a = m->api;
    return m->small ? &a->gate.small : m->other ? &a->gate.others : &a->gate.reading;
}

/* Counts the bytes when there is room for them. own: what the same push counts already. */
static bool charge(struct api *a, uint64_t length, uint64_t own)
{
    uint64_t max = a->options.admit_max_bytes, of_small = max / 4;
    uint64_t queued = node_queued_bytes(a->options.node);
    uint64_t before = atomic_fetch_add(&a->gate.reading, length);
    uint64_t busy = before - own + (queued > of_small ? queued - of_small : 0);
    if (max == 0 || busy == 0 || (busy < max && own + length <= max - busy))
        return true;
    atomic_fetch_sub(&a->gate.reading, length);
    return false;
}

/* The same in the small pushes' own share. */
static bool more_of_small(struct api *a, uint64_t more)
{
    uint64_t share = a->options.admit_max_bytes / 4;
    if (atomic_fetch_add(&a->gate.small, more) + more <= share)
        return true;
    atomic_fetch_sub(&a->gate.small, more);
    return false;
}

static bool charge_small(struct api *a, struct admission *m)
{
    m->small = !m->grows && m->length <= SMALL_MAX && more_of_small(a, m->length);
    return m->small;
}

/* Of a body that grows. Gate lock held. */
static bool grow(struct admission *m, uint64_t length)
{
    struct api *a = m->api;
    atomic_uint_least64_t *counter = counter_of(m);
    uint64_t limit = m->other ? OTHERS_MAX : a->options.admit_max_bytes;
    uint64_t max = limit + limit / 4, more = length - m->length;
    uint64_t busy = atomic_fetch_add(counter, more) - m->length;
    if (!m->other)
        busy += node_queued_bytes(a->options.node);
    if (limit != 0 && busy != 0 && (busy >= max || length > max - busy)) {
        atomic_fetch_sub(counter, more);
        return false;
    }
    m->length = length;
    return true;
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
    while (a->gate.first != NULL && charge(a, a->gate.first->length, 0)) {
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

static struct admission *of_timer(struct timer *t)
{
    return (struct admission *)(void *)((char *)t - offsetof(struct admission, timer));
}

static void give_up(struct timer *t)
{
    struct admission *m = of_timer(t);
    struct api *a = m->api;
    pthread_mutex_lock(&a->gate.lock);
    if (m->state == ADMISSION_HELD) {
        unlink_held(a, m);
        m->state = ADMISSION_REFUSED;
        http_readmit(m->http);
    }
    pthread_mutex_unlock(&a->gate.lock);
}

/* Gives back the room of what has not come. */
static void count_what_came(struct timer *t)
{
    struct admission *m = of_timer(t);
    struct api *a = m->api;
    pthread_mutex_lock(&a->gate.lock);
    m->grows = true;
    atomic_fetch_sub(counter_of(m), m->length - m->arrived);
    m->length = m->arrived;
    pthread_mutex_unlock(&a->gate.lock);
    admissions_wake(a);
}

static void release(struct admission *m)
{
    struct api *a = m->api;
    if (m->timer.fire != NULL)
        (void)timers_disarm(a->timers, &m->timer); /* armed, fired or never armed */
    bool charged = m->state == ADMISSION_CHARGED;
    if (charged)
        atomic_fetch_sub(counter_of(m), m->length);
    mem_free(m);
    if (charged)
        admissions_wake(a);
}

bool admission_take(struct api_command *c, uint64_t needs)
{
    struct api *a = c->api;
    struct admission *m = http_request_ctx(c->http);
    if (m == NULL) /* there is no gate */
        return true;
    (void)timers_disarm(a->timers, &m->timer); /* the body is here */
    uint64_t more = needs > m->length ? needs - m->length : 0;
    if (m->small && more_of_small(a, more)) {
        c->gate_small = m->length + more;
        m->length = 0;
        return true;
    }
    if (more > 0 && !charge(a, more, m->small ? 0 : m->length)) {
        atomic_fetch_add(&a->counters.overloaded, 1);
        return false;
    }
    c->gate_reading = more;
    return true;
}

void admission_give_back(struct api_command *c)
{
    atomic_fetch_sub(&c->api->gate.small, c->gate_small);
    atomic_fetch_sub(&c->api->gate.reading, c->gate_reading);
    if (c->gate_small + c->gate_reading > 0)
        admissions_wake(c->api);
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

static struct admission *admission_new(struct api *a, struct http_request *http, uint64_t length)
{
    struct admission *m = mem_new(sizeof(*m));
    *m = (struct admission){.api = a, .http = http, .grows = length == UINT64_MAX};
    m->length = m->grows ? 0 : length;
    http_request_set_ctx(http, m);
    return m;
}

/* NEW: refused, to be released; HELD: out of this thread's hands. */
static enum admission_state first_ask(struct api *a, struct http_request *http, uint64_t length)
{
    struct admission *m = admission_new(a, http, length);
    if (charge_small(a, m) || (atomic_load(&a->gate.held) == 0 && charge(a, m->length, 0))) {
        m->state = ADMISSION_CHARGED;
        return ADMISSION_CHARGED;
    }
    if (a->options.admit_hold_ms > 0 && hold(a, m)) {
        /* Woken already, perhaps, but only this thread goes on from there and frees it. */
        m->timer.fire = give_up;
        timers_arm(a->timers, &m->timer, clock_mono_us(a->options.clock) + hold_us(a));
        atomic_fetch_add(&a->counters.held, 1);
        http_hold(http);
        admissions_wake(a); /* what made room while it was on its way into the list */
        return ADMISSION_HELD;
    }
    return ADMISSION_NEW;
}

static void answer_refused(struct api *a, struct http_request *http, struct admission *m)
{
    http_request_set_ctx(http, NULL);
    release(m);
    if (atomic_load(&a->draining)) {
        answer_err(http, ERR_STOPPED);
    } else {
        atomic_fetch_add(&a->counters.overloaded, 1);
        answer_overloaded(a, http);
    }
}

/* It is read from here on. */
static void begin_reading(struct api *a, struct admission *m)
{
    atomic_fetch_add(&a->counters.admitted, 1);
    if (m->grows || m->length <= FREE_MAX)
        return;
    (void)timers_disarm(a->timers, &m->timer); /* of a hold; fired or not, it is over */
    m->timer.fire = count_what_came;
    timers_arm(a->timers, &m->timer, clock_mono_us(a->options.clock) + DAWDLE_US);
}

static void admit_other(struct api *a, struct http_request *http, uint64_t length)
{
    if (length <= FREE_MAX)
        return;
    struct admission *m = admission_new(a, http, UINT64_MAX);
    m->other = true;
    m->state = ADMISSION_CHARGED;
}

bool api_admit(void *ctx, struct http_request *http, uint64_t length)
{
    struct api *a = ctx;
    struct admission *m = http_request_ctx(http);
    if (!span_eq(http_request_path(http), SPAN_LIT("/api/v1/push"))) {
        admit_other(a, http, length);
        return true;
    }
    enum admission_state state = m == NULL ? first_ask(a, http, length) : m->state;
    m = http_request_ctx(http);
    if (state == ADMISSION_CHARGED)
        begin_reading(a, m);
    else if (state != ADMISSION_HELD)
        answer_refused(a, http, m);
    return state == ADMISSION_CHARGED;
}

bool api_arriving(void *ctx, struct http_request *http, uint64_t length)
{
    struct api *a = ctx;
    struct admission *m = http_request_ctx(http);
    if (m == NULL)
        return true;
    pthread_mutex_lock(&a->gate.lock);
    m->arrived = length;
    bool ok = !m->grows || length <= m->length || grow(m, length);
    pthread_mutex_unlock(&a->gate.lock);
    if (!ok)
        answer_refused(a, http, m);
    return ok;
}

void api_aborted(void *ctx, struct http_request *http)
{
    struct admission *m = http_request_ctx(http);
    (void)ctx;
    if (m != NULL)
        release(m);
}
