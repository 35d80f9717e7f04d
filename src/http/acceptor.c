/* One loop: wait for a newcomer or the end, take what is there, hand it over. When the process is out of
 * descriptors or the library at its limit, the backlog holds the rest and the loop looks again a moment later. */
#include "http/acceptor.h"

#include "base/err.h"
#include "base/mem.h"
#include "io/pool.h"

#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define FULL_WAIT_MS 10

struct http_acceptor {
    int listen_fd, stop_fd;
    struct MHD_Daemon *daemon;
    unsigned connections_max;
    struct thread *thread;
};

static bool at_limit(const struct http_acceptor *a)
{
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(a->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
    return info != NULL && info->num_connections >= a->connections_max;
}

/* False when there is nobody, or no room for anybody. *full_out tells which. */
static bool accept_one(struct http_acceptor *a, bool *full_out)
{
    struct sockaddr_storage address;
    socklen_t len = sizeof(address);
    *full_out = at_limit(a);
    if (*full_out)
        return false;
    int fd = accept4(a->listen_fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        *full_out = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        return errno == EINTR || errno == ECONNABORTED;
    }
    /* The library owns fd from here on, and closes it when it cannot take it. */
    (void)MHD_add_connection(a->daemon, fd, (struct sockaddr *)&address, len);
    return true;
}

static void run(void *ctx)
{
    struct http_acceptor *a = ctx;
    for (;;) {
        struct pollfd fds[2] = {{.fd = a->stop_fd, .events = POLLIN},
                                {.fd = a->listen_fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return; /* out of memory for poll: nothing can be accepted any more */
        if (fds[0].revents != 0)
            return;
        bool full = false;
        while (accept_one(a, &full)) {
        }
        if (full)
            (void)poll(fds, 1, FULL_WAIT_MS); /* a stop ends the wait, the loop sees it */
    }
}

struct http_acceptor *http_acceptor_start(int listen_fd, struct MHD_Daemon *daemon,
                                          unsigned connections_max)
{
    struct http_acceptor *a = mem_new(sizeof(*a));
    *a = (struct http_acceptor){.listen_fd = listen_fd, .daemon = daemon};
    a->connections_max = connections_max;
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
    (void)close(a->listen_fd);
    (void)close(a->stop_fd);
    mem_free(a);
}
