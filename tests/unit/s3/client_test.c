/* The S3 client against a server that answers by script (server.h): each row of what servers do.
 *
 * Waits between attempts start at a millisecond here; nothing else differs from production. */
#include "s3/s3_client.h"

#include "base/mem.h"
#include "io/pool.h"
#include "lib/test.h"
#include "unit/s3/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ACCESS "AKIDEXAMPLE"
#define SECRET "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
#define OK_EMPTY "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
#define OK_ETAG(etag) "HTTP/1.1 200 OK\r\nETag: \"" etag "\"\r\nContent-Length: 0\r\n\r\n"
#define STATUS(code) "HTTP/1.1 " code " X\r\nContent-Length: 0\r\n\r\n"
#define HELLO_MD5 "5d41402abc4b2a76b9719d911017c592"
#define CREATED                                                                                    \
    "HTTP/1.1 200 OK\r\nContent-Length: 96\r\n\r\n"                                                \
    "<InitiateMultipartUploadResult><UploadId>up/1+ "                                              \
    "&amp;x</UploadId></InitiateMultipartUploadResult>"
#define COMPLETED                                                                                  \
    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"                                                 \
    "<CompleteMultipartUploadResult><ETag>&quot;abc-3&quot;</ETag></"                              \
    "CompleteMultipartUploadResult>"
#define ERROR_BODY(status, code)                                                                   \
    "HTTP/1.1 " status " X\r\nConnection: close\r\n\r\n<Error><Code>" code "</Code></Error>"

/* ---- Fixture ---- */

struct fixture {
    struct server *server;
    struct bucket *bucket;
};

static struct s3_client_options options_of(const char *endpoint)
{
    return (struct s3_client_options){.endpoint = span_str(endpoint),
                                      .region = SPAN_LIT("us-east-1"),
                                      .bucket = SPAN_LIT("lake"),
                                      .access_key = SPAN_LIT(ACCESS),
                                      .secret_key = SPAN_LIT(SECRET),
                                      .path_style = true,
                                      .multipart_threshold = 64u << 20,
                                      .clock = clock_real(),
                                      .entropy = entropy_real(),
                                      .limits = {.retry_step_us = 1000}};
}

static void open_client(struct fixture *f, struct s3_client_options o)
{
    struct error error;
    char endpoint[64];
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server_port(f->server));
    o.endpoint = span_str(endpoint);
    CHECK_EQ(s3_client_open(&o, &f->bucket, &error), ERR_OK);
}

#define START(f, steps) start((f), (steps), sizeof(steps) / sizeof((steps)[0]))

static void start(struct fixture *f, const struct step *steps, size_t n)
{
    *f = (struct fixture){.server = server_start(steps, n)};
    open_client(f, options_of(""));
}

static void stop(struct fixture *f)
{
    bucket_close(f->bucket);
    server_stop(f->server);
}

struct call {
    struct bucket_request r;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done;
    unsigned attempts, between;
    enum bucket_silence silence; /* of the first */
    struct buf trace;            /* "label code, " of each attempt */
    char first_error[ERROR_TEXT_MAX];
};

static void on_attempt(struct bucket_request *r, unsigned code, struct span error)
{
    struct call *c = r->ctx;
    (void)pthread_mutex_lock(&c->lock);
    if (c->attempts == 0)
        c->silence = r->clue.silence;
    if (c->attempts++ == 0)
        (void)snprintf(c->first_error, sizeof(c->first_error), SPAN_FMT, SPAN_ARG(error));
    buf_printf(&c->trace, "%s%s %u", c->trace.len > 0 ? ", " : "", bucket_attempt_label(r), code);
    (void)pthread_mutex_unlock(&c->lock);
}

static void on_between(struct bucket_request *r)
{
    struct call *c = r->ctx;
    (void)pthread_mutex_lock(&c->lock);
    c->between++;
    (void)pthread_mutex_unlock(&c->lock);
}

