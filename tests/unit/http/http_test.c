/* The HTTP layer over real sockets on the loopback. */
#include "http/http.h"

#include "base/mem.h"

#include "lib/test.h"
#include "lib/http_client.h"

#include <pthread.h>

#define BODY_MAX (1u << 20)

/* The application under test: what it does depends on the path. */
struct app {
    struct http_server *server;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_request *held[256]; /* of /hold, oldest first */
    size_t n_held;
    size_t aborted, admitted;
    uint64_t last_length;
    bool refuse, hold;
};

static void answer_text(struct http_request *r, unsigned status, const char *text)
{
    struct buf body = BUF_INIT;
    buf_puts(&body, text);
    http_respond(r, &(struct http_answer){.status = status}, &body);
}

static void echo(void *ctx, struct http_request *r)
{
    (void)ctx;
    struct buf body = BUF_INIT;
    buf_put_span(&body, http_request_body(r));
    http_respond(r, &(struct http_answer){.status = 200}, &body);
}

static void *answer_from_thread(void *request)
{
    answer_text(request, 200, "thread");
    return NULL;
}

static void *resume_from_thread(void *request)
{
    http_resume(request, echo, NULL);
    return NULL;
}

static void detach(void *(*fn)(void *), struct http_request *r)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    ASSERT(pthread_create(&thread, &attr, fn, r) == 0);
    pthread_attr_destroy(&attr);
}

static void describe(struct http_request *r)
{
    struct buf body = BUF_INIT;
    buf_printf(&body, "%d [%.*s] [%.*s] [%.*s]", (int)http_request_method(r),
               SPAN_ARG(http_request_path(r)), SPAN_ARG(http_request_query(r)),
               SPAN_ARG(http_request_header(r, "x-test")));
    http_respond(r,
                 &(struct http_answer){.status = 429,
                                       .content_type = "text/x",
                                       .retry_after = 3,
                                       .extra_name = "ETag",
                                       .extra_value = "\"7\""},
                 &body);
}

static void hold(struct app *app, struct http_request *r)
{
    pthread_mutex_lock(&app->lock);
    app->held[app->n_held++] = r;
    pthread_cond_broadcast(&app->changed);
    pthread_mutex_unlock(&app->lock);
}

static void handle(void *ctx, struct http_request *r)
{
    struct span path = http_request_path(r);
    if (span_eq(path, SPAN_LIT("/echo")))
        echo(NULL, r);
    else if (span_eq(path, SPAN_LIT("/hold")))
        hold(ctx, r);
    else if (span_eq(path, SPAN_LIT("/thread")))
        detach(answer_from_thread, r);
    else if (span_eq(path, SPAN_LIT("/resume")))
        detach(resume_from_thread, r);
    else if (span_eq(path, SPAN_LIT("/empty")))
        http_respond(r, &(struct http_answer){.status = 204}, NULL);
    else
        describe(r);
}

static bool admit(void *ctx, struct http_request *r, uint64_t length)
{
    struct app *app = ctx;
    pthread_mutex_lock(&app->lock);
    bool refuse = app->refuse, holds = app->hold;
    app->last_length = length;
    app->admitted += refuse || holds ? 0 : 1;
    if (holds) {
        app->held[app->n_held++] = r;
        http_hold(r);
        pthread_cond_broadcast(&app->changed);
    }
    pthread_mutex_unlock(&app->lock);
    if (refuse)
        answer_text(r, 429, "later");
    return !refuse && !holds;
}

static void aborted(void *ctx, struct http_request *r)
{
    struct app *app = ctx;
    (void)r;
    pthread_mutex_lock(&app->lock);
    app->aborted++;
    pthread_cond_broadcast(&app->changed);
    pthread_mutex_unlock(&app->lock);
}

