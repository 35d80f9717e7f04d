/* The scripted server; see server.h. */
#include "unit/s3/server.h"

#include "base/mem.h"
#include "io/pool.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SEEN_MAX 4096
#define CONNECTIONS_MAX 4096

struct connection {
    struct server *s;
    int fd;
    unsigned number;
    struct buf in;
    struct thread *thread;
};

struct server {
    const struct step *steps;
    size_t n;
    int listener, stop; /* stop: an eventfd that wakes everything */
    unsigned port;
    struct thread *acceptor;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct {
        struct seen seen[SEEN_MAX];
        size_t n_seen;
        unsigned n_late;
        struct connection *connections[CONNECTIONS_MAX];
        unsigned n_connections;
    } shared;
};

/* Waits for fd to be readable; false when the server stops or the time is over. fd < 0: only that.
 */
static bool wait_for(struct server *s, int fd, int timeout_ms)
{
    struct pollfd fds[2] = {{.fd = s->stop, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    int n = poll(fds, 2, timeout_ms);
    return n > 0 && fds[0].revents == 0;
}

static bool receive(struct connection *c)
{
    uint8_t *at;
    ssize_t n;
    if (!wait_for(c->s, c->fd, -1))
        return false;
    at = buf_extend(&c->in, 65536);
    n = recv(c->fd, at, 65536, 0);
    c->in.len -= 65536 - (size_t)(n > 0 ? n : 0);
    return n > 0;
}

static bool send_all(struct connection *c, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(c->fd, bytes, len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes += n;
        len -= (size_t)n;
    }
    return true;
}

/* Reads a head; NULL at the end of the connection. */
static char *read_head(struct connection *c)
{
    for (;;) {
        const uint8_t *end = c->in.len > 0 ? memmem(c->in.ptr, c->in.len, "\r\n\r\n", 4) : NULL;
        if (end != NULL) {
            size_t len = (size_t)(end - c->in.ptr) + 4;
            char *head = span_dup(span_make(c->in.ptr, len));
            memmove(c->in.ptr, c->in.ptr + len, c->in.len - len);
            c->in.len -= len;
            return head;
        }
        if (!receive(c))
            return NULL;
    }
}

static size_t body_length(const char *head)
{
    const char *at = strcasestr(head, "\r\ncontent-length:");
    return at != NULL ? strtoul(at + 17, NULL, 10) : 0;
}

static bool read_body(struct connection *c, struct buf *body, size_t len)
{
    while (c->in.len < len) {
        if (!receive(c))
            return false;
    }
    buf_append(body, c->in.ptr, len);
    memmove(c->in.ptr, c->in.ptr + len, c->in.len - len);
    c->in.len -= len;
    return true;
}

static struct seen *next_seen(struct connection *c, char *head, struct step *step_out)
{
    static const struct step beyond = {.answer =
                                           "HTTP/1.1 599 Beyond\r\nContent-Length: 0\r\n\r\n"};
    struct server *s = c->s;
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    size_t i = s->shared.n_seen++;
    ASSERT(i < SEEN_MAX);
    s->shared.seen[i] = (struct seen){.head = head, .connection = c->number};
    *step_out = i < s->n ? s->steps[i] : beyond;
    ASSERT(pthread_cond_broadcast(&s->changed) == 0);
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return &s->shared.seen[i];
}

static bool send_echo(struct connection *c, const char *head)
{
    struct buf b = BUF_INIT;
    const char *at = strcasestr(head, "\r\nauthorization:");
    const char *value = at != NULL ? at + 16 : "";
    size_t len = strcspn(value, "\r");
    buf_printf(&b, "HTTP/1.1 403 No\r\nContent-Length: %zu\r\n\r\n%.*s", len, (int)len, value);
    bool ok = send_all(c, (const char *)b.ptr, b.len);
    buf_deinit(&b);
    return ok;
}

static bool serve_one(struct connection *c)
{
    struct step step;
    char *head = read_head(c);
    if (head == NULL)
        return false;
    struct seen *seen = next_seen(c, head, &step);
    if (!step.head_only && !read_body(c, &seen->body, body_length(head)))
        return false;
    if (step.before_ms > 0)
        (void)wait_for(c->s, -1, (int)step.before_ms);
    if (step.echo_authorization)
        return send_echo(c, head);
    if (step.answer != NULL &&
        !send_all(c, step.answer, step.len > 0 ? step.len : strlen(step.answer)))
        return false;
    if (step.late != NULL) {
        (void)wait_for(c->s, -1, (int)step.late_ms);
        (void)send_all(c, step.late, strlen(step.late));
        ASSERT(pthread_mutex_lock(&c->s->lock) == 0);
        c->s->shared.n_late++;
        ASSERT(pthread_cond_broadcast(&c->s->changed) == 0);
        ASSERT(pthread_mutex_unlock(&c->s->lock) == 0);
    }
    return !step.close;
}

static void connection_main(void *ctx)
{
    struct connection *c = ctx;
    while (serve_one(c))
        ;
    (void)close(c->fd);
}

static void acceptor_main(void *ctx)
{
    struct server *s = ctx;
    while (wait_for(s, s->listener, -1)) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0)
            continue;
        int on = 1; /* what is sent late leaves at once */
        ASSERT(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
        struct connection *c = mem_new(sizeof(*c));
        c->s = s;
        c->fd = fd;
        ASSERT(pthread_mutex_lock(&s->lock) == 0);
        c->number = s->shared.n_connections;
        ASSERT(c->number < CONNECTIONS_MAX);
        s->shared.connections[s->shared.n_connections++] = c;
        c->thread = thread_start("test-connection", connection_main, c);
        ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    }
}

struct server *server_start(const struct step *steps, size_t n)
{
    struct server *s = mem_new(sizeof(*s));
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    s->steps = steps;
    s->n = n;
    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    s->stop = eventfd(0, EFD_CLOEXEC);
    ASSERT(s->listener >= 0 && s->stop >= 0);
    ASSERT(bind(s->listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    ASSERT(listen(s->listener, 128) == 0);
    ASSERT(getsockname(s->listener, (struct sockaddr *)&address, &len) == 0);
    s->port = ntohs(address.sin_port);
    ASSERT(pthread_mutex_init(&s->lock, NULL) == 0);
    cond_init_mono(&s->changed);
    s->acceptor = thread_start("test-acceptor", acceptor_main, s);
    return s;
}

unsigned server_port(const struct server *s)
{
    return s->port;
}

size_t server_requests(struct server *s)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    size_t n = s->shared.n_seen;
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return n;
}

const struct seen *server_seen(struct server *s, size_t i)
{
    ASSERT(i < server_requests(s));
    return &s->shared.seen[i];
}

unsigned server_connections(struct server *s)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    unsigned n = s->shared.n_connections;
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
    return n;
}

void server_wait(struct server *s, size_t n)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    while (s->shared.n_seen < n)
        (void)cond_wait_us(&s->changed, &s->lock, -1);
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
}

void server_wait_late(struct server *s, unsigned n)
{
    ASSERT(pthread_mutex_lock(&s->lock) == 0);
    while (s->shared.n_late < n)
        (void)cond_wait_us(&s->changed, &s->lock, -1);
    ASSERT(pthread_mutex_unlock(&s->lock) == 0);
}

void server_stop(struct server *s)
{
    uint64_t one = 1;
    ASSERT(write(s->stop, &one, sizeof(one)) == sizeof(one));
    thread_join(s->acceptor);
    for (unsigned i = 0; i < s->shared.n_connections; i++) {
        struct connection *c = s->shared.connections[i];
        thread_join(c->thread);
        buf_deinit(&c->in);
        mem_free(c);
    }
    for (size_t i = 0; i < s->shared.n_seen; i++) {
        mem_free(s->shared.seen[i].head);
        buf_deinit(&s->shared.seen[i].body);
    }
    (void)close(s->listener);
    (void)close(s->stop);
    (void)pthread_mutex_destroy(&s->lock);
    (void)pthread_cond_destroy(&s->changed);
    mem_free(s);
}