static void on_done(struct bucket_request *r)
{
    struct call *c = r->ctx;
    (void)pthread_mutex_lock(&c->lock);
    c->done = true;
    (void)pthread_cond_signal(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

static void call_init(struct call *c, enum bucket_op op, const char *key)
{
    *c = (struct call){.r = {.op = op,
                             .key = span_str(key),
                             .body.fd = -1,
                             .content_type = "application/json",
                             .get_max = 1000,
                             .done = on_done,
                             .attempt = on_attempt,
                             .between_parts = on_between},
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER};
    c->r.ctx = c;
}

static void put_init(struct call *c, struct span body)
{
    call_init(c, BUCKET_PUT, "queen/a=b");
    c->r.body.bytes = body;
    c->r.body.size = body.len;
}

static void call_deinit(struct call *c)
{
    bucket_request_deinit(&c->r);
    buf_deinit(&c->trace);
}

static void wait_for_end(struct call *c)
{
    (void)pthread_mutex_lock(&c->lock);
    while (!c->done)
        (void)pthread_cond_wait(&c->changed, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
}

static enum bucket_outcome run(struct fixture *f, struct call *c)
{
    bucket_submit(f->bucket, &c->r);
    wait_for_end(c);
    return c->r.outcome;
}

/* One PUT of "hello": its outcome and the trace of its attempts. */
static void check_put(struct fixture *f, enum bucket_outcome outcome, const char *trace)
{
    struct call c;
    put_init(&c, SPAN_LIT("hello"));
    enum bucket_outcome got = run(f, &c);
    CHECK_TEXT(buf_span(&c.trace), trace);
    CHECK_EQ(got, outcome);
    CHECK_EQ(c.r.error[0] == '\0', outcome == BUCKET_OK);
    call_deinit(&c);
}

static bool head_has(struct fixture *f, size_t i, const char *text)
{
    return strstr(server_seen(f->server, i)->head, text) != NULL;
}

static int64_t now_ms(void)
{
    return clock_mono_us(clock_real()) / 1000;
}

/* ---- Connections ---- */

/* Goal: one connection serves one request after another, and nothing unsigned is sent. */
TEST(connections_are_kept)
{
    static const struct step steps[] = {
        {.answer = OK_ETAG(HELLO_MD5)},
        {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
        {.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "1E\r\n<ListBucketResult><IsTruncated\r\n"
                   "4A\r\n>false</IsTruncated><Contents><Key>p/b</Key></Contents>"
                   "<Contents><Key>p/a<\r\n"
                   "23\r\n/Key></Contents></ListBucketResult>\r\n0\r\n\r\n"},
        {.answer = OK_EMPTY},
    };
    struct fixture f;
    struct call c;
    START(&f, steps);
    check_put(&f, BUCKET_OK, "put 200");
    call_init(&c, BUCKET_GET, "queen/x");
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.r.out), "hello");
    call_deinit(&c);
    call_init(&c, BUCKET_LIST, "p/");
    if (run(&f, &c) != BUCKET_OK)
        print_error("%s\n", c.r.error);
    CHECK_EQ(c.r.outcome, BUCKET_OK);
    CHECK_EQ(c.r.n_keys, 2);
    CHECK_TEXT(c.r.keys[0], "p/a");
    CHECK_TEXT(c.r.keys[1], "p/b");
    CHECK(!c.r.truncated);
    call_deinit(&c);
    check_put(&f, BUCKET_OK, "put 200");
    CHECK_EQ(server_connections(f.server), 1);

    CHECK(head_has(&f, 0, "PUT /lake/queen/a%3Db HTTP/1.1\r\n"));
    CHECK(head_has(&f, 0, "content-md5: XUFAKrxLKna5cZ2REBfFkg==\r\n"));
    CHECK(head_has(&f, 0, "content-type: application/json\r\n"));
    CHECK(head_has(&f, 0, "\r\nHost: 127.0.0.1:"));
    CHECK(head_has(&f, 0, "Content-Length: 5\r\n"));
    CHECK(head_has(&f, 0,
                   "SignedHeaders=content-md5;content-type;host;x-amz-content-sha256;x-amz-date,"));
    CHECK(!head_has(&f, 0, "Expect") && !head_has(&f, 0, "Accept") && !head_has(&f, 0, "chunked"));
    CHECK_TEXT(buf_span(&server_seen(f.server, 0)->body), "hello");
    CHECK(head_has(&f, 1, "GET /lake/queen/x HTTP/1.1\r\n"));
    CHECK(head_has(&f, 2, "GET /lake?list-type=2&max-keys=1000&prefix=p%2F HTTP/1.1\r\n"));
    stop(&f);
}

TEST(a_head_asks_for_the_prefix)
{
    static const struct step steps[] = {
        {.answer = "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {.answer = OK_EMPTY},
        {.answer = "HTTP/1.1 301 X\r\nx-amz-bucket-region: eu-west-1\r\nContent-Length: 9\r\n\r\n"},
    };
    struct fixture f;
    struct call c;
    START(&f, steps);
    call_init(&c, BUCKET_HEAD, "queen/");
    CHECK_EQ(run(&f, &c), BUCKET_ABSENT);
    CHECK_EQ(c.r.code, 404);
    CHECK_TEXT(buf_span(&c.trace), "head 404");
    call_deinit(&c);
    check_put(&f, BUCKET_OK, "put 200"); /* not confused by the stray chunk */
    call_init(&c, BUCKET_HEAD, "queen/");
    CHECK_EQ(run(&f, &c), BUCKET_TERMINAL);
    CHECK_TEXT(span_str(c.r.error), "status 301: the bucket is in region eu-west-1");
    call_deinit(&c);
    CHECK(head_has(&f, 0, "HEAD /lake/queen/ HTTP/1.1\r\n"));
    CHECK_EQ(server_connections(f.server), 2); /* not used again after a HEAD */
    stop(&f);
}

/* A close between two requests is no failure: seen before sending, or only after it. */
TEST(a_close_between_requests_is_not_counted)
{
    static const struct step steps[] = {
        {.answer = OK_EMPTY, .close = true},
        {.answer = OK_EMPTY},
        {.close = true}, /* the head is read, as when the close crosses the request */
        {.answer = OK_EMPTY},
    };
    struct fixture f;
    START(&f, steps);
    check_put(&f, BUCKET_OK, "put 200");
    (void)usleep(50000);
    check_put(&f, BUCKET_OK, "put 200");
    CHECK_EQ(server_connections(f.server), 2);
    check_put(&f, BUCKET_OK, "put 200");
    CHECK_EQ(server_connections(f.server), 3);
    CHECK_EQ(server_requests(f.server), 4);
    CHECK_TEXT(buf_span(&server_seen(f.server, 3)->body), "hello"); /* from its beginning */
    stop(&f);
}

TEST(a_lost_answer_is_a_failed_attempt)
{
    static const struct step steps[] = {{.close = true}, {.answer = OK_EMPTY}};
    struct fixture f;
    START(&f, steps);
    check_put(&f, BUCKET_OK, "put 0, put 200");
    stop(&f);
}

/* What comes behind a chunked body says nothing of the answer, and has an end. */
TEST(trailers_are_no_part_of_a_head)
{
#define TRAILED(lines)                                                                             \
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n" lines "\r\n"
    struct buf endless = BUF_INIT;
    buf_puts(&endless, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n");
    for (size_t i = 0; i < 4096; i++)
        buf_printf(&endless, "X-%zu: %0200d\r\n", i, 0);
    buf_puts(&endless, "\r\n");
    const struct step steps[] = {
        {.answer = TRAILED("ETag: \"00000000000000000000000000000000\"\r\n")},
        {.answer = (const char *)endless.ptr, .len = endless.len, .close = true},
        {.answer = TRAILED("")},
    };
    struct fixture f;
    struct call c;
    START(&f, steps);
    check_put(&f, BUCKET_OK, "put 200");
    call_init(&c, BUCKET_GET, "queen/x");
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.trace), "get 0, get 200");
    CHECK_TEXT(span_str(c.first_error), "transport: the answer's head has no end");
    CHECK_TEXT(buf_span(&c.r.out), "hi");
    call_deinit(&c);
    stop(&f);
    buf_deinit(&endless);
}

/* Bytes behind an answer, at once or later, never become the next request's answer. */
TEST(stray_bytes_end_a_connection)
{
    static const char *const strays[] = {"0\r\n\r\n",
                                         "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", "\r\n",
                                         "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"};
    for (size_t i = 0; i < sizeof(strays) / sizeof(strays[0]); i++) {
        char answer[256];
        struct fixture f;
        (void)snprintf(answer, sizeof(answer), "%s%s", OK_EMPTY, strays[i]);
        struct step steps[] = {
            {.answer = answer},
            {.answer = OK_ETAG(HELLO_MD5)},
            {.answer = OK_EMPTY, .late = strays[i], .late_ms = 20},
            {.answer = OK_ETAG(HELLO_MD5)},
        };
        START(&f, steps);
        check_put(&f, BUCKET_OK, "put 200");
        check_put(&f, BUCKET_OK, "put 200");
        CHECK_EQ(server_connections(f.server), 2);
        check_put(&f, BUCKET_OK, "put 200");
        server_wait_late(f.server, 1);
        check_put(&f, BUCKET_OK, "put 200");
        CHECK_EQ(server_connections(f.server), 3);
        CHECK_EQ(server_requests(f.server), 4);
        stop(&f);
    }
}

/* Goal: an answer that is cut anywhere is no answer. Method: every cut of four answers, each on a
 * fresh connection, then the whole one. spare: bytes at the end that say nothing new. */
static void check_cuts(enum bucket_op op, const char *answer, size_t spare, const char *label)
{
    size_t len = strlen(answer) - spare;
    struct step *steps = MEM_ARRAY(struct step, 2 * len);
    struct fixture f;
    for (size_t cut = 0; cut < len; cut++) {
        if (cut > 0)
            steps[2 * cut] = (struct step){.answer = answer, .len = cut};
        steps[2 * cut].close = true;
        steps[2 * cut + 1] = (struct step){.answer = answer, .close = true};
    }
    start(&f, steps, 2 * len);
    for (size_t cut = 0; cut < len; cut++) {
        char trace[64];
        struct call c;
        call_init(&c, op, "p/");
        c.r.body.bytes = SPAN_LIT("hello");
        (void)snprintf(trace, sizeof(trace), "%s 0, %s 200", label, label);
        CHECK_EQ(run(&f, &c), BUCKET_OK);
        CHECK_TEXT(buf_span(&c.trace), trace);
        CHECK(strncmp(c.first_error, "transport: ", 11) == 0);
        CHECK(c.silence == BUCKET_CLOSED || (c.silence == BUCKET_NOT_HTTP && cut > 0));
        if (op == BUCKET_GET)
            CHECK_TEXT(buf_span(&c.r.out), "hello");
        call_deinit(&c);
    }
    stop(&f);
    mem_free(steps);
}

TEST(a_cut_answer_is_no_answer)
{
    check_cuts(BUCKET_PUT,
               "HTTP/1.1 200 OK\r\nConnection: close\r\nETag: \"" HELLO_MD5
               "\"\r\nContent-Length: 2\r\n\r\nok",
               0, "put");
    check_cuts(BUCKET_GET, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
               0, "get");
    check_cuts(BUCKET_GET,
               "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
               "3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n",
               1, "get");
    check_cuts(BUCKET_PUT,
               "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"
               "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
               0, "put");
}

/* Goal: a refusal that comes before the body was read is the answer, not the broken pipe. */
TEST(an_early_refusal_is_read)
{
    struct step steps[40];
    struct fixture f;
    size_t size = 8u << 20;
    uint8_t *body = mem_new(size);
    for (size_t i = 0; i < 40; i++)
        steps[i] = (struct step){.answer = ERROR_BODY("403", "AccessDenied"),
                                 .head_only = true,
                                 .close = true,
                                 .before_ms = (unsigned)i % 4};
    START(&f, steps);
    for (size_t i = 0; i < 40; i++) {
        struct call c;
        put_init(&c, span_make(body, size));
        enum bucket_outcome got = run(&f, &c);
        CHECK_TEXT(span_str(c.r.error), "status 403: <Error><Code>AccessDenied</Code></Error>");
        CHECK_EQ(got, BUCKET_TERMINAL);
        CHECK_TEXT(buf_span(&c.trace), "put 403");
        call_deinit(&c);
    }
    mem_free(body);
    stop(&f);
}

/* ---- Statuses and waits ---- */

TEST(a_400_to_half_a_body_is_retried)
{
    static const struct step steps[] = {
        {.answer = ERROR_BODY("400", "Slow"), .head_only = true, .close = true},
        {.answer = OK_EMPTY},
        {.answer = ERROR_BODY("400", "RequestTimeout"), .close = true},
        {.answer = OK_EMPTY},
        {.answer = ERROR_BODY("400", "InvalidDigest"), .close = true},
    };
    struct fixture f;
    struct call c;
    size_t size = 8u << 20;
    uint8_t *body = mem_new(size);
    START(&f, steps);
    put_init(&c, span_make(body, size));
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.trace), "put 400, put 200");
    call_deinit(&c);
    check_put(&f, BUCKET_OK, "put 400, put 200");
    check_put(&f, BUCKET_TERMINAL, "put 400");
    mem_free(body);
    stop(&f);
}