static void app_start_at(struct app *app, unsigned threads, unsigned least_bytes_s)
{
    struct error error = {0};
    *app = (struct app){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct http_options o = {.address = "127.0.0.1",
                             .threads = threads,
                             .body_max = BODY_MAX,
                             .connections_max = 200,
                             .handler = handle,
                             .admit = admit,
                             .aborted = aborted,
                             .ctx = app,
                             .idle_timeout_s = 2,
                             .progress_timeout_s = 1,
                             .least_bytes_s = least_bytes_s};
    CHECK_EQ(http_server_start(&o, &app->server, &error), ERR_OK);
}

static void app_start(struct app *app, unsigned threads)
{
    app_start_at(app, threads, 1);
}

static struct http_client app_connect(struct app *app)
{
    struct http_client c = http_client_open(http_server_port(app->server));
    CHECK(c.fd >= 0);
    return c;
}

/* Waits for n held requests. */
static void await_held(struct app *app, size_t n)
{
    pthread_mutex_lock(&app->lock);
    while (app->n_held < n)
        pthread_cond_wait(&app->changed, &app->lock);
    pthread_mutex_unlock(&app->lock);
}

static void check_reply(struct http_reply r, unsigned status, const char *body)
{
    CHECK_EQ(r.status, status);
    CHECK_TEXT(buf_span(&r.body), body);
    http_reply_deinit(&r);
}

static void fill(struct buf *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_putc(b, (uint8_t)('a' + i % 23));
}

/* --- plain requests --- */

TEST(a_request_is_shown_as_it_came)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("DELETE /a%2Fb//c%20d+e?x=%31&y HTTP/1.1\r\nHost: x\r\n"
                                        "X-Test:  seven \r\n\r\n")));
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 429);
    CHECK_TEXT(buf_span(&r.body), "3 [/a%2Fb//c%20d+e] [x=%31&y] [seven]");
    CHECK_TEXT(http_reply_header(&r, "content-type"), "text/x");
    CHECK_TEXT(http_reply_header(&r, "Retry-After"), "3");
    CHECK_TEXT(http_reply_header(&r, "ETag"), "\"7\"");
    http_reply_deinit(&r);
    CHECK(http_client_send(&c, SPAN_LIT("GET http://host:1/p?q HTTP/1.1\r\nHost: x\r\n\r\n")));
    check_reply(http_client_read(&c, false), 429, "0 [/p] [q] []");
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_connection_is_kept_for_many_requests)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    for (unsigned i = 0; i < 300; i++) {
        char body[32];
        snprintf(body, sizeof(body), "body %u", i);
        const char *path = i % 3 == 0 ? "/echo" : i % 3 == 1 ? "/resume" : "/thread";
        check_reply(http_client_call(&c, "POST", path, span_str(body)), 200,
                    i % 3 == 2 ? "thread" : body);
    }
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(pipelined_requests_are_answered_in_order)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    struct buf out = BUF_INIT;
    for (unsigned i = 0; i < 100; i++)
        buf_printf(&out, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n%03u",
                   i % 2 == 0 ? "/echo" : "/resume", i);
    CHECK(http_client_send(&c, buf_span(&out)));
    for (unsigned i = 0; i < 100; i++) {
        char body[8];
        snprintf(body, sizeof(body), "%03u", i);
        check_reply(http_client_read(&c, false), 200, body);
    }
    buf_deinit(&out);
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_head_request_has_no_body_and_204_no_length)
{
    struct app app;
    app_start(&app, 1);
    struct http_client c = app_connect(&app);
    struct http_reply r = http_client_call(&c, "HEAD", "/x", (struct span){NULL, 0});
    CHECK_EQ(r.status, 429);
    CHECK(http_reply_header(&r, "Content-Length").len > 0);
    http_reply_deinit(&r);
    r = http_client_call(&c, "GET", "/empty", (struct span){NULL, 0});
    CHECK_EQ(r.status, 204);
    CHECK_EQ(http_reply_header(&r, "Content-Length").len, 0);
    CHECK_EQ(http_reply_header(&r, "Content-Type").len, 0);
    http_reply_deinit(&r);
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("on")), 200, "on");
    http_client_close(&c);
    http_server_stop(app.server);
}

/* --- bodies --- */

