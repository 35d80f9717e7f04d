/* A list under a lock. The library's threads enter and leave it; in between they only store the
 * phase and its beginning, as one word, so requests cost no lock. Whoever looks through the list
 * holds the lock, so no descriptor is closed, and used again, under its eyes.
 *
 * A connection is ended by shutting its socket down: the library sees the end of the input, or a
 * failing write, and closes it as if the client had gone. One between two requests is shut for
 * reading only: a request that came at the last moment is still read and answered. */
#include "http/conns.h"

#include "base/err.h"
#include "base/mem.h"
#include "io/clock.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define PRESSED_US 5000000
#define SHED_MAX 64u       /* at a time */
#define SHED_AGE_US 100000 /* who came just now gets to send its request */
#define INTERVAL_MS 1000   /* of looking; a phase younger than that is not asked about */

#define PHASE_BITS 3u
#define PHASE_MASK 7u

struct http_conn {
    int fd;
    atomic_bool served;             /* had an answer */
    atomic_uint_least64_t standing; /* when the phase began (us), and the phase in the low bits */
    struct http_conn *prev, *next;
    struct { /* the acceptor's: how far the phase of `standing` has come, when it looked */
        uint64_t standing;
        uint64_t bytes, window_bytes;
        int64_t moved_us, window_us;
    } seen;
};

struct http_conns {
    unsigned max;
    int64_t idle_us, progress_us;
    uint64_t least_bytes; /* in progress_us */
    atomic_uint entered;  /* open, or on their way into the list */
    pthread_mutex_t lock;
    struct http_conn *first;
};

static int64_t now_us(void)
{
    return clock_mono_us(clock_real());
}