TEST(retry_after_is_waited_for)
{
    static const struct step steps[] = {
        {.answer = "HTTP/1.1 503 X\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"},
        {.answer = "HTTP/1.1 503 X\r\nRetry-After: Fri, 31 Dec 2199 23:59:59 GMT\r\n"
                   "Content-Length: 0\r\n\r\n"},
        {.answer = OK_EMPTY},
    };
    struct fixture f;
    START(&f, steps);
    int64_t before = now_ms();
    check_put(&f, BUCKET_OK, "put 503, put 503, put 200");
    CHECK(now_ms() - before >= 1000);
    stop(&f);
}

TEST(six_attempts_are_made)
{
    static const struct step steps[] = {
        {.answer = STATUS("503")},
        {.answer = STATUS("500")},
        {.answer = STATUS("408")},
        {.answer = STATUS("502")},
        {.close = true},
        {.answer = "HTTP/1.1 429 X\r\nRetry-After: 7\r\nContent-Length: 4\r\n\r\nslow"},
        {.answer = STATUS("403")},
    };
    struct fixture f;
    struct call c;
    START(&f, steps);
    put_init(&c, SPAN_LIT("hello"));
    CHECK_EQ(run(&f, &c), BUCKET_RETRIABLE);
    CHECK_TEXT(buf_span(&c.trace), "put 503, put 500, put 408, put 502, put 0, put 429");
    CHECK_TEXT(span_str(c.r.error), "status 429: slow");
    CHECK_EQ(c.r.code, 429);
    CHECK_EQ(c.r.retry_after_us, 7000000);
    call_deinit(&c);
    check_put(&f, BUCKET_TERMINAL, "put 403");
    stop(&f);
}