TEST(bodies_arrive_whole_whatever_their_size_and_pieces)
{
    static const size_t sizes[] = {0, 1, 1000, 16384, 65536, 65537, 300000, BODY_MAX};
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct buf body = BUF_INIT;
        buf_reserve(&body, 1);
        fill(&body, sizes[i]);
        struct http_reply r = http_client_call(&c, "POST", "/echo", buf_span(&body));
        CHECK_EQ(r.status, 200);
        CHECK(span_eq(buf_span(&r.body), buf_span(&body)));
        http_reply_deinit(&r);
        buf_deinit(&body);
    }
    CHECK_EQ(app.last_length, BODY_MAX);
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_chunked_body_is_put_together)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")));
    usleep(20000);
    CHECK(http_client_send(&c, SPAN_LIT("6;ext=1\r\n world\r\n0\r\n\r\n")));
    check_reply(http_client_read(&c, false), 200, "hello world");
    CHECK_EQ(app.last_length, UINT64_MAX);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")));
    check_reply(http_client_read(&c, false), 200, "");
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(expect_100_continue_is_answered_before_the_body)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                                        "Expect: 100-continue\r\n\r\n")));
    check_reply(http_client_read(&c, false), 100, "");
    CHECK(http_client_send(&c, SPAN_LIT("body")));
    check_reply(http_client_read(&c, false), 200, "body");
    http_client_close(&c);
    http_server_stop(app.server);
}

/* Goal: a body over the limit is 413 in plain text, before it is read when its length is announced.
 */
TEST(a_body_over_the_limit_is_413)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 1048577\r\n\r\n")));
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 413);
    CHECK_TEXT(http_reply_header(&r, "Content-Type"), "text/plain");
    http_reply_deinit(&r);
    CHECK(http_client_at_end(&c));
    http_client_close(&c);

    c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: "
                                        "99999999999999999999999999\r\n\r\n")));
    r = http_client_read(&c, false);
    CHECK_EQ(r.status, 413);
    http_reply_deinit(&r);
    http_client_close(&c);
    http_server_stop(app.server);
}

/* Goal: a client that sends its whole body before it reads gets the answer, not a reset. */
TEST(a_large_refused_body_does_not_destroy_its_answer)
{
    struct app app;
    struct buf body = BUF_INIT;
    app_start(&app, 2);
    fill(&body, 30u << 20);
    for (unsigned i = 0; i < 3; i++) {
        struct http_client c = app_connect(&app);
        struct buf head = BUF_INIT;
        buf_printf(&head, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                   body.len);
        CHECK(http_client_send(&c, buf_span(&head)));
        CHECK(http_client_send(&c, buf_span(&body)));
        struct http_reply r = http_client_read(&c, false);
        CHECK_EQ(r.status, 413);
        http_reply_deinit(&r);
        CHECK(http_client_at_end(&c));
        http_client_close(&c);
        buf_deinit(&head);
    }
    buf_deinit(&body);
    http_server_stop(app.server);
}

TEST(a_chunked_body_over_the_limit_is_413_at_its_end)
{
    struct app app;
    struct buf chunk = BUF_INIT;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n")));
    buf_puts(&chunk, "10000\r\n");
    fill(&chunk, 65536);
    buf_puts(&chunk, "\r\n");
    for (unsigned i = 0; i < 17; i++)
        CHECK(http_client_send(&c, buf_span(&chunk)));
    CHECK(http_client_send(&c, SPAN_LIT("0\r\n\r\n")));
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 413);
    http_reply_deinit(&r);
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("on")), 200, "on");
    buf_deinit(&chunk);
    http_client_close(&c);
    http_server_stop(app.server);
}

/* Goal: a body without end is not read without end. */
TEST(an_endless_chunked_body_is_cut_off)
{
    struct app app;
    struct buf chunk = BUF_INIT;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Transfer-Encoding: chunked\r\n\r\n")));
    buf_puts(&chunk, "10000\r\n");
    fill(&chunk, 65536);
    buf_puts(&chunk, "\r\n");
    unsigned sent = 0;
    while (sent < 10000 && http_client_send(&c, buf_span(&chunk)))
        sent++;
    CHECK(sent < 1000);
    buf_deinit(&chunk);
    http_client_close(&c);
    http_server_stop(app.server);
    CHECK_EQ(app.aborted, 1);
}

