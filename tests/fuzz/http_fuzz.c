/* Fuzz target of the whole broker behind its port: the bytes of one connection, from the request line
 * to the log and back, on a disk and a database in memory.
 *
 * Input: one byte that says in how many pieces the rest is sent (1 to 8), then what the client
 * sends. It then sends no more and reads until all is answered. Checked: that comes; the answers are well-formed
 * HTTP, none says that something is wrong inside (500, 507), and those that are JSON are valid. Every
 * RUNS inputs a well-behaved client finds its records as it pushed them, and a new broker begins, so that
 * state does not grow. */
#include "fuzz/fuzz.h"

#include "api/api.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/http.h"
#include "io/clock.h"
#include "json/json.h"
#include "lib/http_client.h"
#include "node/node.h"
#include "sim/sim_db.h"
#include "sim/sim_disk.h"

#include <netinet/tcp.h>

#define RUNS 500u
#define PIECES 8u
#define HANG_MS 100000u /* of the slowest machine, with a long poll in it */

#ifdef FUZZ_NO_LEAKS /* threads allocate while the fuzzer looks for leaks; the corpus test looks too */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return 1;
}
#endif

static struct broker {
    struct disk *disk;
    struct sim_db_state *rows;
    struct node *node;
    struct api *api;
    struct http_server *http;
    unsigned runs;
} broker;

static enum err open_db(void *ctx, struct db **out, struct error *error)
{
    (void)ctx;
    (void)error;
    *out = sim_db_new(broker.rows);
    return ERR_OK;
}

static void start_node(void)
{
    struct error error = {0};
    struct node_options o;
    broker.disk = sim_disk_new(1);
    broker.rows = sim_db_state_new();
    node_options_default(&o);
    o.disk = broker.disk;
    o.open_db = open_db;
    o.clock = clock_real();
    o.entropy = entropy_real();
    o.wal_segment_bytes = 4 << 20;
    o.disk_high_pct = o.disk_low_pct = 100;
    ASSERT(node_open(&o, &broker.node, &error) == ERR_OK);
}

static void start(void)
{
    struct error error = {0};
    (void)log_set_filter(SPAN_LIT("off")); /* it parses */
    start_node();
    const struct api_options a = {.node = broker.node,
                                  .clock = clock_real(),
                                  .entropy = entropy_real(),
                                  .json_depth_max = 64,
                                  .admit_max_bytes = 1 << 20,
                                  .admit_hold_ms = 20,
                                  .request_timeout_ms = 30000,
                                  .entry_max_bytes = 1 << 20,
                                  .reader_threads = 1,
                                  .version = "0.0.0"};
    broker.api = api_new(&a);
    const struct http_options h = {.address = "127.0.0.1",
                                   .threads = 1,
                                   .body_max = 256 << 10,
                                   .connections_max = 64,
                                   .handler = api_handle,
                                   .admit = api_admit,
                                   .arriving = api_arriving,
                                   .aborted = api_aborted,
                                   .ctx = broker.api};
    ASSERT(http_server_start(&h, &broker.http, &error) == ERR_OK);
}

static void stop(void)
{
    api_drain(broker.api);
    http_server_stop(broker.http);
    node_end(broker.node);
    api_free(broker.api);
    node_close(broker.node);
    sim_db_state_free(broker.rows);
    sim_disk_free(broker.disk);
    broker = (struct broker){0};
}

/* --- one connection -----------------------------------------------------------------------------
 */

static struct http_client open_client(void)
{
    struct http_client c = http_client_open(http_server_port(broker.http));
    const struct linger reset = {.l_onoff = 1}; /* no TIME_WAIT, which would use up the ports */
    int on = 1;
    ASSERT(c.fd >= 0);
    ASSERT(setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)) == 0);
    ASSERT(setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    return c;
}

static void send_pieces(struct http_client *c, struct span bytes, size_t pieces)
{
    size_t piece = bytes.len / pieces + 1;
    for (size_t at = 0; at < bytes.len; at += piece) {
        size_t end = bytes.len - at < piece ? bytes.len : at + piece;
        if (!http_client_send(c, span_sub(bytes, at, end)))
            return; /* it has heard enough */
    }
}