TEST(a_wrong_etag_is_an_integrity_error)
{
    static const struct step steps[] = {
        {.answer = OK_ETAG("0d41402abc4b2a76b9719d911017c592")},
        {.answer = OK_ETAG("5D41402ABC4B2A76B9719D911017C592")},
        {.answer = OK_ETAG("0d41402abc4b2a76b9719d911017c592-1")}, /* no MD5 */
        {.answer = "HTTP/1.1 200 OK\r\nx-amz-server-side-encryption: aws:kms\r\n"
                   "ETag: \"0d41402abc4b2a76b9719d911017c592\"\r\nContent-Length: 0\r\n\r\n"},
    };
    struct fixture f;
    START(&f, steps);
    check_put(&f, BUCKET_OK, "put 200, put 200");
    check_put(&f, BUCKET_OK, "put 200");
    check_put(&f, BUCKET_OK, "put 200");
    stop(&f);
}

TEST(gets_are_bounded_and_may_find_nothing)
{
    static const struct step steps[] = {
        {.answer = "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n"},
        {.answer = ERROR_BODY("404", "NoSuchBucket"), .close = true},
        {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901"},
        {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234567890"},
        {.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
    };
    static const struct {
        enum bucket_outcome outcome;
        const char *error, *body;
    } want[] = {
        {BUCKET_ABSENT, "", ""},
        {BUCKET_TERMINAL, "status 404: <Error><Code>NoSuchBucket</Code></Error>", ""},
        {BUCKET_TERMINAL, "body: the answer is larger than the 10 bytes that it may have", ""},
        {BUCKET_OK, "", "1234567890"},
        {BUCKET_OK, "", ""},
    };
    struct fixture f;
    START(&f, steps);
    for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
        struct call c;
        call_init(&c, BUCKET_GET, "k");
        c.r.get_max = 10;
        CHECK_EQ(run(&f, &c), want[i].outcome);
        CHECK_TEXT(span_str(c.r.error), want[i].error);
        CHECK_TEXT(buf_span(&c.r.out), want[i].body);
        CHECK_EQ(c.attempts, 1);
        call_deinit(&c);
    }
    stop(&f);
}

/* Keys and signatures that a server sends back do not show up in texts. */
TEST(secrets_are_kept_out_of_errors)
{
    static const struct step steps[] = {
        {.echo_authorization = true},
        {.answer = ERROR_BODY("403", ACCESS "</Code><X>" SECRET "</X><Code>"), .close = true}};
    struct fixture f;
    for (int i = 0; i < 2; i++) {
        struct call c;
        start(&f, steps + i, 1);
        put_init(&c, SPAN_LIT("hello"));
        CHECK_EQ(run(&f, &c), BUCKET_TERMINAL);
        CHECK(strstr(c.r.error, "***") != NULL);
        CHECK(strstr(c.r.error, ACCESS) == NULL && strstr(c.first_error, ACCESS) == NULL);
        CHECK(strstr(c.r.error, SECRET) == NULL);
        const char *signature = strstr(server_seen(f.server, 0)->head, "Signature=");
        char text[17] = {0};
        CHECK(signature != NULL);
        memcpy(text, signature + 10, 16);
        CHECK(strstr(c.r.error, text) == NULL);
        call_deinit(&c);
        stop(&f);
    }
}

/* ---- No answer ---- */

static enum bucket_silence silence_at(struct s3_client_options o)
{
    struct bucket *bucket;
    struct error error;
    struct call c;
    o.limits.connect_timeout_ms = 500;
    CHECK_EQ(s3_client_open(&o, &bucket, &error), ERR_OK);
    call_init(&c, BUCKET_HEAD, "queen/");
    bucket_submit(bucket, &c.r);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_RETRIABLE);
    CHECK(strncmp(c.first_error, "transport: ", 11) == 0);
    enum bucket_silence silence = c.silence;
    call_deinit(&c);
    bucket_close(bucket);
    return silence;
}

/* Goal: what is wrong with an endpoint is told apart. Certificates: tests/integration. */
TEST(a_failure_without_an_answer_says_of_what_kind)
{
    static const struct step steps[] = {{.answer = "220 mail\r\n\r\n", .close = true},
                                        {.answer = "220 mail\r\n\r\n", .close = true},
                                        {.answer = "220 mail\r\n\r\n", .close = true},
                                        {.answer = "220 mail\r\n\r\n", .close = true},
                                        {.answer = "220 mail\r\n\r\n", .close = true},
                                        {.answer = "220 mail\r\n\r\n", .close = true}};
    struct server *server = server_start(steps, 6);
    char http[64], https[64];
    (void)snprintf(http, sizeof(http), "http://127.0.0.1:%u", server_port(server));
    (void)snprintf(https, sizeof(https), "https://127.0.0.1:%u", server_port(server));
    CHECK_EQ(silence_at(options_of(http)), BUCKET_NOT_HTTP);
    CHECK_EQ(silence_at(options_of(https)), BUCKET_NOT_TLS);
    struct s3_client_options o = options_of(https);
    o.ca_file = SPAN_LIT("/nonexistent/ca.pem");
    CHECK_EQ(silence_at(o), BUCKET_CERT_UNREADABLE);
    CHECK_EQ(silence_at(options_of("http://host.invalid")), BUCKET_NO_NAME);
    o = options_of("http://[::1]:9000"); /* the bucket before an address */
    o.path_style = false;
    CHECK_EQ(silence_at(o), BUCKET_NO_NAME);
    server_stop(server);
    CHECK_EQ(silence_at(options_of(http)), BUCKET_REFUSED);
}

/* ---- Time ---- */

TEST(a_request_that_hangs_ends)
{
    static const struct step steps[] = {{.before_ms = 60000}, {.answer = OK_EMPTY}};
    struct fixture f = {.server = server_start(steps, 2)};
    struct s3_client_options o = options_of("");
    struct call c;
    o.limits.request_timeout_ms = 200;
    open_client(&f, o);
    put_init(&c, SPAN_LIT("hello"));
    int64_t before = now_ms();
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.trace), "put 0, put 200");
    CHECK(strncmp(c.first_error, "transport: ", 11) == 0);
    CHECK_EQ(c.silence, BUCKET_SLOW);
    CHECK(now_ms() - before >= 190);
    call_deinit(&c);
    stop(&f);
}