/* --- refusals --- */

/* The malformed ones are refused by the library, in its own words. */
TEST(ambiguous_lengths_are_refused)
{
    static const char *const heads[] = {
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Content-Length: 4\r\nContent-Length: 4\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Content-Length: x\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 4, 4\r\n",
        "Content-Length: +4\r\n",
    };
    struct app app;
    app_start(&app, 2);
    for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
        struct buf out = BUF_INIT;
        struct http_client c = app_connect(&app);
        buf_printf(&out, "POST /echo HTTP/1.1\r\nHost: x\r\n%s\r\n0\r\n\r\n", heads[i]);
        CHECK(http_client_send(&c, buf_span(&out)));
        struct http_reply r = http_client_read(&c, false);
        CHECK_EQ(r.status, 400);
        http_reply_deinit(&r);
        while (http_client_fill(&c)) { /* closed in the end */
        }
        http_client_close(&c);
        buf_deinit(&out);
    }
    http_server_stop(app.server);
    CHECK_EQ(app.admitted, 0);
}

/* Goal: what two readers of the same bytes could take for different requests is none. */
TEST(malformed_requests_are_refused)
{
#define BYTES(text)                                                                                \
    {                                                                                              \
        (const uint8_t *)(text), sizeof(text) - 1                                                  \
    }
    static const struct span requests[] = {
        BYTES("GET /echo\0/x HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("GET /echo\0?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("GET /echo?x=\0&y=1 HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("GET /a\tb HTTP/1.1\r\nHost: x\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nHost: x\0y\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nHost: x\0y\r\nX-Y: 1\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nX\0Y: x\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nHost: x\r\n\0Content-Length: 5\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\n\0Content-Length: 5\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nHost: x\r\n y\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nHost: a\rb\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\nHost : x\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\n Host: x\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\r\n: x\r\n\r\n"),
        BYTES("GET /echo HTTP/1.1\nHost: x\n\n"),
    };
#undef BYTES
    struct app app;
    app_start(&app, 2);
    for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++) {
        struct http_client c = app_connect(&app);
        CHECK(http_client_send(&c, requests[i]));
        struct http_reply r = http_client_read(&c, false);
        if (r.status != 400)
            print_error("request %zu: %u\n", i, r.status);
        CHECK_EQ(r.status, 400);
        http_reply_deinit(&r);
        while (http_client_fill(&c)) { /* closed in the end */
        }
        http_client_close(&c);
    }
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("GET /x?a=1&b HTTP/1.1\r\nEmpty:\r\nX-Test: \ta \xff\t\r\n"
                                        "Blank: \r\n\r\n")));
    check_reply(http_client_read(&c, false), 429, "0 [/x] [a=1&b] [a \xff]");
    CHECK(http_client_send(&c, SPAN_LIT("GET /x HTTP/1.0\r\n\r\n"))); /* no header at all */
    check_reply(http_client_read(&c, false), 429, "0 [/x] [] []");
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(large_headers_are_431)
{
    struct app app;
    app_start(&app, 2);
    struct buf out = BUF_INIT;
    buf_puts(&out, "GET /x HTTP/1.1\r\nHost: x\r\nX-Long: ");
    fill(&out, 20000);
    buf_puts(&out, "\r\n\r\n");
    struct http_client c = app_connect(&app);
    (void)http_client_send(&c, buf_span(&out)); /* the answer may come before all is sent */
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 431);
    http_reply_deinit(&r);
    http_client_close(&c);
    buf_deinit(&out);

    /* and 8 KiB of headers pass */
    c = app_connect(&app);
    buf_puts(&out, "GET /x HTTP/1.1\r\nHost: x\r\nX-Long: ");
    fill(&out, 8000);
    buf_puts(&out, "\r\n\r\n");
    CHECK(http_client_send(&c, buf_span(&out)));
    check_reply(http_client_read(&c, false), 429, "0 [/x] [] []");
    buf_deinit(&out);
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_small_refused_body_keeps_the_connection)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    app.refuse = true;
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("body")), 429, "later");
    pthread_mutex_lock(&app.lock);
    app.refuse = false;
    pthread_mutex_unlock(&app.lock);
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("body")), 200, "body");
    http_client_close(&c);
    http_server_stop(app.server);
    CHECK_EQ(app.admitted, 1);
    CHECK_EQ(app.aborted, 0);
}

