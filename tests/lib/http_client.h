/* A small blocking HTTP/1.1 client for tests: sends raw bytes, reads answers by their framing. */
#ifndef TESTS_LIB_HTTP_CLIENT_H
#define TESTS_LIB_HTTP_CLIENT_H

#include "base/buf.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define HTTP_CLIENT_WAIT_MS                                                                        \
    20000 /* for one read: a lost answer fails the test, not the machine                           \
           */

struct http_client {
    int fd;
    struct buf in; /* received and not taken yet */
};

struct http_reply {
    unsigned status;       /* 0: the connection closed before a whole answer */
    struct buf head, body; /* a zero byte stands behind each, for strstr() */
};

static inline struct http_client http_client_open(uint16_t port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct http_client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(c.fd, (struct sockaddr *)&to, sizeof(to)) != 0) {
        (void)close(c.fd);
        c.fd = -1;
    }
    return c;
}

static inline void http_client_close(struct http_client *c)
{
    if (c->fd >= 0)
        (void)close(c->fd);
    c->fd = -1;
    buf_deinit(&c->in);
}

/* False when the peer went away. */
static inline bool http_client_send(struct http_client *c, struct span bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(c->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n <= 0)
            return false;
        bytes = span_sub(bytes, (size_t)n, bytes.len);
    }
    return true;
}

/* One recv(); false at the end, on an error or when nothing comes for HTTP_CLIENT_WAIT_MS. */
static inline bool http_client_fill(struct http_client *c)
{
    struct pollfd look = {.fd = c->fd, .events = POLLIN};
    uint8_t bytes[65536];
    if (poll(&look, 1, HTTP_CLIENT_WAIT_MS) <= 0)
        return false;
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), 0);
    if (n <= 0)
        return false;
    buf_append(&c->in, bytes, (size_t)n);
    return true;
}

static inline void http_client_drop(struct http_client *c, size_t n)
{
    memmove(c->in.ptr, c->in.ptr + n, c->in.len - n);
    c->in.len -= n;
}

/* Value of a header of a head, empty when absent. */
static inline struct span http_reply_header(const struct http_reply *r, const char *name)
{
    size_t len = strlen(name);
    struct span rest = buf_span(&r->head);
    while (rest.len > 0) {
        const uint8_t *end = memchr(rest.ptr, '\n', rest.len);
        size_t line = end == NULL ? rest.len : (size_t)(end - rest.ptr) + 1;
        if (line > len && rest.ptr[len] == ':' &&
            span_eq_nocase(span_sub(rest, 0, len), span_make(name, len)))
            return span_trim(span_sub(rest, len + 1, line));
        rest = span_sub(rest, line, rest.len);
    }
    return (struct span){NULL, 0};
}

static inline void http_reply_deinit(struct http_reply *r)
{
    buf_deinit(&r->head);
    buf_deinit(&r->body);
}

/* Reads one answer (1xx are answers too). head_only: of a HEAD request. */
static inline struct http_reply http_client_read(struct http_client *c, bool head_only)
{
    struct http_reply r = {0};
    uint8_t *end;
    while ((end = c->in.len == 0 ? NULL : memmem(c->in.ptr, c->in.len, "\r\n\r\n", 4)) == NULL) {
        if (!http_client_fill(c))
            return r;
    }
    size_t head = (size_t)(end - c->in.ptr) + 4;
    buf_append(&r.head, c->in.ptr, head);
    buf_putc(&r.head, 0);
    r.head.len--;
    http_client_drop(c, head);
    unsigned status = (unsigned)strtoul((const char *)r.head.ptr + 9, NULL, 10);
    uint64_t length = 0;
    struct span text = http_reply_header(&r, "Content-Length");
    if (!head_only && status >= 200 && span_parse_u64(text, &length)) {
        while (c->in.len < length) {
            if (!http_client_fill(c))
                return r;
        }
        buf_append(&r.body, c->in.ptr, (size_t)length);
        buf_putc(&r.body, 0);
        r.body.len--;
        http_client_drop(c, (size_t)length);
    }
    r.status = status;
    return r;
}

/* One request with a body of known length (body.ptr NULL: none) and its answer. */
static inline struct http_reply http_client_call(struct http_client *c, const char *method,
                                                 const char *path, struct span body)
{
    struct buf out = BUF_INIT;
    buf_printf(&out, "%s %s HTTP/1.1\r\nHost: x\r\n", method, path);
    if (body.ptr != NULL)
        buf_printf(&out, "Content-Length: %zu\r\n", body.len);
    buf_puts(&out, "\r\n");
    if (body.len > 0)
        buf_put_span(&out, body);
    (void)http_client_send(c, buf_span(&out)); /* a refusal may close before all is sent */
    buf_deinit(&out);
    return http_client_read(c, strcmp(method, "HEAD") == 0);
}

/* True when the peer closes without sending another byte. */
static inline bool http_client_at_end(struct http_client *c)
{
    return c->in.len == 0 && !http_client_fill(c);
}

#endif