TEST(a_body_that_is_not_taken_ends)
{
    static const struct step steps[] = {{.before_ms = 60000, .head_only = true},
                                        {.answer = OK_EMPTY}};
    struct fixture f = {.server = server_start(steps, 2)};
    struct s3_client_options o = options_of("");
    struct call c;
    size_t size = 16u << 20;
    uint8_t *body = mem_new(size);
    o.limits.stall_s = 1;
    open_client(&f, o);
    put_init(&c, span_make(body, size));
    int64_t before = now_ms();
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.trace), "put 0, put 200");
    CHECK(now_ms() - before < 30000);
    call_deinit(&c);
    mem_free(body);
    stop(&f);
}

/* A store may think about what it has got as long as a request may last. */
TEST(an_answer_that_takes_its_time_is_awaited)
{
    static const struct step steps[] = {{.answer = OK_EMPTY, .before_ms = 3500},
                                        {.answer = OK_EMPTY, .before_ms = 3500}};
    struct fixture f = {.server = server_start(steps, 2)};
    struct s3_client_options o = options_of("");
    struct call c;
    o.limits.stall_s = 1;
    open_client(&f, o);
    call_init(&c, BUCKET_GET, "queen/x");
    bucket_submit(f.bucket, &c.r);
    check_put(&f, BUCKET_OK, "put 200");
    wait_for_end(&c);
    CHECK_TEXT(buf_span(&c.trace), "get 200");
    call_deinit(&c);
    stop(&f);
}

/* A listener whose queue is full answers nothing. */
TEST(a_connection_that_does_not_come_ends)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(address);
    struct error error;
    struct call c;
    struct bucket *bucket;
    char endpoint[64];
    int fillers[4];
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQ(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    CHECK_EQ(listen(listener, 0), 0);
    CHECK_EQ(getsockname(listener, (struct sockaddr *)&address, &len), 0);
    for (size_t i = 0; i < 4; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)connect(fillers[i], (struct sockaddr *)&address, sizeof(address));
    }
    (void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", ntohs(address.sin_port));
    struct s3_client_options o = options_of(endpoint);
    o.limits.connect_timeout_ms = 50;
    CHECK_EQ(s3_client_open(&o, &bucket, &error), ERR_OK);
    put_init(&c, SPAN_LIT("hello"));
    bucket_submit(bucket, &c.r);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_RETRIABLE);
    CHECK_TEXT(buf_span(&c.trace), "put 0, put 0, put 0, put 0, put 0, put 0");
    CHECK(strncmp(c.r.error, "transport: ", 11) == 0);
    CHECK_EQ(c.silence, BUCKET_NO_CONNECTION);
    call_deinit(&c);
    bucket_close(bucket);
    for (size_t i = 0; i < 4; i++)
        (void)close(fillers[i]);
    (void)close(listener);
}

TEST(nobody_listens)
{
    struct error error;
    struct call c;
    struct bucket *bucket;
    struct s3_client_options o = options_of("http://127.0.0.1:1");
    CHECK_EQ(s3_client_open(&o, &bucket, &error), ERR_OK);
    call_init(&c, BUCKET_HEAD, "queen/");
    bucket_submit(bucket, &c.r);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_RETRIABLE);
    CHECK_EQ(c.r.code, 0);
    CHECK(strstr(c.r.error, "onnect") != NULL);
    call_deinit(&c);
    bucket_close(bucket);

    o = options_of("gopher://x");
    CHECK_EQ(s3_client_open(&o, &bucket, &error), ERR_INVALID);
}