TEST(a_large_refused_body_closes_the_connection)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    app.refuse = true;
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 1000000\r\n\r\n")));
    check_reply(http_client_read(&c, false), 429, "later");
    CHECK(http_client_at_end(&c));
    http_client_close(&c);

    /* a client that waits for 100-continue is told at once too */
    c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                                        "Expect: 100-continue\r\n\r\n")));
    check_reply(http_client_read(&c, false), 429, "later");
    http_client_close(&c);
    http_server_stop(app.server);
}

static void set_hold(struct app *app, bool hold, bool refuse)
{
    pthread_mutex_lock(&app->lock);
    app->hold = hold;
    app->refuse = refuse;
    pthread_mutex_unlock(&app->lock);
}

/* Goal: a held request leaves its body unread, and goes on as admit() then says. */
TEST(a_held_request_is_asked_about_again)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    set_hold(&app, true, false);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                                        "Expect: 100-continue\r\n\r\n")));
    await_held(&app, 1);
    usleep(50000);
    struct pollfd look = {.fd = c.fd, .events = POLLIN};
    CHECK_EQ(poll(&look, 1, 0), 0); /* no 100 Continue yet */
    set_hold(&app, false, false);
    http_readmit(app.held[0]);
    check_reply(http_client_read(&c, false), 100, "");
    CHECK(http_client_send(&c, SPAN_LIT("body")));
    check_reply(http_client_read(&c, false), 200, "body");

    set_hold(&app, true, false);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                                        "\r\nbody")));
    await_held(&app, 2);
    set_hold(&app, false, true);
    http_readmit(app.held[1]);
    check_reply(http_client_read(&c, false), 429, "later");
    set_hold(&app, false, false);
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("on")), 200, "on");
    http_client_close(&c);
    http_server_stop(app.server);
    CHECK_EQ(app.aborted, 0);
}

static void *readmit_soon(void *ctx)
{
    struct app *app = ctx;
    usleep(50000);
    set_hold(app, false, true);
    for (size_t i = 0; i < app->n_held; i++)
        http_readmit(app->held[i]);
    return NULL;
}

TEST(stopping_waits_for_held_requests)
{
    struct app app;
    pthread_t thread;
    app_start(&app, 2);
    struct http_client stays = app_connect(&app), gone = app_connect(&app);
    set_hold(&app, true, false);
    for (unsigned i = 0; i < 2; i++)
        CHECK(http_client_send(i == 0 ? &stays : &gone,
                               SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
                                        "\r\nbody")));
    await_held(&app, 2);
    http_client_close(&gone);
    CHECK_EQ(pthread_create(&thread, NULL, readmit_soon, &app), 0);
    http_server_stop(app.server);
    pthread_join(thread, NULL);
    http_client_close(&stays);
}

/* --- clients that are slow or leave --- */

TEST(a_body_that_stops_arriving_closes_the_connection)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 10\r\n\r\nabc")));
    CHECK(http_client_at_end(&c));
    http_client_close(&c);
    http_server_stop(app.server);
    CHECK_EQ(app.aborted, 1);
}

TEST(a_slow_body_that_goes_on_is_read)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 6\r\n\r\n")));
    for (unsigned i = 0; i < 6; i++) {
        usleep(400000);
        CHECK(http_client_send(&c, SPAN_LIT("x")));
    }
    check_reply(http_client_read(&c, false), 200, "xxxxxx");
    /* idle for longer than a body may be, for less than a connection may be */
    usleep(1300000);
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("on")), 200, "on");
    CHECK(http_client_at_end(&c)); /* and then idle for too long */
    http_client_close(&c);
    http_server_stop(app.server);
}

