/* The limit of a durable push: what is left when a server only reads, writes, syncs and answers.
 *
 *   limit_server --file=PATH [--mb=1024]
 *
 * One thread, one epoll. All connections that have something are read; the bodies that became whole
 * are appended to a preallocated file with one write, made durable with one fdatasync, and answered
 * 201. At the file's end it starts over. Nothing is looked at in a body. Prints `listening port=N`;
 * ends with SIGTERM. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define CLIENTS_MAX 1024
#define IN_MAX (8u << 20) /* of one request */

static const char answer[] = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n[]";

struct client {
    int fd;
    char *in;
    size_t have, head, want; /* want 0: the head is not whole */
    size_t cap;
};

struct server {
    int epoll, listener, file;
    uint64_t size, at;
    struct client *pending[CLIENTS_MAX]; /* whole requests, not durable yet */
    int n;
};

static int open_file(const char *path, uint64_t size)
{
    static char block[1 << 20];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die("%s: %s", path, strerror(errno));
    for (uint64_t at = 0; at < size; at += sizeof(block)) {
        if (pwrite(fd, block, sizeof(block), (off_t)at) != (ssize_t)sizeof(block))
            bench_die("%s: %s", path, strerror(errno));
    }
    fsync(fd);
    return fd;
}

static void start_listening(struct server *s)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&at, len) != 0 ||
        listen(s->listener, CLIENTS_MAX) != 0 ||
        getsockname(s->listener, (struct sockaddr *)&at, &len) != 0)
        bench_die("cannot listen: %s", strerror(errno));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(s->epoll, EPOLL_CTL_ADD, s->listener, &event);
    printf("listening port=%u\n", ntohs(at.sin_port));
    fflush(stdout);
}

static void accept_all(struct server *s)
{
    int one = 1, fd;
    while ((fd = accept4(s->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct client *c = calloc(1, sizeof(*c));
        c->fd = fd;
        c->cap = 1 << 18;
        c->in = malloc(c->cap);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(s->epoll, EPOLL_CTL_ADD, fd, &event);
    }
}

static void drop(struct client *c)
{
    close(c->fd);
    free(c->in);
    free(c);
}

static void read_some(struct server *s, struct client *c)
{
    for (;;) {
        ssize_t n = recv(c->fd, c->in + c->have, c->cap - c->have, 0);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            drop(c);
            return;
        }
        c->have += (size_t)n;
        size_t body;
        if (c->want == 0 && (c->head = bench_head(c->in, c->have, &body)) > 0) {
            c->want = c->head + body;
            if (c->want > IN_MAX)
                bench_die("a request of %zu bytes", c->want);
            if (c->want > c->cap)
                c->in = realloc(c->in, c->cap = c->want);
        }
        if (c->want > 0 && c->have >= c->want) {
            s->pending[s->n++] = c;
            return;
        }
    }
}

static void make_durable(struct server *s)
{
    struct iovec parts[CLIENTS_MAX];
    uint64_t bytes = 0;
    for (int i = 0; i < s->n; i++) {
        struct client *c = s->pending[i];
        parts[i] = (struct iovec){c->in + c->head, c->want - c->head};
        bytes += c->want - c->head;
    }
    if (s->at + bytes > s->size)
        s->at = 0;
    for (int i = 0; bytes > 0;) {
        ssize_t n = pwritev(s->file, parts + i, s->n - i, (off_t)s->at);
        if (n <= 0)
            bench_die("write: %s", strerror(errno));
        s->at += (uint64_t)n;
        bytes -= (uint64_t)n;
        for (; i < s->n && (size_t)n >= parts[i].iov_len; i++)
            n -= (ssize_t)parts[i].iov_len;
        if (n > 0)
            parts[i] = (struct iovec){(char *)parts[i].iov_base + n, parts[i].iov_len - (size_t)n};
    }
    if (fdatasync(s->file) != 0)
        bench_die("fdatasync: %s", strerror(errno));
}

static void answer_all(struct server *s)
{
    for (int i = 0; i < s->n; i++) {
        struct client *c = s->pending[i];
        c->have = c->want = 0; /* the client waits for its answer before it sends more */
        if (send(c->fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL) != (ssize_t)sizeof(answer) - 1)
            bench_die("an answer was cut");
    }
    s->n = 0;
}

int main(int argc, char **argv)
{
    struct server s = {.size = bench_number(argc, argv, "mb", 1024) << 20};
    const char *path = bench_text(argc, argv, "file", "limit_server.tmp");
    bench_arguments_end(argc, argv);
    s.file = open_file(path, s.size);
    start_listening(&s);
    for (;;) {
        struct epoll_event events[CLIENTS_MAX];
        int n = epoll_wait(s.epoll, events, CLIENTS_MAX, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == NULL)
                accept_all(&s);
            else
                read_some(&s, events[i].data.ptr);
        }
        if (s.n > 0) {
            make_durable(&s);
            answer_all(&s);
        }
    }
}