/* ---- Uploads in parts ---- */

#define PART 1000u

static const struct step happy[] = {{.answer = CREATED},
                                    {.answer = OK_ETAG("e1")},
                                    {.answer = OK_ETAG("e2")},
                                    {.answer = OK_ETAG("e<3")},
                                    {.answer = COMPLETED, .close = true}};
#define HAPPY                                                                                      \
    "multipart_create 200, multipart_part 200, multipart_part 200, multipart_part 200, "           \
    "multipart_complete 200"

static void start_parts(struct fixture *f, const struct step *steps, size_t n)
{
    *f = (struct fixture){.server = server_start(steps, n)};
    struct s3_client_options o = options_of("");
    o.multipart_threshold = 2 * PART;
    o.limits.part_bytes = PART;
    o.limits.abort_ms = 1000;
    open_client(f, o);
}

static uint8_t big[2 * PART + 500];

static void fill_big(void)
{
    for (size_t i = 0; i < sizeof(big); i++)
        big[i] = (uint8_t)(i * 7 + i / 256);
}

static void check_parts(struct fixture *f, size_t first)
{
    CHECK(head_has(f, first, "POST /lake/queen/a%3Db?uploads= HTTP/1.1\r\n"));
    CHECK(head_has(f, first, "Content-Length: 0\r\n"));
    CHECK(head_has(f, first, "content-type: application/json\r\n"));
    for (unsigned i = 0; i < 3; i++) {
        char line[128];
        (void)snprintf(line, sizeof(line),
                       "PUT /lake/queen/a%%3Db?partNumber=%u&uploadId=up%%2F1%%2B%%20%%26x HTTP",
                       i + 1);
        CHECK(head_has(f, first + 1 + i, line));
        CHECK(!head_has(f, first + 1 + i, "content-md5"));
        CHECK_SPAN(buf_span(&server_seen(f->server, first + 1 + i)->body),
                   span_make(big + i * PART, i < 2 ? PART : 500));
    }
    CHECK(head_has(f, first + 4, "POST /lake/queen/a%3Db?uploadId=up%2F1%2B%20%26x HTTP"));
    CHECK(head_has(f, first + 4, "content-type: application/xml\r\n"));
    CHECK_TEXT(buf_span(&server_seen(f->server, first + 4)->body),
               "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"e1\"</ETag></Part>"
               "<Part><PartNumber>2</PartNumber><ETag>\"e2\"</ETag></Part><Part><PartNumber>3"
               "</PartNumber><ETag>\"e&lt;3\"</ETag></Part></CompleteMultipartUpload>");
}

TEST(a_large_object_goes_up_in_parts)
{
    struct fixture f;
    struct call c;
    fill_big();
    start_parts(&f, happy, 5);
    put_init(&c, span_make(big, sizeof(big)));
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.trace), HAPPY);
    CHECK_EQ(c.between, 2);
    CHECK_EQ(c.r.code, 200);
    check_parts(&f, 0);
    call_deinit(&c);
    stop(&f);
}

TEST(the_threshold_itself_is_one_put)
{
    static const struct step steps[] = {{.answer = OK_EMPTY}};
    struct fixture f;
    struct call c;
    start_parts(&f, steps, 1);
    put_init(&c, span_make(big, 2 * PART));
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_TEXT(buf_span(&c.trace), "put 200");
    CHECK_EQ(c.between, 0);
    call_deinit(&c);
    stop(&f);
}

TEST(a_file_goes_up_like_bytes)
{
    static const struct step one[] = {{.close = true}, {.answer = OK_EMPTY}};
    struct fixture f;
    struct call c;
    fill_big();
    int fd = memfd_create("spool", 0);
    CHECK_EQ(write(fd, big, sizeof(big)), sizeof(big));
    start_parts(&f, happy, 5);
    put_init(&c, span_make(NULL, 0));
    c.r.body = (struct bucket_body){.fd = fd, .size = sizeof(big)};
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    check_parts(&f, 0);
    call_deinit(&c);
    stop(&f);

    START(&f, one); /* as one PUT, read again for the second attempt */
    put_init(&c, span_make(NULL, 0));
    c.r.body = (struct bucket_body){.fd = fd, .size = sizeof(big)};
    CHECK_EQ(run(&f, &c), BUCKET_OK);
    CHECK_SPAN(buf_span(&server_seen(f.server, 1)->body), span_make(big, sizeof(big)));
    call_deinit(&c);

    put_init(&c, span_make(NULL, 0)); /* shorter than it should be */
    c.r.body = (struct bucket_body){.fd = fd, .size = sizeof(big) + 1};
    CHECK_EQ(run(&f, &c), BUCKET_RETRIABLE);
    CHECK_TEXT(span_str(c.r.error), "transport: read the object's spool file: Input/output error");
    call_deinit(&c);
    stop(&f);
    (void)close(fd);
}

/* Runs an upload over `steps`, the n answers before which everything is as in `happy`. */
static void check_upload(const struct step *steps, size_t n, enum bucket_outcome outcome,
                         const char *trace, const char *error)
{
    struct fixture f;
    struct call c;
    start_parts(&f, steps, n);
    put_init(&c, span_make(big, sizeof(big)));
    enum bucket_outcome got = run(&f, &c);
    CHECK_TEXT(buf_span(&c.trace), trace);
    CHECK_EQ(got, outcome);
    CHECK_TEXT(span_str(c.r.error), error);
    CHECK_EQ(server_requests(f.server), n);
    call_deinit(&c);
    stop(&f);
}

#define UPLOAD(outcome, trace, error, ...)                                                         \
    do {                                                                                           \
        const struct step steps_[] = {__VA_ARGS__};                                                \
        check_upload(steps_, sizeof(steps_) / sizeof(steps_[0]), (outcome), (trace), (error));     \
    } while (0)