/* Goal: a byte now and then does not keep a connection. */
TEST(headers_that_do_not_end_close_the_connection)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("GET /x HTTP/1.1\r\nX-")));
    unsigned sent = 0;
    while (sent < 100 && http_client_send(&c, SPAN_LIT("y"))) {
        sent++;
        usleep(200000);
    }
    CHECK(sent < 100);
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_body_below_the_least_speed_closes_the_connection)
{
    struct app app;
    app_start_at(&app, 2, 100);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 1000\r\n\r\n")));
    unsigned sent = 0;
    while (sent < 100 && http_client_send(&c, SPAN_LIT("y"))) {
        sent++;
        usleep(200000);
    }
    CHECK(sent < 100);
    http_client_close(&c);
    http_server_stop(app.server);
    CHECK_EQ(app.aborted, 1);
}

/* Method: more than the kernel's buffers hold, pipelined; nothing is read for longer than an answer
 * may stand still. */
TEST(an_answer_that_nobody_takes_closes_the_connection)
{
    struct app app;
    struct buf body = BUF_INIT, out = BUF_INIT;
    app_start(&app, 2);
    fill(&body, BODY_MAX);
    buf_printf(&out, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %u\r\n\r\n", BODY_MAX);
    buf_put_span(&out, buf_span(&body));
    struct http_client c = app_connect(&app);
    int small = 4096;
    CHECK_EQ(setsockopt(c.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    CHECK(http_client_send(&c, buf_span(&out)));
    sleep(4);
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 0); /* it did not come whole */
    http_reply_deinit(&r);
    buf_deinit(&body);
    buf_deinit(&out);
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_suspended_request_outlives_the_idle_time)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")));
    await_held(&app, 1);
    sleep(3);
    CHECK(!http_request_client_gone(app.held[0]));
    answer_text(app.held[0], 200, "at last");
    check_reply(http_client_read(&c, false), 200, "at last");
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_client_that_left_is_seen_and_its_answer_harms_nobody)
{
    struct app app;
    app_start(&app, 2);
    for (unsigned reset = 0; reset < 2; reset++) {
        struct http_client c = app_connect(&app);
        app.n_held = 0;
        CHECK(http_client_send(&c, SPAN_LIT("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")));
        await_held(&app, 1);
        CHECK(!http_request_client_gone(app.held[0]));
        struct linger now = {.l_onoff = 1};
        if (reset == 1)
            CHECK_EQ(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now)), 0);
        http_client_close(&c);
        for (unsigned i = 0; i < 5000 && !http_request_client_gone(app.held[0]); i++)
            usleep(1000);
        CHECK(http_request_client_gone(app.held[0]));
        if (reset == 1)
            http_resume(app.held[0], echo, NULL);
        else
            answer_text(app.held[0], 200, "to nobody");
    }
    struct http_client c = app_connect(&app);
    check_reply(http_client_call(&c, "POST", "/echo", SPAN_LIT("on")), 200, "on");
    http_client_close(&c);
    http_server_stop(app.server);
}

TEST(a_client_that_sends_no_more_still_gets_its_answer)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /hold HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 1\r\n\r\nx")));
    CHECK_EQ(shutdown(c.fd, SHUT_WR), 0);
    await_held(&app, 1);
    answer_text(app.held[0], 200, "half");
    check_reply(http_client_read(&c, false), 200, "half");
    http_client_close(&c);
    http_server_stop(app.server);
}

/* --- stopping --- */

static void *answer_all(void *ctx)
{
    struct app *app = ctx;
    usleep(50000);
    for (size_t i = 0; i < app->n_held; i++)
        answer_text(app->held[i], 503, "stopping");
    return NULL;
}

TEST(stopping_delivers_the_answers_of_suspended_requests)
{
    struct http_client clients[40];
    struct app app;
    pthread_t thread;
    app_start(&app, 2);
    for (unsigned i = 0; i < 40; i++) {
        clients[i] = app_connect(&app);
        CHECK(http_client_send(&clients[i], SPAN_LIT("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")));
    }
    await_held(&app, 40);
    CHECK_EQ(http_server_inflight(app.server), 40);
    CHECK_EQ(pthread_create(&thread, NULL, answer_all, &app), 0);
    http_server_stop(app.server);
    pthread_join(thread, NULL);
    for (unsigned i = 0; i < 40; i++) {
        check_reply(http_client_read(&clients[i], false), 503, "stopping");
        http_client_close(&clients[i]);
    }
}