static void check_answer(const struct http_reply *r)
{
    static const unsigned expected[] = {100, 200, 201, 204, 400, 404, 405, 409,
                                        412, 413, 414, 429, 431, 501, 503, 505};
    bool known = false;
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++)
        known = known || expected[i] == r->status;
    ASSERT(known);
    if (r->body.len > 0 &&
        span_eq(http_reply_header(r, "Content-Type"), SPAN_LIT("application/json")))
        ASSERT(json_valid(buf_span(&r->body), JSON_DEPTH_MAX, NULL));
}

static bool closes(const struct http_reply *r)
{
    return span_eq_nocase(http_reply_header(r, "Connection"), SPAN_LIT("close"));
}

/* Takes one answer from the front of the bytes. What follows one that closes the connection is not
 * looked at: the library sends the head of its own refusal of a bad Content-Length twice. */
static struct span take_answer(struct span in)
{
    struct http_reply r = {0};
    ASSERT(span_starts_with(in, SPAN_LIT("HTTP/1.1 ")));
    const uint8_t *end = memmem(in.ptr, in.len, "\r\n\r\n", 4);
    ASSERT(end != NULL); /* answers are given whole, and the client read to the end */
    size_t head = (size_t)(end - in.ptr) + 4;
    buf_append(&r.head, in.ptr, head);
    r.status = (unsigned)(in.ptr[9] - '0') * 100 + (unsigned)(in.ptr[10] - '0') * 10 +
               (unsigned)(in.ptr[11] - '0');
    uint64_t length = 0;
    struct span text = http_reply_header(&r, "Content-Length");
    ASSERT(text.len == 0 || span_parse_u64(text, &length));
    in = span_sub(in, head, in.len);
    ASSERT(length <= in.len);
    buf_append(&r.body, in.ptr, (size_t)length);
    check_answer(&r);
    in = span_sub(in, closes(&r) ? in.len : (size_t)length, in.len);
    http_reply_deinit(&r);
    return in;
}

/* To the end, or until the server has nothing to do any more: a request that is not whole waits for
 * its rest. */
static void read_all(struct http_client *c)
{
    struct pollfd look = {.fd = c->fd, .events = POLLIN};
    for (unsigned quiet = 0, waited = 0; quiet < 2; waited++) {
        ASSERT(waited < HANG_MS); /* else it hangs */
        if (poll(&look, 1, 1) > 0) {
            quiet = 0;
            if (!http_client_fill(c))
                return;
        } else if (http_server_inflight(broker.http) == 0) {
            quiet++;
        }
    }
}

static void talk(struct span bytes, size_t pieces)
{
    struct http_client c = open_client();
    bool heads = memmem(bytes.ptr, bytes.len, "HEAD ", 5) != NULL;
    send_pieces(&c, bytes, pieces);
    (void)shutdown(c.fd, SHUT_WR); /* fails when the other side has reset it */
    read_all(&c);
    struct span answers = buf_span(&c.in);
    while (answers.len > 0 && !heads)
        answers = take_answer(answers);
    if (answers.len > 0)
        ASSERT(span_starts_with(answers, SPAN_LIT("HTTP/1.1 ")));
    http_client_close(&c);
}

/* --- well-behaved -------------------------------------------------------------------------------
 */

static void expect(struct http_client *c, const char *method, const char *path, const char *body,
                   unsigned status, const char *part)
{
    struct http_reply r =
        http_client_call(c, method, path, body == NULL ? (struct span){NULL, 0} : span_str(body));
    ASSERT(r.status == status);
    ASSERT(memmem(r.body.ptr, r.body.len, part, strlen(part)) != NULL);
    http_reply_deinit(&r);
}

static void check_served(void)
{
    struct http_client c = open_client();
    char body[200], part[64];
    (void)snprintf(
        body, sizeof(body),
        "{\"items\":[{\"queue\":\"own\",\"partition\":\"%u\",\"payload\":\"as it is\"}]}",
        broker.runs);
    expect(&c, "POST", "/api/v1/push", body, 201, "\"queued\"");
    (void)snprintf(body, sizeof(body),
                   "{\"entries\":[{\"queue\":\"own\",\"partition\":\"%u\",\"offset\":0}]}",
                   broker.runs);
    (void)snprintf(part, sizeof(part), "\"payload\":\"as it is\"");
    expect(&c, "POST", "/api/v1/fetch", body, 200, part);
    expect(&c, "GET", "/health", NULL, 200, "\"healthy\"");
    http_client_close(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    if (broker.http == NULL)
        start();
    talk(span_make(data + 1, size - 1), 1 + data[0] % PIECES);
    if (++broker.runs % RUNS == 0) {
        check_served();
        stop();
    }
    return 0;
}
