/* One loop: wait for a newcomer or the end, take what is there, hand it over; beside that, end the
 * connections that take too long.
 *
 * Newcomers never wait without an answer. At the limit, connections without a request under way make
 * room, and the newcomer comes in a moment later; when there are none it is answered 503. When the
 * process is out of descriptors, which its shares should not let happen, the backlog holds it. */
#include "http/acceptor.h"

#include "base/mem.h"
#include "base/span.h"
#include "http/conns.h"
#include "http/linger.h"
#include "io/clock.h"
#include "io/pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096
#define FULL_WAIT_MS 5
#define ROOM_WAIT_MS 1000 /* for those shed to be gone */
/* Of an answer, in the kernel and not sent: more stays here, where it is counted. */
#define NOT_SENT_MAX (128 * 1024)

struct http_acceptor {
    struct http_acceptor_options options;
    int stop_fd;
    int64_t reaped_us;
    int64_t full_since_us; /* 0 = there is room */
    struct thread *thread;
};

enum err http_listen(const char *address_text, uint16_t port, int *fd_out, uint16_t *port_out,
                     struct error *error)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr *address = NULL;
    socklen_t len = 0;
    if (inet_pton(AF_INET, address_text, &four.sin_addr) == 1) {
        address = (struct sockaddr *)&four;
        len = sizeof(four);
    } else if (inet_pton(AF_INET6, address_text, &six.sin6_addr) == 1) {
        address = (struct sockaddr *)&six;
        len = sizeof(six);
    } else {
        return error_set(error, ERR_INVALID, "%s is not an IP address", address_text);
    }
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, address, len) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, address, &len) != 0) {
        int code = errno;
        if (fd >= 0)
            (void)close(fd);
        return error_set(error, code == EADDRINUSE ? ERR_LOCKED : ERR_IO,
                         "cannot listen on %s port %u: %s", address_text, port,
                         strerrordesc_np(code));
    }
    *fd_out = fd;
    *port_out = ntohs(address->sa_family == AF_INET ? four.sin_port : six.sin6_port);
    return ERR_OK;
}

/* --- newcomers ----------------------------------------------------------------------------------
 */

static void turn_away(struct http_acceptor *a, int fd)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\n"
                                 "Content-Type: application/json\r\n"
                                 "Retry-After: 1\r\n"
                                 "Connection: close\r\n"
                                 "\r\n"
                                 "{\"error\":\"too many connections\",\"code\":\"retry\"}";
    (void)!send(fd, answer, sizeof(answer) - 1,
                MSG_NOSIGNAL | MSG_DONTWAIT); /* the buffer is new */
    (void)shutdown(fd, SHUT_WR);
    http_linger_take(a->options.linger, fd);
}

/* At the limit: whether to take and refuse who comes, because nobody makes room. */
static bool to_refuse(struct http_acceptor *a)
{
    int64_t now = clock_mono_us(clock_real());
    if (a->full_since_us == 0)
        a->full_since_us = now;
    return !http_conns_shed(a->options.conns) ||
           now - a->full_since_us > ROOM_WAIT_MS * INT64_C(1000);
}

static bool somebody_waits(const struct http_acceptor *a)
{
    struct pollfd look = {.fd = a->options.listen_fd, .events = POLLIN};
    return poll(&look, 1, 0) > 0;
}

/* False when there is nobody, or no room at the moment. *full_out tells which. */
static bool accept_one(struct http_acceptor *a, bool *full_out)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    bool room = http_conns_enter(a->options.conns);
    if (room)
        a->full_since_us = 0;
    else if (!somebody_waits(a))
        return false;
    else
        *full_out = !to_refuse(a);
    if (*full_out)
        return false;
    int fd = accept4(a->options.listen_fd, (struct sockaddr *)&address, &len,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        int code = errno;
        if (room)
            http_conns_leave(a->options.conns);
        *full_out = code == EMFILE || code == ENFILE || code == ENOBUFS || code == ENOMEM;
        return code == EINTR || code == ECONNABORTED;
    }
    if (!room) {
        turn_away(a, fd);
        return true;
    }
    int unsent = NOT_SENT_MAX;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent)); /* a favour */
    /* The library owns fd from here on, and closes it when it cannot take it. */
    if (MHD_add_connection(a->options.daemon, fd, (struct sockaddr *)&address, len) != MHD_YES)
        http_conns_leave(a->options.conns);
    return true;
}

static void reap(struct http_acceptor *a)
{
    int64_t now = clock_mono_us(clock_real());
    if (now - a->reaped_us < http_conns_interval_ms(a->options.conns) * INT64_C(1000))
        return;
    a->reaped_us = now;
    http_conns_reap(a->options.conns, a->options.pressed(a->options.ctx));
}

static void run(void *ctx)
{
    struct http_acceptor *a = ctx;
    for (;;) {
        struct pollfd fds[2] = {{.fd = a->stop_fd, .events = POLLIN},
                                {.fd = a->options.listen_fd, .events = POLLIN}};
        int ready = poll(fds, 2, http_conns_interval_ms(a->options.conns));
        if (ready < 0 && errno != EINTR)
            return; /* out of memory for poll: nothing can be accepted any more */
        if (fds[0].revents != 0)
            return;
        bool full = false;
        unsigned taken = 0;
        while (fds[1].revents != 0 && taken < BACKLOG && accept_one(a, &full))
            taken++;
        if (full)
            (void)poll(fds, 1, FULL_WAIT_MS); /* a stop ends the wait, the loop sees it */
        reap(a);
    }
}

struct http_acceptor *http_acceptor_start(const struct http_acceptor_options *options)
{
    struct http_acceptor *a = mem_new(sizeof(*a));
    a->options = *options;
    a->stop_fd = eventfd(0, EFD_CLOEXEC);
    ASSERT(a->stop_fd >= 0); /* at boot, before clients use up the descriptors */
    a->thread = thread_start("queen-accept", run, a);
    return a;
}

void http_acceptor_stop(struct http_acceptor *a)
{
    const uint64_t one = 1;
    if (a == NULL)
        return;
    ssize_t written = write(a->stop_fd, &one, sizeof(one));
    ASSERT(written == (ssize_t)sizeof(one));
    thread_join(a->thread);
    (void)close(a->options.listen_fd);
    (void)close(a->stop_fd);
    mem_free(a);
}