TEST(quiescing_refuses_newcomers_and_finishes_what_runs)
{
    struct app app;
    app_start(&app, 2);
    struct http_client running = app_connect(&app), idle = app_connect(&app);
    check_reply(http_client_call(&idle, "POST", "/echo", SPAN_LIT("1")), 200, "1");
    CHECK(http_client_send(&running, SPAN_LIT("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")));
    await_held(&app, 1);
    http_server_quiesce(app.server);
    struct http_client late = http_client_open(http_server_port(app.server));
    CHECK(late.fd < 0);
    answer_text(app.held[0], 200, "done");
    struct http_reply r = http_client_read(&running, false);
    CHECK_EQ(r.status, 200);
    CHECK_TEXT(http_reply_header(&r, "Connection"), "close");
    http_reply_deinit(&r);
    CHECK(http_client_at_end(&running));
    check_reply(http_client_call(&idle, "POST", "/echo", SPAN_LIT("2")), 200, "2");
    http_client_close(&running);
    http_client_close(&idle);
    http_client_close(&late);
    http_server_stop(app.server);
}

TEST(stopping_cuts_bodies_that_are_still_arriving)
{
    struct app app;
    app_start(&app, 2);
    struct http_client c = app_connect(&app);
    CHECK(http_client_send(&c, SPAN_LIT("POST /echo HTTP/1.1\r\nHost: x\r\n"
                                        "Content-Length: 10\r\n\r\nabc")));
    for (unsigned i = 0; i < 1000; i++) {
        pthread_mutex_lock(&app.lock);
        bool seen = app.admitted == 1;
        pthread_mutex_unlock(&app.lock);
        if (seen)
            break;
        usleep(1000);
    }
    http_server_stop(app.server);
    CHECK_EQ(app.aborted, 1);
    http_client_close(&c);
}

TEST(a_port_in_use_is_refused)
{
    struct app app;
    struct error error = {0};
    struct http_server *second;
    app_start(&app, 1);
    struct http_options o = {.address = "127.0.0.1",
                             .port = http_server_port(app.server),
                             .threads = 1,
                             .body_max = 1,
                             .connections_max = 10,
                             .handler = handle,
                             .ctx = &app};
    CHECK_EQ(http_server_start(&o, &second, &error), ERR_LOCKED);
    CHECK(strstr(error.text, "127.0.0.1") != NULL);
    o.address = "nowhere";
    CHECK_EQ(http_server_start(&o, &second, &error), ERR_INVALID);
    http_server_stop(app.server);
    http_server_stop(NULL);
}

/* --- many at once --- */

struct load {
    struct app *app;
    unsigned seed, failures;
};

static void *load_run(void *ctx)
{
    struct load *load = ctx;
    static const char *const paths[] = {"/echo", "/thread", "/resume"};
    struct http_client c = http_client_open(http_server_port(load->app->server));
    for (unsigned i = 0; i < 200; i++) {
        unsigned which = (i * 7 + load->seed) % 3;
        struct http_reply r = http_client_call(&c, "POST", paths[which], SPAN_LIT("some body"));
        struct span want = which == 1 ? SPAN_LIT("thread") : SPAN_LIT("some body");
        if (r.status != 200 || !span_eq(buf_span(&r.body), want))
            load->failures++;
        http_reply_deinit(&r);
    }
    http_client_close(&c);
    return NULL;
}

TEST(many_connections_get_their_own_answers)
{
    struct app app;
    pthread_t threads[16];
    struct load loads[16];
    app_start(&app, 2);
    for (unsigned i = 0; i < 16; i++) {
        loads[i] = (struct load){.app = &app, .seed = i};
        CHECK_EQ(pthread_create(&threads[i], NULL, load_run, &loads[i]), 0);
    }
    for (unsigned i = 0; i < 16; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(loads[i].failures, 0);
    }
    http_server_stop(app.server);
}

TEST_MAIN()