struct http_conns *http_conns_new(const struct http_conns_options *options)
{
    struct http_conns *c = mem_new(sizeof(*c));
    c->max = options->max;
    c->idle_us = (int64_t)options->idle_s * 1000000;
    c->progress_us = (int64_t)options->progress_s * 1000000;
    c->least_bytes = (uint64_t)options->least_bytes_s * options->progress_s;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void http_conns_free(struct http_conns *c)
{
    if (c == NULL)
        return;
    ASSERT(c->first == NULL);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* --- entering, leaving, phases ------------------------------------------------------------------
 */

bool http_conns_enter(struct http_conns *c)
{
    if (atomic_load(&c->entered) >= c->max)
        return false;
    atomic_fetch_add(&c->entered, 1);
    return true;
}

void http_conns_leave(struct http_conns *c)
{
    atomic_fetch_sub(&c->entered, 1);
}

struct http_conn *http_conn_open(struct http_conns *c, int fd)
{
    struct http_conn *conn = mem_new(sizeof(*conn));
    conn->fd = fd;
    http_conn_set_phase(conn, CONN_IDLE);
    atomic_store(&conn->served, false);
    pthread_mutex_lock(&c->lock);
    conn->next = c->first;
    if (conn->next != NULL)
        conn->next->prev = conn;
    c->first = conn;
    pthread_mutex_unlock(&c->lock);
    return conn;
}

void http_conn_close(struct http_conns *c, struct http_conn *conn)
{
    pthread_mutex_lock(&c->lock);
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    else
        c->first = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    pthread_mutex_unlock(&c->lock);
    mem_free(conn);
    http_conns_leave(c);
}

void http_conn_set_phase(struct http_conn *conn, enum conn_phase phase)
{
    if (phase == CONN_ANSWER)
        atomic_store_explicit(&conn->served, true, memory_order_relaxed);
    atomic_store_explicit(&conn->standing, (uint64_t)now_us() << PHASE_BITS | (uint64_t)phase,
                          memory_order_relaxed);
}

static enum conn_phase phase_of(uint64_t standing)
{
    return (enum conn_phase)(standing & PHASE_MASK);
}

static int64_t began_us(uint64_t standing)
{
    return (int64_t)(standing >> PHASE_BITS);
}

enum conn_phase http_conn_phase(const struct http_conn *conn)
{
    return phase_of(atomic_load_explicit(&conn->standing, memory_order_relaxed));
}

/* --- at the limit -------------------------------------------------------------------------------
 */

struct candidate {
    struct http_conn *conn;
    int64_t began_us;
};

/* The SHED_MAX that have waited longest, in order. */
struct candidates {
    struct candidate list[SHED_MAX];
    size_t n;
};

static void insert(struct candidates *c, struct http_conn *conn, int64_t began)
{
    size_t at = c->n < SHED_MAX ? c->n : SHED_MAX - 1;
    if (c->n == SHED_MAX && began >= c->list[at].began_us)
        return;
    for (; at > 0 && began < c->list[at - 1].began_us; at--)
        c->list[at] = c->list[at - 1];
    c->list[at] = (struct candidate){conn, began};
    if (c->n < SHED_MAX)
        c->n++;
}

static void shut_all(const struct candidates *c)
{
    for (size_t i = 0; i < c->n; i++)
        (void)shutdown(c->list[i].conn->fd, SHUT_RD); /* fails when the client has gone */
}

bool http_conns_shed(struct http_conns *c)
{
    struct candidates strangers = {.n = 0}, served = {.n = 0};
    size_t young = 0; /* strangers that may still say something */
    int64_t now = now_us();
    pthread_mutex_lock(&c->lock);
    for (struct http_conn *conn = c->first; conn != NULL; conn = conn->next) {
        uint64_t standing = atomic_load_explicit(&conn->standing, memory_order_relaxed);
        int64_t began = began_us(standing);
        if (phase_of(standing) != CONN_IDLE && phase_of(standing) != CONN_HEADERS)
            continue;
        if (atomic_load_explicit(&conn->served, memory_order_relaxed))
            insert(&served, conn, began);
        else if (now - began >= SHED_AGE_US)
            insert(&strangers, conn, began);
        else
            young++;
    }
    shut_all(strangers.n + young > 0 ? &strangers : &served);
    pthread_mutex_unlock(&c->lock);
    return strangers.n + young + served.n > 0;
}

/* --- what takes too long ------------------------------------------------------------------------
 */

/* Bytes that the peer has sent, or has taken; what the kernel does not tell counts as none. */
static uint64_t moved_bytes(int fd, enum conn_phase phase)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
        return 0;
    return phase == CONN_BODY ? info.tcpi_bytes_received : info.tcpi_bytes_acked;
}

static bool too_slow(const struct http_conns *c, struct http_conn *conn, uint64_t standing,
                     int64_t now, bool pressed)
{
    enum conn_phase phase = phase_of(standing);
    uint64_t bytes = moved_bytes(conn->fd, phase);
    if (conn->seen.standing != standing) {
        conn->seen.standing = standing;
        conn->seen.bytes = conn->seen.window_bytes = bytes;
        conn->seen.moved_us = conn->seen.window_us = began_us(standing);
    }
    if (bytes != conn->seen.bytes) {
        conn->seen.bytes = bytes;
        conn->seen.moved_us = now;
    }
    int64_t still = now - conn->seen.moved_us;
    if (still >= c->progress_us || (pressed && phase == CONN_ANSWER && still >= PRESSED_US))
        return true;
    if (now - conn->seen.window_us < c->progress_us)
        return false;
    uint64_t moved = bytes - conn->seen.window_bytes;
    conn->seen.window_us = now;
    conn->seen.window_bytes = bytes;
    return moved < c->least_bytes;
}

/* The client has ended its half, and nothing of it is unread. Of an end that came together with the
 * last bytes the library hears nothing: a short read tells it that there is no more, and an end that
 * is there already is no new event. */
static bool is_left(const struct http_conn *conn)
{
    struct pollfd look = {.fd = conn->fd, .events = POLLRDHUP};
    int unread = 0;
    return poll(&look, 1, 0) > 0 && (look.revents & POLLRDHUP) != 0 &&
           ioctl(conn->fd, FIONREAD, &unread) == 0 && unread == 0;
}

/* Looked at once between two requests, of which there are many; a later end is an event. */
static bool is_left_idle(struct http_conn *conn, uint64_t standing)
{
    if (conn->seen.standing == standing)
        return false;
    conn->seen.standing = standing;
    return is_left(conn);
}

static bool is_over(const struct http_conns *c, struct http_conn *conn, int64_t now, bool pressed)
{
    uint64_t standing = atomic_load_explicit(&conn->standing, memory_order_relaxed);
    int64_t age = now - began_us(standing);
    if (age < http_conns_interval_ms(c) * INT64_C(1000))
        return false;
    switch (phase_of(standing)) {
    case CONN_IDLE:
        return age >= c->idle_us + c->progress_us || is_left_idle(conn, standing);
    case CONN_HEADERS:
        return age >= c->progress_us || is_left(conn);
    case CONN_BODY:
        return is_left(conn) || too_slow(c, conn, standing, now, pressed);
    case CONN_ANSWER:
        return too_slow(c, conn, standing, now, pressed);
    case CONN_HANDLED:
        break;
    }
    return false;
}

void http_conns_reap(struct http_conns *c, bool pressed)
{
    int64_t now = now_us();
    pthread_mutex_lock(&c->lock);
    for (struct http_conn *conn = c->first; conn != NULL; conn = conn->next) {
        if (is_over(c, conn, now, pressed))
            (void)shutdown(conn->fd, SHUT_RDWR); /* fails when the client has gone */
    }
    pthread_mutex_unlock(&c->lock);
}

int http_conns_interval_ms(const struct http_conns *c)
{
    int64_t quarter = c->progress_us / 4000;
    return quarter < INTERVAL_MS ? (int)quarter : INTERVAL_MS;
}