#define STEP(bytes)                                                                                \
    {                                                                                              \
        .answer = (bytes), .close = true                                                           \
    }

TEST(each_step_of_an_upload_fails)
{
    fill_big();
    UPLOAD(BUCKET_TERMINAL, "multipart_create 403", "status 403: ", STEP(STATUS("403")));
    UPLOAD(BUCKET_OK, "multipart_create 500, " HAPPY, "", STEP(STATUS("500")), STEP(CREATED),
           happy[1], happy[2], happy[3], happy[4]);
    UPLOAD(BUCKET_OK, "multipart_create 200, " HAPPY, "",
           STEP("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n<a/>"), STEP(CREATED), happy[1],
           happy[2], happy[3], happy[4]);
    UPLOAD(BUCKET_TERMINAL, "multipart_create 200, multipart_part 403, multipart_abort 204",
           "status 403: ", STEP(CREATED), STEP(STATUS("403")),
           STEP("HTTP/1.1 204 No Content\r\n\r\n"));
    UPLOAD(BUCKET_TERMINAL,
           "multipart_create 200, multipart_part 200, multipart_part 403, multipart_abort 500",
           "status 403: ", STEP(CREATED), happy[1], STEP(STATUS("403")), STEP(STATUS("500")));
    UPLOAD(BUCKET_RETRIABLE,
           "multipart_create 200, multipart_part 500, multipart_part 500, multipart_part 500, "
           "multipart_part 500, multipart_part 0, multipart_part 503, multipart_abort 404",
           "status 503: ", STEP(CREATED), STEP(STATUS("500")), STEP(STATUS("500")),
           STEP(STATUS("500")), STEP(STATUS("500")), {.close = true}, STEP(STATUS("503")),
           STEP(STATUS("404")));
    UPLOAD(BUCKET_OK,
           "multipart_create 200, multipart_part 200, multipart_part 200, multipart_part 200, "
           "multipart_part 200, multipart_complete 200",
           "", STEP(CREATED), STEP(OK_EMPTY), happy[1], happy[2], happy[3], happy[4]);
}

TEST(a_completion_fails)
{
#define UP_TO_PARTS STEP(CREATED), happy[1], happy[2], {.answer = OK_ETAG("e3"), .close = true}
#define PARTS_DONE                                                                                 \
    "multipart_create 200, multipart_part 200, multipart_part 200, multipart_part 200, "
    fill_big();
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 200, multipart_complete 200", "", UP_TO_PARTS,
           STEP(ERROR_BODY("200", "InternalError")), STEP(COMPLETED));
    UPLOAD(BUCKET_TERMINAL, PARTS_DONE "multipart_complete 200, multipart_abort 204",
           "status 200: <Error><Code>AccessDenied</Code></Error>", UP_TO_PARTS,
           STEP(ERROR_BODY("200", "AccessDenied")), STEP("HTTP/1.1 204 No Content\r\n\r\n"));
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 0, multipart_complete 200", "", UP_TO_PARTS,
           {.close = true}, STEP(COMPLETED));
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 0, multipart_complete 404, " HAPPY, "",
           UP_TO_PARTS, {.close = true}, STEP(ERROR_BODY("404", "NoSuchUpload")), happy[0],
           happy[1], happy[2], happy[3], happy[4]);
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 200, multipart_complete 200", "", UP_TO_PARTS,
           STEP("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<C><ETag>abc-2</ETag></C>"),
           STEP(COMPLETED));
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 200, multipart_complete 200", "", UP_TO_PARTS,
           STEP("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<C><ETag>abc-3</ETag>"),
           STEP(COMPLETED));
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 200", "", UP_TO_PARTS,
           STEP("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<C><ETag></ETag></C>"));
    UPLOAD(BUCKET_OK, PARTS_DONE "multipart_complete 500, multipart_complete 200", "", UP_TO_PARTS,
           STEP(STATUS("500")), STEP(OK_EMPTY));
}

TEST(a_forgotten_upload_is_started_anew)
{
    fill_big();
    UPLOAD(
        BUCKET_OK,
        "multipart_create 200, multipart_part 200, multipart_part 500, multipart_part 404, " HAPPY,
        "", STEP(CREATED), happy[1], STEP(STATUS("500")), STEP(ERROR_BODY("404", "NoSuchUpload")),
        happy[0], happy[1], happy[2], happy[3], happy[4]);
    UPLOAD(BUCKET_RETRIABLE,
           "multipart_create 200, multipart_part 404, multipart_create 200, multipart_part 404, "
           "multipart_create 200, multipart_part 404, multipart_create 200, multipart_part 404",
           "status 404: <Error><Code>NoSuchUpload</Code></Error>", STEP(CREATED),
           STEP(ERROR_BODY("404", "NoSuchUpload")), STEP(CREATED),
           STEP(ERROR_BODY("404", "NoSuchUpload")), STEP(CREATED),
           STEP(ERROR_BODY("404", "NoSuchUpload")), STEP(CREATED),
           STEP(ERROR_BODY("404", "NoSuchUpload")));
}

/* ---- Many, and the end ---- */

TEST(requests_run_side_by_side)
{
#define MANY 200
    struct step *steps = MEM_ARRAY(struct step, MANY);
    struct call *calls = MEM_ARRAY(struct call, MANY);
    struct fixture f;
    for (size_t i = 0; i < MANY; i++)
        steps[i] = (struct step){.answer = OK_EMPTY, .before_ms = (unsigned)i % 7};
    start(&f, steps, MANY);
    for (size_t i = 0; i < MANY; i++) {
        put_init(&calls[i], span_make(big, i));
        bucket_submit(f.bucket, &calls[i].r);
    }
    for (size_t i = 0; i < MANY; i++) {
        wait_for_end(&calls[i]);
        CHECK_EQ(calls[i].r.outcome, BUCKET_OK);
        CHECK_EQ(calls[i].attempts, 1);
        call_deinit(&calls[i]);
    }
    CHECK(server_connections(f.server) <= 64);
    stop(&f);
    mem_free(steps);
    mem_free(calls);
}

