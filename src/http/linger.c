/* One thread polls what lingers. A peer that goes on sending keeps its place for LINGER_MS at most,
 * and there are LINGER_COUNT places: who finds none is closed at once, as without this. */
#include "http/linger.h"

#include "base/err.h"
#include "base/mem.h"
#include "io/clock.h"
#include "io/pool.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_MS 5000
#define LINGER_BYTES (256u * 1024 * 1024)
#define LINGER_COUNT 256u
#define POLL_MS 500 /* how late a silent one may be closed */
#define READ_SIZE 65536u
#define READS_A_TURN 16u

struct lingering {
    int fd;
    int64_t until_us;
    size_t bytes;
};

struct http_linger {
    struct thread *thread;
    int wake_fd;
    struct { /* the thread's */
        uint8_t scratch[READ_SIZE];
        struct lingering list[LINGER_COUNT];
        size_t count;
    } own;
    struct {
        pthread_mutex_t lock;
        int arrived[LINGER_COUNT];
        size_t n;
        size_t places; /* taken: arrived and in the thread's list */
        bool stop;
    } shared;
};

/* False: the end, an error, or more than we care to read. */
static bool read_on(struct http_linger *l, struct lingering *c)
{
    for (unsigned i = 0; i < READS_A_TURN; i++) {
        ssize_t n = recv(c->fd, l->own.scratch, sizeof(l->own.scratch), MSG_DONTWAIT);
        if (n < 0)
            return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
        c->bytes += (size_t)n;
        if (n == 0 || c->bytes > LINGER_BYTES)
            return false;
    }
    return true;
}

/* Takes over what arrived; false at the end. */
static bool take_arrived(struct http_linger *l, int64_t now, size_t closed)
{
    pthread_mutex_lock(&l->shared.lock);
    l->shared.places -= closed;
    for (size_t i = 0; i < l->shared.n; i++)
        l->own.list[l->own.count++] = (struct lingering){
            .fd = l->shared.arrived[i], .until_us = now + LINGER_MS * INT64_C(1000)};
    l->shared.n = 0;
    bool goes_on = !l->shared.stop;
    pthread_mutex_unlock(&l->shared.lock);
    return goes_on;
}

/* Reads from all; closes those that are done and returns how many. */
static size_t read_all(struct http_linger *l, int64_t now)
{
    size_t before = l->own.count;
    for (size_t i = 0; i < l->own.count;) {
        struct lingering *c = &l->own.list[i];
        if (read_on(l, c) && now < c->until_us) {
            i++;
            continue;
        }
        (void)close(c->fd);
        *c = l->own.list[--l->own.count];
    }
    return before - l->own.count;
}

static void await_input(struct http_linger *l)
{
    struct pollfd look[LINGER_COUNT + 1];
    uint64_t woken;
    look[0] = (struct pollfd){.fd = l->wake_fd, .events = POLLIN};
    for (size_t i = 0; i < l->own.count; i++)
        look[i + 1] = (struct pollfd){.fd = l->own.list[i].fd, .events = POLLIN};
    (void)poll(look, l->own.count + 1, l->own.count > 0 ? POLL_MS : -1); /* then all are tried */
    (void)!read(l->wake_fd, &woken, sizeof(woken));                      /* empty is fine */
}

static void run(void *ctx)
{
    struct http_linger *l = ctx;
    size_t closed = 0;
    while (take_arrived(l, clock_mono_us(clock_real()), closed)) {
        await_input(l);
        closed = read_all(l, clock_mono_us(clock_real()));
    }
    for (size_t i = 0; i < l->own.count; i++)
        (void)close(l->own.list[i].fd);
}

struct http_linger *http_linger_new(void)
{
    struct http_linger *l = mem_new(sizeof(*l));
    pthread_mutex_init(&l->shared.lock, NULL);
    l->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ASSERT(l->wake_fd >= 0);
    l->thread = thread_start("queen-linger", run, l);
    return l;
}

static void wake(struct http_linger *l)
{
    uint64_t one = 1;
    (void)!write(l->wake_fd, &one, sizeof(one)); /* full means woken already */
}

void http_linger_take(struct http_linger *l, int fd)
{
    pthread_mutex_lock(&l->shared.lock);
    bool room = l->shared.places < LINGER_COUNT;
    if (room) {
        l->shared.places++;
        l->shared.arrived[l->shared.n++] = fd;
    }
    pthread_mutex_unlock(&l->shared.lock);
    if (room)
        wake(l);
    else
        (void)close(fd);
}

void http_linger_free(struct http_linger *l)
{
    if (l == NULL)
        return;
    pthread_mutex_lock(&l->shared.lock);
    l->shared.stop = true;
    pthread_mutex_unlock(&l->shared.lock);
    wake(l);
    thread_join(l->thread);
    for (size_t i = 0; i < l->shared.n; i++)
        (void)close(l->shared.arrived[i]);
    (void)close(l->wake_fd);
    pthread_mutex_destroy(&l->shared.lock);
    mem_free(l);
}