/* One connection for all: its turns go round, to whoever has waited longest. */
TEST(nobody_is_overtaken)
{
#define TURNS 10
    static const struct step steps[] = {{.answer = OK_EMPTY, .before_ms = 300},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY},
                                        {.answer = OK_EMPTY}};
    struct fixture f = {.server = server_start(steps, TURNS)};
    struct s3_client_options o = options_of("");
    struct call calls[TURNS];
    char keys[TURNS][32];
    o.limits.transfers_max = 1;
    open_client(&f, o);
    for (size_t i = 0; i < TURNS; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "turn-%zu", i);
        call_init(&calls[i], BUCKET_GET, keys[i]);
        bucket_submit(f.bucket, &calls[i].r);
        if (i == 0)
            server_wait(f.server, 1); /* the others come while it is on its way */
    }
    for (size_t i = 0; i < TURNS; i++) {
        wait_for_end(&calls[i]);
        CHECK_EQ(calls[i].r.outcome, BUCKET_OK);
        CHECK(head_has(&f, i, keys[i]));
        call_deinit(&calls[i]);
    }
    stop(&f);
}

TEST(an_upload_in_parts_lets_others_pass)
{
    static const struct step steps[] = {{.answer = CREATED, .before_ms = 300},
                                        {.answer = OK_EMPTY}, /* the GET */
                                        {.answer = OK_ETAG("e1")},
                                        {.answer = OK_ETAG("e2")},
                                        {.answer = OK_ETAG("e3")},
                                        {.answer = COMPLETED, .close = true}};
    struct fixture f = {.server = server_start(steps, 6)};
    struct s3_client_options o = options_of("");
    struct call upload, get;
    o.multipart_threshold = 2 * PART;
    o.limits.part_bytes = PART;
    o.limits.transfers_max = 1;
    open_client(&f, o);
    put_init(&upload, span_make(big, sizeof(big)));
    bucket_submit(f.bucket, &upload.r);
    server_wait(f.server, 1);
    call_init(&get, BUCKET_GET, "queen/x");
    bucket_submit(f.bucket, &get.r);
    wait_for_end(&get);
    wait_for_end(&upload);
    CHECK_EQ(get.r.outcome, BUCKET_OK);
    CHECK_EQ(upload.r.outcome, BUCKET_OK);
    CHECK(head_has(&f, 1, "GET /lake/queen/x "));
    call_deinit(&get);
    call_deinit(&upload);
    stop(&f);
}

TEST(cancel_ends_transfers_and_waits)
{
    static const struct step steps[] = {
        {.before_ms = 60000},
        {.answer = "HTTP/1.1 503 X\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n"}};
    struct fixture f;
    struct call hangs, waits, late;
    START(&f, steps);
    put_init(&hangs, SPAN_LIT("hello"));
    bucket_submit(f.bucket, &hangs.r);
    server_wait(f.server, 1);
    put_init(&waits, SPAN_LIT("hello"));
    bucket_submit(f.bucket, &waits.r);
    server_wait(f.server, 2);
    (void)usleep(50000);
    int64_t before = now_ms();
    bucket_cancel(f.bucket);
    wait_for_end(&hangs);
    wait_for_end(&waits);
    put_init(&late, SPAN_LIT("hello"));
    CHECK_EQ(run(&f, &late), BUCKET_CANCELLED);
    CHECK(now_ms() - before < 5000);
    CHECK_EQ(hangs.r.outcome, BUCKET_CANCELLED);
    CHECK_EQ(waits.r.outcome, BUCKET_CANCELLED);
    CHECK_EQ(hangs.attempts, 0);
    CHECK_EQ(server_requests(f.server), 2);
    call_deinit(&hangs);
    call_deinit(&waits);
    call_deinit(&late);
    stop(&f);
}

TEST(cancel_aborts_an_upload)
{
    static const struct step steps[] = {{.answer = CREATED},
                                        {.answer = OK_ETAG("e1")},
                                        {.before_ms = 60000},
                                        {.answer = "HTTP/1.1 204 No Content\r\n\r\n"}};
    static const struct step silent[] = {
        {.answer = CREATED}, {.before_ms = 60000}, {.before_ms = 60000}};
    struct fixture f;
    struct call c;
    start_parts(&f, steps, 4);
    put_init(&c, span_make(big, sizeof(big)));
    bucket_submit(f.bucket, &c.r);
    server_wait(f.server, 3);
    bucket_cancel(f.bucket);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_CANCELLED);
    CHECK_EQ(server_requests(f.server), 4);
    CHECK(head_has(&f, 3, "DELETE /lake/queen/a%3Db?uploadId=up%2F1%2B%20%26x HTTP"));
    CHECK_TEXT(buf_span(&c.trace), "multipart_create 200, multipart_part 200, multipart_abort 204");
    call_deinit(&c);
    stop(&f);

    start_parts(&f, silent, 3); /* an abort without an answer holds nobody up */
    put_init(&c, span_make(big, sizeof(big)));
    bucket_submit(f.bucket, &c.r);
    server_wait(f.server, 2);
    int64_t before = now_ms();
    bucket_cancel(f.bucket);
    wait_for_end(&c);
    CHECK_EQ(c.r.outcome, BUCKET_CANCELLED);
    CHECK(now_ms() - before < 10000);
    call_deinit(&c);
    stop(&f);
}

TEST_MAIN()
