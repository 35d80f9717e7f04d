/* The API over HTTP and a real node (threads, on a simulated disk): spec/broker-api.md 17 checks
 * 1-5, kv.md 8. */
#include "api/api.h"

#include "base/mem.h"
#include "base/timefmt.h"
#include "json/json.h"
#include "sim/sim_db.h"
#include "sim/sim_disk.h"

#include "lib/test.h"
#include "lib/http_client.h"

#include <pthread.h>
#include <unistd.h>

/* The real clock, moved by hand on top. */
struct test_clock {
    struct clock base;
    _Atomic int64_t ahead_us;
};

static int64_t test_wall_us(struct clock *c)
{
    return clock_wall_us(clock_real()) + ((struct test_clock *)c)->ahead_us;
}

static int64_t test_mono_us(struct clock *c)
{
    (void)c;
    return clock_mono_us(clock_real());
}

struct broker {
    struct test_clock clock;
    struct disk *disk;
    struct sim_db_state *rows;
    struct node *node;
    struct api *api;
    struct http_server *http;
};

static enum err open_sim_db(void *ctx, struct db **out, struct error *error)
{
    (void)error;
    *out = sim_db_new(((struct broker *)ctx)->rows);
    return ERR_OK;
}

static void sink_status(void *ctx, struct buf *out)
{
    buf_puts(out, ctx);
}

static void sink_metrics(void *ctx, struct buf *out)
{
    (void)ctx;
    buf_puts(out, "queen_s3_buffer_bytes 0\n");
}

struct setup {
    bool manual; /* nothing is written or applied until the test pumps */
    double disk_high_pct;
    uint64_t timeout_ms, admit_max_bytes, admit_hold_ms, entry_max_bytes;
    bool sink;
};

static void broker_start(struct broker *b, const struct setup *setup)
{
    struct error error = {0};
    *b = (struct broker){.clock = {.base = {test_wall_us, test_mono_us}}};
    b->disk = sim_disk_new(1);
    b->rows = sim_db_state_new();
    struct node_options n;
    node_options_default(&n);
    n.disk = b->disk;
    n.open_db = open_sim_db;
    n.db_ctx = b;
    n.clock = &b->clock.base;
    n.entropy = entropy_real();
    n.manual = setup->manual;
    n.wal_segment_bytes = 16 << 20;
    n.disk_high_pct = n.disk_low_pct = setup->disk_high_pct == 0 ? 100 : setup->disk_high_pct;
    CHECK_EQ(node_open(&n, &b->node, &error), ERR_OK);
    struct api_options a = {
        .node = b->node,
        .clock = &b->clock.base,
        .entropy = entropy_real(),
        .sink_status = setup->sink ? sink_status : NULL,
        .sink_metrics = setup->sink ? sink_metrics : NULL,
        .sink_ctx = (void *)(uintptr_t) "{\"mode\":\"in-process\"}",
        .json_depth_max = 500,
        .admit_max_bytes = setup->admit_max_bytes,
        .admit_hold_ms = setup->admit_hold_ms,
        .request_timeout_ms = setup->timeout_ms == 0 ? 30000 : setup->timeout_ms,
        .entry_max_bytes = setup->entry_max_bytes == 0 ? 96 << 20 : setup->entry_max_bytes,
        .reader_threads = 2,
        .version = "0.1.0"};
    b->api = api_new(&a);
    struct http_options h = {.address = "127.0.0.1",
                             .threads = 2,
                             .body_max = 64 << 20,
                             .connections_max = 100,
                             .handler = api_handle,
                             .admit = api_admit,
                             .arriving = api_arriving,
                             .aborted = api_aborted,
                             .ctx = b->api};
    CHECK_EQ(http_server_start(&h, &b->http, &error), ERR_OK);
}

static void broker_stop(struct broker *b)
{
    api_drain(b->api);
    http_server_stop(b->http);
    node_end(b->node);
    api_free(b->api);
    node_close(b->node);
    sim_db_state_free(b->rows);
    sim_disk_free(b->disk);
}

static struct http_client broker_connect(struct broker *b)
{
    struct http_client c = http_client_open(http_server_port(b->http));
    CHECK(c.fd >= 0);
    return c;
}

static bool is_hex(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

/* Length of the UUID at p, or of the timestamp (Z or +00:00), 0 when there is none. */
static size_t varying(const uint8_t *p, size_t len, char *mark)
{
    static const char uuid[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    size_t i = 0;
    while (i < 36 && i < len && (uuid[i] == '-' ? p[i] == '-' : is_hex(p[i])))
        i++;
    *mark = 'U';
    if (i == 36)
        return 36;
    *mark = 'T';
    if (len < 20 || p[4] != '-' || p[7] != '-' || p[10] != 'T' || p[13] != ':')
        return 0;
    for (i = 19; i < len && ((p[i] >= '0' && p[i] <= '9') || p[i] == '.');)
        i++;
    if (i < len && p[i] == 'Z')
        return i + 1;
    return len - i >= 6 && memcmp(p + i, "+00:00", 6) == 0 ? i + 6 : 0;
}

/* The text with every UUID as U and every time as T. */
static void mask(struct span text, struct buf *out)
{
    for (size_t i = 0; i < text.len;) {
        char mark;
        size_t skip = varying(text.ptr + i, text.len - i, &mark);
        buf_putc(out, skip > 0 ? (uint8_t)mark : text.ptr[i]);
        i += skip > 0 ? skip : 1;
    }
}

/* One call; checks the status and the masked body. */
static void call(struct http_client *c, const char *method, const char *path, const char *body,
                 unsigned status, const char *want)
{
    struct buf got = BUF_INIT;
    struct http_reply r =
        http_client_call(c, method, path, body == NULL ? (struct span){NULL, 0} : span_str(body));
    mask(buf_span(&r.body), &got);
    if (r.status != status)
        print_error("status %u: %.*s\n", r.status, SPAN_ARG(buf_span(&r.body)));
    CHECK_EQ(r.status, status);
    CHECK(json_valid(buf_span(&r.body), 1000, NULL) || status == 204);
    CHECK_TEXT(buf_span(&got), want);
    buf_deinit(&got);
    http_reply_deinit(&r);
}

#define PUSH "/api/v1/push"
#define FETCH "/api/v1/fetch"
#define CHANGED "/api/v1/partitions/changed"
#define CONFIGURE "/api/v1/configure"
#define KV "/api/v1/kv"

/* --- push and fetch --- */

/* Conformance 1: the guide's demo. */
TEST(three_pushed_items_are_read_back)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    struct http_reply r = http_client_call(
        &c, "POST", PUSH,
        SPAN_LIT("{\"items\":[\n"
                 "{\"queue\":\"orders\",\"partition\":\"cust-1\",\"payload\":{\"order\":1,"
                 "\"status\":\"new\",\"total\":42.00}},\n"
                 "{\"queue\":\"orders\",\"partition\":\"cust-2\",\"payload\":{\"order\":2}},\n"
                 "{\"queue\":\"orders\",\"partition\":\"cust-1\",\"payload\":{\"order\":1,"
                 "\"total\": 42.00}}\n]}"));
    CHECK_EQ(r.status, 201);
    struct buf masked = BUF_INIT;
    mask(buf_span(&r.body), &masked);
    CHECK_TEXT(buf_span(&masked),
               "[{\"index\":0,\"message_id\":\"U\",\"transaction_id\":\"U\",\"queueName\":"
               "\"orders\",\"status\":\"queued\",\"offset\":0},"
               "{\"index\":1,\"message_id\":\"U\",\"transaction_id\":\"U\",\"queueName\":"
               "\"orders\",\"status\":\"queued\",\"offset\":0},"
               "{\"index\":2,\"message_id\":\"U\",\"transaction_id\":\"U\",\"queueName\":"
               "\"orders\",\"status\":\"queued\",\"offset\":1}]");
    char ids[3][37];
    const char *at = (const char *)r.body.ptr;
    for (unsigned i = 0; i < 3; i++) {
        at = strstr(at, "message_id\":\"") + 13;
        snprintf(ids[i], sizeof(ids[i]), "%.36s", at);
        CHECK_EQ(ids[i][14], '7');
        CHECK(strncmp(strstr(at, "transaction_id\":\"") + 17, ids[i], 36) == 0);
    }
    CHECK(strcmp(ids[0], ids[1]) < 0 && strcmp(ids[1], ids[2]) < 0);
    http_reply_deinit(&r);

    r = http_client_call(&c, "POST", FETCH,
                         SPAN_LIT("{\"entries\":[{\"queue\":\"orders\",\"partition\":\"cust-1\","
                                  "\"offset\":0},{\"queue\":\"orders\",\"partition\":\"cust-2\","
                                  "\"offset\":0}]}"));
    CHECK_EQ(r.status, 200);
    buf_reset(&masked);
    mask(buf_span(&r.body), &masked);
    CHECK_TEXT(buf_span(&masked),
               "{\"entries\":[{\"queue\":\"orders\",\"partition\":\"cust-1\",\"records\":["
               "{\"offset\":0,\"transactionId\":\"U\",\"payload\":{\"order\":1,\"status\":\"new\","
               "\"total\":42.00},\"ts\":\"T\"},"
               "{\"offset\":1,\"transactionId\":\"U\",\"payload\":{\"order\":1,\"total\": 42.00},"
               "\"ts\":\"T\"}],\"highWatermark\":2,\"logStartOffset\":0},"
               "{\"queue\":\"orders\",\"partition\":\"cust-2\",\"records\":[{\"offset\":0,"
               "\"transactionId\":\"U\",\"payload\":{\"order\":2},\"ts\":\"T\"}],"
               "\"highWatermark\":1,\"logStartOffset\":0}]}");
    /* one stamp for the whole push */
    char ts[28] = {0};
    for (at = (const char *)r.body.ptr; (at = strstr(at, "\"ts\":\"")) != NULL; at += 6) {
        CHECK_EQ(at[6 + 26], 'Z');
        CHECK(ts[0] == 0 || strncmp(ts, at + 6, 27) == 0);
        memcpy(ts, at + 6, 27);
    }
    buf_deinit(&masked);
    http_reply_deinit(&r);
    http_client_close(&c);
    broker_stop(&b);
}

/* Conformance 2. */
TEST(a_duplicate_answers_the_first_id_and_offset)
{
    struct broker b;
    char first[37], second[37];
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    static const char body[] =
        "{\"items\":[{\"queue\":\"q\",\"payload\":null,\"transactionId\":\"t\\n1\"}]}";
    struct http_reply r = http_client_call(&c, "POST", PUSH, span_str(body));
    snprintf(first, sizeof(first), "%.36s", strstr((char *)r.body.ptr, "message_id\":\"") + 13);
    http_reply_deinit(&r);
    r = http_client_call(&c, "POST", PUSH, span_str(body));
    snprintf(second, sizeof(second), "%.36s", strstr((char *)r.body.ptr, "message_id\":\"") + 13);
    http_reply_deinit(&r);
    CHECK_TEXT(span_str(second), first);
    call(&c, "POST", PUSH, body, 201,
         "[{\"index\":0,\"message_id\":\"U\",\"transaction_id\":\"t\\n1\",\"queueName\":\"q\","
         "\"status\":\"duplicate\",\"offset\":0}]");
    call(
        &c, "POST", CONFIGURE,
        "{\"queue\":\"w\",\"mode\":\"replace\",\"options\":{\"dedupWindowSeconds\":0}}", 200,
        "{\"configured\":true,\"queueId\":\"U\",\"partitionId\":null,\"queue\":\"w\","
        "\"namespace\":\"\",\"task\":\"\",\"storage\":\"segments\",\"options\":{\"priority\":0,"
        "\"leaseTime\":300,\"retryLimit\":3,\"retryDelay\":1000,\"maxSize\":0,\"maxQueueSize\":0,"
        "\"ttl\":3600,\"deadLetterQueue\":true,\"dlqAfterMaxRetries\":true,\"delayedProcessing\":0,"
        "\"windowBuffer\":0,\"retentionSeconds\":0,\"completedRetentionSeconds\":0,"
        "\"retentionEnabled\":false,\"encryptionEnabled\":false,\"maxWaitTimeSeconds\":0,"
        "\"minPopWaitTime\":0,\"dedupWindowSeconds\":0,\"retentionSinkHold\":\"\","
        "\"retentionSinkHoldMaxSeconds\":604800}}");
    call(&c, "POST", PUSH,
         "{\"items\":[{\"queue\":\"w\",\"payload\":1,\"transactionId\":\"\"},"
         "{\"queue\":\"w\",\"payload\":2,\"transactionId\":\"\"}]}",
         201,
         "[{\"index\":0,\"message_id\":\"U\",\"transaction_id\":\"\",\"queueName\":\"w\","
         "\"status\":\"queued\",\"offset\":0},{\"index\":1,\"message_id\":\"U\","
         "\"transaction_id\":\"\",\"queueName\":\"w\",\"status\":\"duplicate\",\"offset\":0}]");
    http_client_close(&c);
    broker_stop(&b);
}

struct racer {
    struct broker *broker;
    unsigned queued, duplicate;
};

static void *race(void *ctx)
{
    struct racer *racer = ctx;
    struct http_client c = http_client_open(http_server_port(racer->broker->http));
    for (unsigned i = 0; i < 50; i++) {
        char body[100];
        snprintf(body, sizeof(body),
                 "{\"items\":[{\"queue\":\"q\",\"payload\":1,\"transactionId\":\"t%u\"}]}", i);
        struct http_reply r = http_client_call(&c, "POST", PUSH, span_str(body));
        buf_putc(&r.body, 0);
        racer->queued += r.status == 201 && strstr((char *)r.body.ptr, "queued") != NULL;
        racer->duplicate += r.status == 201 && strstr((char *)r.body.ptr, "duplicate") != NULL;
        http_reply_deinit(&r);
    }
    http_client_close(&c);
    return NULL;
}

TEST(of_eight_pushes_of_one_id_one_is_queued)
{
    struct broker b;
    pthread_t threads[8];
    struct racer racers[8];
    unsigned queued = 0, duplicate = 0;
    broker_start(&b, &(struct setup){0});
    for (unsigned i = 0; i < 8; i++) {
        racers[i] = (struct racer){.broker = &b};
        CHECK_EQ(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (unsigned i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        queued += racers[i].queued;
        duplicate += racers[i].duplicate;
    }
    CHECK_EQ(queued, 50);
    CHECK_EQ(duplicate, 350);
    broker_stop(&b);
}

TEST(push_refusals_store_nothing)
{
    struct broker b;
    broker_start(&b, &(struct setup){.entry_max_bytes = 2000});
    struct http_client c = broker_connect(&b);
    call(&c, "POST", PUSH, "{\"items\":[]}", 201, "[]");
    call(&c, "POST", PUSH, "{\"items\":[{\"queue\":\"q\",\"payload\":1},{\"queue\":\"q\"}]}", 400,
         "{\"error\":\"bad push body: item 1: payload is missing\",\"code\":\"bad_body\"}");
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"items\":[{\"queue\":\"q\",\"payload\":\"");
    for (unsigned i = 0; i < 2000; i++)
        buf_putc(&body, 'x');
    buf_puts(&body, "\"}]}");
    buf_putc(&body, 0);
    call(&c, "POST", PUSH, (char *)body.ptr, 400,
         "{\"error\":\"the command is larger than QUEEN_RAFT_ENTRY_MAX_BYTES allows\","
         "\"code\":\"too_large\"}");
    buf_deinit(&body);
    CHECK(http_client_send(&c,
                           SPAN_LIT("POST /api/v1/push HTTP/1.1\r\nHost: x\r\nContent-Type: "
                                    "application/x-queen-push\r\nContent-Length: 4\r\n\r\nQPB1")));
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 400);
    CHECK(memmem(r.body.ptr, r.body.len, "application/x-queen-push", 24) != NULL);
    CHECK(memmem(r.body.ptr, r.body.len, "\"code\":\"bad_body\"", 17) != NULL);
    http_reply_deinit(&r);
    call(&c, "POST", FETCH, "{\"entries\":[{\"queue\":\"q\",\"offset\":0}]}", 200,
         "{\"entries\":[{\"queue\":\"q\",\"partition\":\"Default\",\"records\":[],"
         "\"highWatermark\":0,\"logStartOffset\":0,\"error\":\"UNKNOWN_TOPIC_OR_PARTITION\"}]}");
    http_client_close(&c);
    broker_stop(&b);
}

/* Conformance 4: each row of the table. */
TEST(fetch_answers_each_case)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    for (unsigned i = 0; i < 3; i++) {
        struct http_reply r = http_client_call(
            &c, "POST", PUSH,
            SPAN_LIT(
                "{\"items\":[{\"queue\":\"q\",\"partition\":\"7\",\"payload\":\"0123456789\","
                "\"transactionId\":null},{\"queue\":\"q\",\"partition\":\"7\",\"payload\":1}]}"));
        CHECK_EQ(r.status, 201);
        http_reply_deinit(&r);
    }
    call(&c, "POST", FETCH, "{\"entries\":[]}", 200, "{\"entries\":[]}");
    call(&c, "POST", FETCH,
         "{\"entries\":[{\"queue\":\"q\",\"partition\":7,\"offset\":6},"
         "{\"queue\":\"q\",\"partition\":\"8\",\"offset\":5},"
         "{\"queue\":\"q\",\"partition\":\"7\",\"offset\":7},"
         "{\"queue\":\"q\",\"partition\":7,\"offset\":1,\"maxBytes\":13},"
         "{\"queue\":\"q\",\"partition\":7,\"offset\":2,\"maxBytes\":1}]}",
         200,
         "{\"entries\":[{\"queue\":\"q\",\"partition\":\"7\",\"records\":[],\"highWatermark\":6,"
         "\"logStartOffset\":0},"
         "{\"queue\":\"q\",\"partition\":\"8\",\"records\":[],\"highWatermark\":0,"
         "\"logStartOffset\":0},"
         "{\"queue\":\"q\",\"partition\":\"7\",\"records\":[],\"highWatermark\":6,"
         "\"logStartOffset\":0,\"error\":\"OFFSET_OUT_OF_RANGE\"},"
         "{\"queue\":\"q\",\"partition\":\"7\",\"records\":[{\"offset\":1,\"transactionId\":\"U\","
         "\"payload\":1,\"ts\":\"T\"},{\"offset\":2,\"transactionId\":\"U\",\"payload\":"
         "\"0123456789\",\"ts\":\"T\"}],\"highWatermark\":6,\"logStartOffset\":0},"
         "{\"queue\":\"q\",\"partition\":\"7\",\"records\":[{\"offset\":2,\"transactionId\":\"U\","
         "\"payload\":\"0123456789\",\"ts\":\"T\"}],\"highWatermark\":6,\"logStartOffset\":0}]}");
    /* the call's own ceiling: the first record goes, what is left out comes back empty */
    call(&c, "POST", FETCH,
         "{\"entries\":[{\"queue\":\"q\",\"partition\":7,\"offset\":6},"
         "{\"queue\":\"q\",\"partition\":7,\"offset\":4},"
         "{\"queue\":\"q\",\"partition\":7,\"offset\":5}],\"maxBytes\":3}",
         200,
         "{\"entries\":[{\"queue\":\"q\",\"partition\":\"7\",\"records\":[],\"highWatermark\":6,"
         "\"logStartOffset\":0},"
         "{\"queue\":\"q\",\"partition\":\"7\",\"records\":[{\"offset\":4,\"transactionId\":\"U\","
         "\"payload\":\"0123456789\",\"ts\":\"T\"}],\"highWatermark\":6,\"logStartOffset\":0},"
         "{\"queue\":\"q\",\"partition\":\"7\",\"records\":[],\"highWatermark\":6,"
         "\"logStartOffset\":0}]}");
    call(&c, "POST", FETCH, "{\"entries\":[{\"queue\":\"q\",\"offset\":-1}]}", 400,
         "{\"error\":\"offset must be non-negative\"}");
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_large_record_is_fetched_alone_above_max_bytes)
{
    struct broker b;
    struct buf body = BUF_INIT;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    buf_puts(&body, "{\"items\":[{\"queue\":\"q\",\"payload\":\"");
    for (unsigned i = 0; i < 2 << 20; i++)
        buf_putc(&body, (uint8_t)('a' + i % 26));
    buf_puts(&body, "\"},{\"queue\":\"q\",\"payload\":1}]}");
    struct http_reply r = http_client_call(&c, "POST", PUSH, buf_span(&body));
    CHECK_EQ(r.status, 201);
    http_reply_deinit(&r);
    r = http_client_call(&c, "POST", FETCH,
                         SPAN_LIT("{\"entries\":[{\"queue\":\"q\",\"offset\":0,\"maxBytes\":1}]}"));
    CHECK_EQ(r.status, 200);
    CHECK(r.body.len > 2 << 20);
    CHECK(memmem(r.body.ptr, r.body.len, body.ptr + 32, 2 << 20) != NULL);
    CHECK(memmem(r.body.ptr, r.body.len, "\"offset\":1", 10) == NULL);
    http_reply_deinit(&r);
    buf_deinit(&body);
    http_client_close(&c);
    broker_stop(&b);
}

TEST(fetch_returns_at_most_10000_records)
{
    struct broker b;
    struct buf body = BUF_INIT;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    buf_puts(&body, "{\"items\":[");
    for (unsigned i = 0; i < 12000; i++)
        buf_printf(&body, "%s{\"queue\":\"q\",\"payload\":%u}", i > 0 ? "," : "", i);
    buf_puts(&body, "]}");
    struct http_reply r = http_client_call(&c, "POST", PUSH, buf_span(&body));
    CHECK_EQ(r.status, 201);
    CHECK(json_valid(buf_span(&r.body), 10, NULL));
    http_reply_deinit(&r);
    r = http_client_call(
        &c, "POST", FETCH,
        SPAN_LIT(
            "{\"entries\":[{\"queue\":\"q\",\"offset\":5},{\"queue\":\"q\",\"offset\":11999}]}"));
    CHECK_EQ(r.status, 200);
    CHECK(memmem(r.body.ptr, r.body.len, "\"offset\":10004,", 15) != NULL);
    CHECK(memmem(r.body.ptr, r.body.len, "\"offset\":10005,", 15) == NULL);
    CHECK(memmem(r.body.ptr, r.body.len, "\"offset\":11999,", 15) != NULL);
    http_reply_deinit(&r);
    buf_deinit(&body);
    http_client_close(&c);
    broker_stop(&b);
}

static int64_t now_ms(void)
{
    return clock_mono_us(clock_real()) / 1000;
}

struct long_poll {
    struct broker *broker;
    const char *body;
    struct http_reply reply;
    int64_t took_ms;
};

static void *poll_run(void *ctx)
{
    struct long_poll *p = ctx;
    struct http_client c = http_client_open(http_server_port(p->broker->http));
    int64_t start = now_ms();
    p->reply = http_client_call(&c, "POST", FETCH, span_str(p->body));
    p->took_ms = now_ms() - start;
    http_client_close(&c);
    return NULL;
}

static void push_one(struct http_client *c, const char *queue)
{
    char body[100];
    snprintf(body, sizeof(body), "{\"items\":[{\"queue\":\"%s\",\"payload\":\"12345678\"}]}",
             queue);
    struct http_reply r = http_client_call(c, "POST", PUSH, span_str(body));
    CHECK_EQ(r.status, 201);
    http_reply_deinit(&r);
}

TEST(a_waiting_fetch_is_woken_by_the_push_it_waits_for)
{
    struct broker b;
    pthread_t thread;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    push_one(&c, "q");
    push_one(&c, "other");
    static const char format[] =
        "{\"entries\":[{\"queue\":\"q\",\"offset\":%u},{\"queue\":\"q\",\"partition\":\"new\","
        "\"offset\":0},{\"queue\":\"other\",\"offset\":%u}],\"maxWaitMs\":20000,\"minBytes\":15}";
    struct long_poll p = {.broker = &b};
    int64_t best = INT64_MAX;
    for (unsigned i = 0; i < 5 && best > 300; i++) { /* a busy machine is slow now and then */
        char body[300];
        snprintf(body, sizeof(body), format, i + 1, i + 1);
        p.body = body;
        CHECK_EQ(pthread_create(&thread, NULL, poll_run, &p), 0);
        usleep(100000);
        push_one(&c, "q"); /* 10 bytes: not enough */
        usleep(50000);
        int64_t start = now_ms();
        push_one(&c, "other");
        pthread_join(thread, NULL);
        int64_t took = now_ms() - start;
        best = took < best ? took : best;
        CHECK_EQ(p.reply.status, 200);
        CHECK(strstr((char *)p.reply.body.ptr, "UNKNOWN") == NULL);
        const char *first = strstr((char *)p.reply.body.ptr, "\"12345678\"");
        CHECK(first != NULL && strstr(first + 1, "\"12345678\"") != NULL);
        http_reply_deinit(&p.reply);
    }
    CHECK(best <= 300); /* woken, not found by the re-reading of each second */
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_waiting_fetch_ends_with_its_time_an_error_or_the_drain)
{
    struct broker b;
    pthread_t thread;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    push_one(&c, "q");
    struct long_poll p = {.broker = &b,
                          .body = "{\"entries\":[{\"queue\":\"q\",\"offset\":1}],"
                                  "\"maxWaitMs\":300}"};
    poll_run(&p);
    CHECK_EQ(p.reply.status, 200);
    CHECK(p.took_ms >= 290 && p.took_ms < 5000);
    http_reply_deinit(&p.reply);
    p.body = "{\"entries\":[{\"queue\":\"q\",\"offset\":1}],\"maxWaitMs\":30000,\"minBytes\":0}";
    poll_run(&p);
    CHECK(p.took_ms < 5000);
    http_reply_deinit(&p.reply);
    p.body = "{\"entries\":[{\"queue\":\"q\",\"offset\":1},{\"queue\":\"none\",\"offset\":0}],"
             "\"maxWaitMs\":30000}";
    poll_run(&p);
    CHECK(p.took_ms < 5000);
    CHECK(memmem(p.reply.body.ptr, p.reply.body.len, "UNKNOWN", 7) != NULL);
    http_reply_deinit(&p.reply);
    /* the queue goes while it waits */
    p.body = "{\"entries\":[{\"queue\":\"q\",\"offset\":1}],\"maxWaitMs\":30000}";
    CHECK_EQ(pthread_create(&thread, NULL, poll_run, &p), 0);
    usleep(100000);
    call(&c, "DELETE", "/api/v1/resources/queues/q", NULL, 200,
         "{\"deleted\":true,\"existed\":true,\"queue\":\"q\"}");
    pthread_join(thread, NULL);
    CHECK(p.took_ms < 5000);
    CHECK(memmem(p.reply.body.ptr, p.reply.body.len, "UNKNOWN", 7) != NULL);
    http_reply_deinit(&p.reply);
    /* the broker stops while it waits */
    push_one(&c, "q");
    CHECK_EQ(pthread_create(&thread, NULL, poll_run, &p), 0);
    usleep(100000);
    api_drain(b.api);
    pthread_join(thread, NULL);
    CHECK_EQ(p.reply.status, 200);
    CHECK(p.took_ms < 5000);
    http_reply_deinit(&p.reply);
    call(&c, "POST", PUSH, "{\"items\":[]}", 503,
         "{\"error\":\"this node is stopped or stopping\",\"code\":\"retry\"}");
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_waiting_fetch_whose_client_left_is_forgotten)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b), gone = broker_connect(&b);
    push_one(&c, "q");
    static const char body[] = "{\"entries\":[{\"queue\":\"q\",\"offset\":1}],\"maxWaitMs\":30000}";
    struct buf out = BUF_INIT;
    buf_printf(&out, "POST " FETCH " HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
               sizeof(body) - 1, body);
    CHECK(http_client_send(&gone, buf_span(&out)));
    buf_deinit(&out);
    usleep(100000);
    CHECK_EQ(http_server_inflight(b.http), 1);
    http_client_close(&gone);
    for (unsigned i = 0; i < 5000 && http_server_inflight(b.http) > 0; i++)
        usleep(1000);
    CHECK_EQ(http_server_inflight(b.http), 0);
    http_client_close(&c);
    broker_stop(&b);
}

/* --- changed --- */

TEST(changed_answers_the_clock_and_the_partitions)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    call(&c, "POST", CHANGED, "{\"entries\":[{\"queue\":\"q\"}]}", 200,
         "{\"safeTime\":\"T\",\"safeTimeDegraded\":false,\"entries\":[{\"queue\":\"q\","
         "\"error\":\"UNKNOWN_TOPIC_OR_PARTITION\"}]}");
    push_one(&c, "q");
    call(&c, "POST", CHANGED,
         "{\"entries\":[{\"queue\":\"q\"},{\"queue\":\"nope\",\"after\":\"x\"},"
         "{\"queue\":\"q\",\"after\":\"x\"},{\"queue\":\"q\",\"since\":\"2999-01-01\"},"
         "{\"queue\":\"q\",\"limit\":1}]}",
         200,
         "{\"safeTime\":\"T\",\"safeTimeDegraded\":false,\"entries\":["
         "{\"queue\":\"q\",\"partitions\":[{\"name\":\"Default\",\"id\":\"U\",\"lastOffset\":0,"
         "\"logStart\":0,\"lastWriteAt\":\"T\"}],\"next\":null},"
         "{\"queue\":\"nope\",\"error\":\"UNKNOWN_TOPIC_OR_PARTITION\"},"
         "{\"queue\":\"q\",\"error\":\"BAD_CURSOR\"},"
         "{\"queue\":\"q\",\"partitions\":[],\"next\":null},"
         "{\"queue\":\"q\",\"partitions\":[{\"name\":\"Default\",\"id\":\"U\",\"lastOffset\":0,"
         "\"logStart\":0,\"lastWriteAt\":\"T\"}],\"next\":\"p1-0000000000000001-"
         "0000000000000001\"}]}");
    call(&c, "POST", CHANGED, "{\"entries\":[{\"queue\":\"q\",\"since\":true}]}", 400,
         "{\"error\":\"bad body: entry 0: since is not a timestamp: true\"}");
    http_client_close(&c);
    broker_stop(&b);
}

/* Conformance 5: three pages, each partition once, in creation order. */
TEST(changed_pages_through_2500_partitions)
{
    struct broker b;
    struct buf body = BUF_INIT, after = BUF_INIT;
    unsigned seen = 0, pages = 0;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    buf_puts(&body, "{\"items\":[");
    for (unsigned i = 0; i < 2500; i++)
        buf_printf(&body, "%s{\"queue\":\"q\",\"partition\":\"p%u\",\"payload\":1}",
                   i > 0 ? "," : "", i);
    buf_puts(&body, "]}");
    struct http_reply r = http_client_call(&c, "POST", PUSH, buf_span(&body));
    CHECK_EQ(r.status, 201);
    http_reply_deinit(&r);
    for (;;) {
        buf_reset(&body);
        buf_printf(&body, "{\"entries\":[{\"queue\":\"q\",\"after\":\"%.*s\"}]}",
                   SPAN_ARG(buf_span(&after)));
        r = http_client_call(&c, "POST", CHANGED, buf_span(&body));
        CHECK_EQ(r.status, 200);
        pages++;
        buf_putc(&r.body, 0);
        for (const char *at = (char *)r.body.ptr; (at = strstr(at, "\"name\":\"p")) != NULL; at++)
            CHECK_EQ(strtoul(at + 9, NULL, 10), seen++);
        const char *next = strstr((char *)r.body.ptr, "\"next\":\"");
        buf_reset(&after);
        if (next != NULL)
            buf_append(&after, next + 8, strcspn(next + 8, "\""));
        http_reply_deinit(&r);
        if (next == NULL)
            break;
    }
    CHECK_EQ(seen, 2500);
    CHECK_EQ(pages, 3);
    buf_deinit(&body);
    buf_deinit(&after);
    http_client_close(&c);
    broker_stop(&b);
}

struct pusher {
    struct broker *broker;
    atomic_bool stop;
};

static void *push_on(void *ctx)
{
    struct pusher *p = ctx;
    struct http_client c = http_client_open(http_server_port(p->broker->http));
    while (!atomic_load(&p->stop))
        push_one(&c, "q");
    http_client_close(&c);
    return NULL;
}

/* Last "ts" of a fetch from offset 0 on, as text; records counted. */
static unsigned read_all(struct http_client *c, unsigned from, char ts_first[28])
{
    char body[100];
    unsigned n = 0;
    snprintf(body, sizeof(body), "{\"entries\":[{\"queue\":\"q\",\"offset\":%u}]}", from);
    struct http_reply r = http_client_call(c, "POST", FETCH, span_str(body));
    buf_putc(&r.body, 0);
    for (const char *at = (char *)r.body.ptr; (at = strstr(at, "\"ts\":\"")) != NULL; at++, n++) {
        if (n == 0)
            memcpy(ts_first, at + 6, 27);
    }
    http_reply_deinit(&r);
    return n;
}

/* Goal: after safeTime was answered, no record with a stamp at or below it appears that a later
 * fetch did not already hold. Method: pushes go on; each round takes the clock, then all records,
 * then what came after. */
TEST(no_record_appears_at_or_below_a_safe_time)
{
    struct broker b;
    pthread_t thread;
    unsigned held = 0;
    char safe[28] = {0};
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    push_one(&c, "q");
    struct pusher p = {.broker = &b};
    CHECK_EQ(pthread_create(&thread, NULL, push_on, &p), 0);
    for (unsigned i = 0; i < 100; i++) {
        char first[28] = {0};
        unsigned got = read_all(&c, held, first);
        if (got > 0 && safe[0] != 0 && i % 2 == 0)
            CHECK(strcmp(first, safe) > 0);
        held += got;
        if (i % 2 == 1) { /* the clock, then everything readable: the next record is above */
            struct http_reply r =
                http_client_call(&c, "POST", CHANGED, SPAN_LIT("{\"entries\":[]}"));
            memcpy(safe, strstr((char *)r.body.ptr, "safeTime\":\"") + 11, 27);
            http_reply_deinit(&r);
            held += read_all(&c, held, first);
        }
    }
    atomic_store(&p.stop, true);
    pthread_join(thread, NULL);
    CHECK(held > 10);
    http_client_close(&c);
    broker_stop(&b);
}

/* --- configure and delete --- */

/* Conformance 3. */
TEST(configure_merges_replaces_and_refuses)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    struct {
        const char *body, *part;
        unsigned status;
    } steps[] = {
        {"{\"queue\":\"q\",\"options\":{\"leaseTime\":7,\"retryLimit\":9}}", "\"leaseTime\":7",
         200},
        {"{\"queue\":\"q\",\"options\":{\"ttl\":1}}", "\"leaseTime\":7,\"retryLimit\":9", 200},
        {"{\"queue\":\"q\",\"options\":{\"leaseTime\":null}}", "\"leaseTime\":300,\"retryLimit\":9",
         200},
        {"{\"queue\":\"q\",\"options\":{\"leaseTime\":8,\"dedupWindowSeconds\":-1}}",
         "dedupWindowSeconds must be", 400},
        {"{\"queue\":\"q\",\"options\":{\"leaseTime\":8,\"retentionSeconds\":1}}",
         "retentionSeconds is not built yet", 400},
        {"{\"queue\":\"q\",\"options\":{}}", "\"leaseTime\":300,\"retryLimit\":9", 200},
        {"{\"queue\":\"q\",\"namespace\":\"n\",\"options\":{}}", "\"namespace\":\"n\"", 200},
        {"{\"queue\":\"q\",\"mode\":\"replace\",\"options\":{\"ttl\":5}}",
         "\"leaseTime\":300,\"retryLimit\":3", 200},
        {"{\"queue\":\"q\"}", "\"namespace\":\"\"", 200},
        {"{\"queue\":\"q\"}", "\"ttl\":5", 200},
    };
    char id[37] = {0};
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        struct http_reply r = http_client_call(&c, "POST", CONFIGURE, span_str(steps[i].body));
        CHECK_EQ(r.status, steps[i].status);
        buf_putc(&r.body, 0);
        if (strstr((char *)r.body.ptr, steps[i].part) == NULL)
            CHECK_TEXT(span_str((char *)r.body.ptr), steps[i].part);
        const char *got = strstr((char *)r.body.ptr, "queueId\":\"");
        if (got != NULL) {
            CHECK(id[0] == 0 || strncmp(id, got + 10, 36) == 0);
            memcpy(id, got + 10, 36);
        }
        http_reply_deinit(&r);
    }
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_deleted_queue_starts_again_at_offset_0)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    call(&c, "DELETE", "/api/v1/resources/queues/a%2Fb/c%20d+", NULL, 200,
         "{\"deleted\":false,\"existed\":false,\"queue\":\"a/b/c d+\",\"message\":\"Queue not "
         "found, "
         "nothing was deleted\"}");
    static const char pushed[] =
        "[{\"index\":0,\"message_id\":\"U\",\"transaction_id\":\"t\",\"queueName\":\"a/b/c d+\","
        "\"status\":\"queued\",\"offset\":0}]";
    static const char body[] =
        "{\"items\":[{\"queue\":\"a/b/c d+\",\"payload\":1,\"transactionId\":\"t\"}]}";
    for (unsigned i = 0; i < 2; i++) {
        call(&c, "POST", PUSH, body, 201, pushed);
        call(&c, "DELETE", "/api/v1/resources/queues/a/b/c%20d+", NULL, 200,
             "{\"deleted\":true,\"existed\":true,\"queue\":\"a/b/c d+\"}");
    }
    call(&c, "DELETE", "/api/v1/resources/queues/%ff", NULL, 200,
         "{\"deleted\":false,\"existed\":false,\"queue\":\"\xef\xbf\xbd\",\"message\":\"Queue not "
         "found, nothing was deleted\"}");
    http_client_close(&c);
    broker_stop(&b);
}

/* --- kv --- */

TEST(kv_results_have_their_shapes)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    call(&c, "POST", KV, "[]", 200, "{\"results\":[]}");
    call(
        &c, "POST", KV,
        "[{\"op\":\"get\",\"ns\":\"a\",\"key\":\"k\"},"
        "{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":{\"b\":1, \"a\":[1.0]},"
        "\"forever\":true},"
        "{\"op\":\"get\",\"ns\":\"a\",\"key\":\"k\"},"
        "{\"op\":\"putIfAbsent\",\"ns\":\"a\",\"key\":\"j\",\"value\":\"\\u00e9\",\"ttlSeconds\":"
        "60},"
        "{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"j\"}]",
        200,
        "{\"results\":[{\"index\":0,\"op\":\"get\",\"found\":false,\"key\":\"k\"},"
        "{\"index\":1,\"op\":\"put\",\"applied\":true,\"key\":\"k\",\"value\":{\"a\":[1.0],\"b\":1}"
        ","
        "\"version\":2},"
        "{\"index\":2,\"op\":\"get\",\"found\":true,\"key\":\"k\",\"value\":{\"a\":[1.0],\"b\":1},"
        "\"version\":2,\"expiresAt\":null,\"updatedAt\":\"T\"},"
        "{\"index\":3,\"op\":\"putIfAbsent\",\"applied\":true,\"key\":\"j\",\"value\":\"\xc3\xa9\","
        "\"version\":1},"
        "{\"index\":4,\"op\":\"getPrefix\",\"rows\":[{\"key\":\"j\",\"value\":\"\xc3\xa9\","
        "\"version\":1,\"expiresAt\":\"T\",\"updatedAt\":\"T\"}],\"truncated\":false,"
        "\"nextAfter\":null}]}");
    call(
        &c, "POST", KV,
        "{\"operations\":[{\"op\":\"putIfAbsent\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,"
        "\"forever\":true},{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"none\"},"
        "{\"op\":\"check\",\"ns\":\"a\",\"key\":\"j\",\"expect\":9},"
        "{\"op\":\"incr\",\"ns\":\"a\",\"key\":\"n\",\"delta\":0.1,\"forever\":true}]}",
        200,
        "{\"results\":[{\"index\":0,\"op\":\"putIfAbsent\",\"applied\":false,\"reason\":\"exists\","
        "\"key\":\"k\",\"value\":{\"a\":[1.0],\"b\":1},\"version\":2},"
        "{\"index\":1,\"op\":\"delete\",\"applied\":false,\"reason\":\"absent\",\"key\":\"none\","
        "\"value\":null,\"version\":0},"
        "{\"index\":2,\"op\":\"check\",\"applied\":false,\"reason\":\"version\",\"key\":\"j\","
        "\"value\":\"\xc3\xa9\",\"version\":1},"
        "{\"index\":3,\"op\":\"incr\",\"applied\":true,\"key\":\"n\",\"value\":0.1,"
        "\"version\":3}]}");
    call(
        &c, "POST", KV,
        "[{\"op\":\"getMany\",\"ns\":\"a\",\"keys\":[\"n\",\"zz\",\"j\"]},"
        "{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"k\",\"keysOnly\":true,\"limit\":1}]",
        200,
        "{\"results\":[{\"index\":0,\"op\":\"getMany\",\"rows\":[{\"key\":\"j\",\"value\":"
        "\"\xc3\xa9\",\"version\":1,\"expiresAt\":\"T\",\"updatedAt\":\"T\"},{\"key\":\"n\","
        "\"value\":0.1,\"version\":3,\"expiresAt\":null,\"updatedAt\":\"T\"}],\"missing\":[\"zz\"],"
        "\"truncated\":false},{\"index\":1,\"op\":\"getPrefix\",\"rows\":[{\"key\":\"k\","
        "\"version\":2,\"expiresAt\":null,\"updatedAt\":\"T\"}],\"truncated\":false,"
        "\"nextAfter\":null}]}");
    call(&c, "POST", KV,
         "[{\"op\":\"put\",\"ns\":\"a\",\"key\":\"x\",\"value\":1,\"forever\":true},"
         "{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"forever\":true,\"expect\":7,"
         "\"required\":true},{\"op\":\"check\",\"ns\":\"a\",\"key\":\"j\",\"expect\":0,"
         "\"required\":true}]",
         200,
         "{\"ok\":false,\"reason\":\"kv_precondition\",\"failedIndex\":2,\"kvReason\":\"exists\","
         "\"version\":1,\"value\":\"\xc3\xa9\"}");
    call(&c, "POST", KV, "[{\"op\":\"get\",\"ns\":\"a\",\"key\":\"x\"}]", 200,
         "{\"results\":[{\"index\":0,\"op\":\"get\",\"found\":false,\"key\":\"x\"}]}");
    call(&c, "POST", KV, "{\"op\":1}", 400,
         "{\"error\":\"kv_bad_request\",\"reason\":\"kv_bad_body\",\"detail\":\"operations is "
         "missing\"}");
    http_client_close(&c);
    broker_stop(&b);
}

/* Goal: a row whose time has come reads as gone, though nothing else is written. */
TEST(an_expired_row_is_gone_on_an_idle_broker)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    static const char get[] = "[{\"op\":\"get\",\"ns\":\"a\",\"key\":\"k\"}]";
    static const char found[] = "{\"results\":[{\"index\":0,\"op\":\"get\",\"found\":true,\"key\":"
                                "\"k\",\"value\":1,\"version\":1,\"expiresAt\":\"T\","
                                "\"updatedAt\":\"T\"}]}";
    static const char gone[] =
        "{\"results\":[{\"index\":0,\"op\":\"get\",\"found\":false,\"key\":\"k\"}]}";
    call(&c, "POST", KV,
         "[{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"ttlSeconds\":60}]", 200,
         "{\"results\":[{\"index\":0,\"op\":\"put\",\"applied\":true,\"key\":\"k\",\"value\":1,"
         "\"version\":1}]}");
    b.clock.ahead_us = 50 * US_PER_SEC;
    call(&c, "POST", KV, get, 200, found);
    b.clock.ahead_us = 61 * US_PER_SEC;
    call(&c, "POST", KV, get, 200, gone);
    b.clock.ahead_us = 0; /* and nothing brings it back */
    call(&c, "POST", KV, get, 200, gone);
    call(
        &c, "POST", KV,
        "[{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":2,\"forever\":true,\"expect\":1},"
        "{\"op\":\"put\",\"ns\":\"a\",\"key\":\"l\",\"value\":2,\"forever\":true,\"expect\":0}]",
        200,
        "{\"results\":[{\"index\":0,\"op\":\"put\",\"applied\":false,\"reason\":\"absent\",\"key\":"
        "\"k\",\"value\":null,\"version\":0},{\"index\":1,\"op\":\"put\",\"applied\":true,\"key\":"
        "\"l\",\"value\":2,\"version\":2}]}");
    http_client_close(&c);
    broker_stop(&b);
}

static void check_contains(struct http_client *c, const char *path, const char *part)
{
    struct http_reply r = http_client_call(c, "GET", path, (struct span){NULL, 0});
    CHECK_EQ(r.status, 200);
    if (memmem(r.body.ptr, r.body.len, part, strlen(part)) == NULL)
        CHECK_TEXT(buf_span(&r.body), part);
    http_reply_deinit(&r);
}

/* --- deadlines, admission, full disk, stopped node --- */

static void pump(struct broker *b)
{
    while (node_pump_log(b->node) || node_pump_apply(b->node)) {
    }
}

TEST(a_deadline_answers_503_and_the_outcome_may_come_later)
{
    struct broker b;
    broker_start(&b, &(struct setup){.manual = true, .timeout_ms = 50});
    struct http_client c = broker_connect(&b);
    call(&c, "POST", PUSH, "{\"items\":[{\"queue\":\"q\",\"payload\":1}]}", 503,
         "{\"error\":\"the deadline elapsed before the outcome was known\",\"code\":\"timeout\"}");
    struct http_reply r = http_client_call(
        &c, "POST", KV, SPAN_LIT("[{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"k\"}]"));
    CHECK_EQ(r.status, 503);
    CHECK_TEXT(http_reply_header(&r, "Retry-After"), "1");
    CHECK_TEXT(buf_span(&r.body),
               "{\"error\":\"kv_unavailable\",\"reason\":\"kv_timeout\",\"detail\":\"the deadline "
               "elapsed before the outcome was known\"}");
    http_reply_deinit(&r);
    pump(&b);
    call(&c, "POST", FETCH, "{\"entries\":[{\"queue\":\"q\",\"offset\":0}]}", 200,
         "{\"entries\":[{\"queue\":\"q\",\"partition\":\"Default\",\"records\":[{\"offset\":0,"
         "\"transactionId\":\"U\",\"payload\":1,\"ts\":\"T\"}],\"highWatermark\":1,"
         "\"logStartOffset\":0}]}");
    http_client_close(&c);
    broker_stop(&b);
}

struct late_read {
    struct broker *broker;
    const char *method, *path, *body;
    atomic_uint status; /* 0: no answer yet */
};

static void *read_late(void *ctx)
{
    struct late_read *p = ctx;
    struct http_client c = http_client_open(http_server_port(p->broker->http));
    struct http_reply r = http_client_call(&c, p->method, p->path, span_str(p->body));
    CHECK(memmem(r.body.ptr, r.body.len, "\"code\":\"timeout\"", 16) != NULL);
    CHECK_TEXT(http_reply_header(&r, "Retry-After"), "1");
    atomic_store(&p->status, r.status);
    http_reply_deinit(&r);
    http_client_close(&c);
    return NULL;
}

/* Goal: a read is answered at its deadline while it waits for a reader thread, and soon after it
 * when it has one. Method: the state is locked, so that both threads get stuck. */
TEST(a_read_that_comes_too_late_is_503)
{
    struct broker b;
    struct late_read reads[] = {
        {.method = "GET", .path = "/api/v1/resources/overview", .body = ""},
        {.method = "GET", .path = "/api/v1/resources/queues/q", .body = ""},
        {.method = "GET", .path = "/api/v1/resources/queues", .body = ""},
        {.method = "POST", .path = CHANGED, .body = "{\"entries\":[{\"queue\":\"q\"}]}"},
        {.method = "POST",
         .path = FETCH,
         .body = "{\"entries\":[{\"queue\":\"q\",\"offset\":0}],\"maxWaitMs\":20}"},
    };
    enum { READS = sizeof(reads) / sizeof(reads[0]), STUCK = 2, WAITING = 4 };
    pthread_t threads[READS];
    broker_start(&b, &(struct setup){.manual = true, .timeout_ms = 50});
    struct http_client c = broker_connect(&b);
    call(&c, "POST", PUSH, "{\"items\":[{\"queue\":\"q\",\"payload\":1}]}", 503,
         "{\"error\":\"the deadline elapsed before the outcome was known\",\"code\":\"timeout\"}");
    pump(&b);
    struct state *s = node_read_begin(b.node);
    node_read_end(b.node);
    state_write_lock(s);
    for (size_t i = 0; i < READS; i++) {
        reads[i].broker = &b;
        CHECK_EQ(pthread_create(&threads[i], NULL, read_late, &reads[i]), 0);
        usleep(i < STUCK ? 200000 : 0); /* the first ones have the threads */
    }
    for (size_t i = STUCK; i < WAITING; i++) {
        while (atomic_load(&reads[i].status) == 0) /* while the lock is held */
            usleep(1000);
        CHECK_EQ(reads[i].status, 503);
    }
    usleep(200000);
    state_write_unlock(s);
    for (size_t i = 0; i < READS; i++) {
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
        CHECK_EQ(reads[i].status, 503);
    }
    http_client_close(&c);
    broker_stop(&b);
}

TEST(pushes_beyond_the_admitted_bytes_are_429)
{
    struct broker b;
    broker_start(&b, &(struct setup){.manual = true, .timeout_ms = 50, .admit_max_bytes = 100});
    struct http_client c = broker_connect(&b);
    static const char body[] =
        "{\"items\":[{\"queue\":\"q\",\"payload\":\"123456789012345678901234567"
        "8901234567890123456789012345678901234567890\"}]}";
    call(&c, "POST", PUSH, body, 503,
         "{\"error\":\"the deadline elapsed before the outcome was known\",\"code\":\"timeout\"}");
    struct http_reply r = http_client_call(&c, "POST", PUSH, span_str(body));
    CHECK_EQ(r.status, 429);
    struct span after = http_reply_header(&r, "Retry-After");
    CHECK(after.len == 1 && after.ptr[0] >= '1' && after.ptr[0] <= '5');
    CHECK(memmem(r.body.ptr, r.body.len, "\"code\":\"overloaded\"", 19) != NULL);
    http_reply_deinit(&r);
    pump(&b); /* and with nothing in flight it is let in again */
    call(&c, "POST", PUSH, body, 503,
         "{\"error\":\"the deadline elapsed before the outcome was known\",\"code\":\"timeout\"}");
    http_client_close(&c);
    broker_stop(&b);
}

struct late_push {
    struct broker *broker;
    unsigned status;
    int64_t took_ms;
    atomic_bool ended;
};

static void *push_late(void *ctx)
{
    struct late_push *p = ctx;
    struct http_client c = http_client_open(http_server_port(p->broker->http));
    int64_t start = now_ms();
    struct http_reply r = http_client_call(
        &c, "POST", PUSH,
        SPAN_LIT("{\"items\":[{\"queue\":\"q\",\"payload\":\"12345678901234567890123456\"}]}"));
    p->status = r.status;
    p->took_ms = now_ms() - start;
    http_reply_deinit(&r);
    http_client_close(&c);
    atomic_store(&p->ended, true);
    return NULL;
}

/* Pumps until all have their answers. One that was held is nowhere to be counted for a moment when
 * it is let in: only the clients know. */
static void pump_until_ended(struct broker *b, struct late_push *pushes, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        while (!atomic_load(&pushes[i].ended)) {
            pump(b);
            usleep(2000);
        }
    }
}

/* Method: one push fills the node, four more are held; pumping the node lets them in one after
 * another. */
TEST(held_pushes_are_let_in_when_there_is_room)
{
    struct broker b;
    pthread_t threads[5];
    struct late_push pushes[5];
    broker_start(&b,
                 &(struct setup){.manual = true, .admit_max_bytes = 100, .admit_hold_ms = 60000});
    for (unsigned i = 0; i < 5; i++) {
        pushes[i] = (struct late_push){.broker = &b};
        CHECK_EQ(pthread_create(&threads[i], NULL, push_late, &pushes[i]), 0);
        while (node_queued_bytes(b.node) == 0)
            usleep(1000);
    }
    usleep(100000);
    CHECK_EQ(http_server_inflight(b.http), 1);
    pump_until_ended(&b, pushes, 5);
    for (unsigned i = 0; i < 5; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(pushes[i].status, 201);
    }
    struct http_client c = broker_connect(&b);
    check_contains(&c, "/metrics/prometheus", "\nqueen_raft_admit_total{outcome=\"held\"} 4\n");
    check_contains(&c, "/metrics/prometheus", "\nqueen_raft_admit_total{outcome=\"admitted\"} 5\n");
    http_client_close(&c);
    broker_stop(&b);
}

static void put_push(struct buf *out, size_t payload)
{
    buf_puts(out, "{\"items\":[{\"queue\":\"q\",\"payload\":\"");
    for (size_t i = 0; i < payload; i++)
        buf_putc(out, 'x');
    buf_puts(out, "\"}]}");
}

static void *push_large(void *ctx)
{
    struct late_push *p = ctx;
    struct http_client c = http_client_open(http_server_port(p->broker->http));
    struct buf body = BUF_INIT;
    put_push(&body, 300000);
    struct http_reply r = http_client_call(&c, "POST", PUSH, buf_span(&body));
    p->status = r.status;
    http_reply_deinit(&r);
    buf_deinit(&body);
    http_client_close(&c);
    atomic_store(&p->ended, true);
    return NULL;
}

/* Method: one large push fills the room, the next is held; a small one gets to the node all the same. */
TEST(a_small_push_does_not_stand_in_line)
{
    struct broker b;
    pthread_t threads[3];
    struct late_push pushes[3];
    broker_start(
        &b, &(struct setup){.manual = true, .admit_max_bytes = 400000, .admit_hold_ms = 60000});
    for (unsigned i = 0; i < 3; i++) {
        pushes[i] = (struct late_push){.broker = &b};
        uint64_t before = node_queued_bytes(b.node);
        CHECK_EQ(pthread_create(&threads[i], NULL, i < 2 ? push_large : push_late, &pushes[i]), 0);
        if (i == 1)
            usleep(100000); /* into the line */
        while (i != 1 && node_queued_bytes(b.node) == before)
            usleep(1000);
    }
    CHECK_EQ(http_server_inflight(b.http), 2);
    pump_until_ended(&b, pushes, 3);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(pushes[i].status, 201);
    }
    broker_stop(&b);
}

/* Goal: a body without a length counts as it comes, and past a quarter above the limit no more. */
TEST(a_body_without_a_length_is_admitted_as_it_comes)
{
    struct broker b;
    pthread_t thread;
    struct late_push large = {.broker = &b};
    broker_start(&b, &(struct setup){.manual = true, .admit_max_bytes = 400000});
    CHECK_EQ(pthread_create(&thread, NULL, push_large, &large), 0);
    while (node_queued_bytes(b.node) == 0)
        usleep(1000);
    struct http_client c = broker_connect(&b);
    struct buf body = BUF_INIT, out = BUF_INIT;
    put_push(&body, 250000);
    buf_printf(&out,
               "POST /api/v1/push HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n",
               body.len);
    buf_put_span(&out, buf_span(&body));
    buf_puts(&out, "\r\n0\r\n\r\n");
    CHECK(http_client_send(&c, buf_span(&out)));
    struct http_reply r = http_client_read(&c, false);
    CHECK_EQ(r.status, 429);
    http_reply_deinit(&r);
    pump_until_ended(&b, &large, 1);
    pthread_join(thread, NULL);
    CHECK_EQ(large.status, 201);
    buf_deinit(&body);
    buf_deinit(&out);
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_push_is_not_held_for_ever)
{
    struct broker b;
    pthread_t threads[2];
    struct late_push pushes[2];
    broker_start(&b, &(struct setup){.manual = true, .admit_max_bytes = 100, .admit_hold_ms = 200});
    for (unsigned i = 0; i < 2; i++) {
        pushes[i] = (struct late_push){.broker = &b};
        CHECK_EQ(pthread_create(&threads[i], NULL, push_late, &pushes[i]), 0);
        while (node_queued_bytes(b.node) == 0)
            usleep(1000);
    }
    pthread_join(threads[1], NULL);
    CHECK_EQ(pushes[1].status, 429);
    CHECK(pushes[1].took_ms >= 140 && pushes[1].took_ms < 10000);
    pump(&b);
    pthread_join(threads[0], NULL);
    CHECK_EQ(pushes[0].status, 201);
    broker_stop(&b);
}

TEST(the_drain_lets_go_of_held_pushes)
{
    struct broker b;
    pthread_t threads[3];
    struct late_push pushes[3];
    broker_start(&b,
                 &(struct setup){.manual = true, .admit_max_bytes = 100, .admit_hold_ms = 60000});
    for (unsigned i = 0; i < 3; i++) {
        pushes[i] = (struct late_push){.broker = &b};
        CHECK_EQ(pthread_create(&threads[i], NULL, push_late, &pushes[i]), 0);
        while (node_queued_bytes(b.node) == 0)
            usleep(1000);
    }
    usleep(100000);
    api_drain(b.api);
    for (unsigned i = 1; i < 3; i++) {
        pthread_join(threads[i], NULL);
        CHECK_EQ(pushes[i].status, 503);
    }
    pump(&b);
    pthread_join(threads[0], NULL);
    CHECK_EQ(pushes[0].status, 201);
    broker_stop(&b);
}

TEST(a_full_disk_refuses_pushes_507)
{
    struct broker b;
    broker_start(&b, &(struct setup){.disk_high_pct = 1e-9});
    struct http_client c = broker_connect(&b);
    for (unsigned i = 0; i < 5000 && !node_storage_full(b.node); i++)
        usleep(1000);
    call(&c, "POST", PUSH, "{\"items\":[{\"queue\":\"q\",\"payload\":1}]}", 507,
         "{\"error\":\"storage is full: writes that grow it are "
         "refused\",\"code\":\"storage_full\"}");
    call(&c, "POST", KV,
         "[{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"forever\":true}]", 507,
         "{\"error\":\"storage is full: writes that grow it are "
         "refused\",\"code\":\"storage_full\"}");
    call(&c, "PUT", KV "/a/k", "{\"value\":1,\"forever\":true}", 507,
         "{\"error\":\"storage is full: writes that grow it are "
         "refused\",\"code\":\"storage_full\"}");
    call(&c, "DELETE", KV "/a/k", NULL, 200,
         "{\"index\":0,\"op\":\"delete\",\"applied\":false,\"reason\":\"absent\",\"key\":\"k\","
         "\"value\":null,\"version\":0}");
    call(
        &c, "POST", KV "", "[{\"op\":\"check\",\"ns\":\"a\",\"key\":\"k\",\"expect\":0}]", 200,
        "{\"results\":[{\"index\":0,\"op\":\"check\",\"applied\":true,\"key\":\"k\",\"value\":null,"
        "\"version\":0}]}");
    call(&c, "GET", KV "/a/k", NULL, 200,
         "{\"index\":0,\"op\":\"get\",\"found\":false,\"key\":\"k\"}");
    call(&c, "DELETE", "/api/v1/resources/queues/q", NULL, 200,
         "{\"deleted\":false,\"existed\":false,\"queue\":\"q\",\"message\":\"Queue not found, "
         "nothing "
         "was deleted\"}");
    struct http_reply r =
        http_client_call(&c, "GET", "/metrics/prometheus", (struct span){NULL, 0});
    CHECK(memmem(r.body.ptr, r.body.len, "\nqueen_raft_storage_full 1\n", 27) != NULL);
    http_reply_deinit(&r);
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_kv_call_larger_than_an_entry_is_413)
{
    struct broker b;
    broker_start(&b, &(struct setup){.entry_max_bytes = 4096});
    struct http_client c = broker_connect(&b);
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"forever\":true,\"value\":\"");
    for (unsigned i = 0; i < 4096; i++)
        buf_putc(&body, 'x');
    buf_puts(&body, "\"}");
    buf_putc(&body, 0);
    call(&c, "PUT", KV "/a/k", (const char *)body.ptr, 413,
         "{\"error\":\"payload_too_large\",\"reason\":\"kv_value_too_large\",\"detail\":\"the call "
         "is "
         "larger than QUEEN_RAFT_ENTRY_MAX_BYTES allows\"}");
    buf_deinit(&body);
    http_client_close(&c);
    broker_stop(&b);
}

TEST(a_stopped_node_answers_503_and_says_so_in_health)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    push_one(&c, "q");
    sim_disk_fail_next(b.disk, SIM_DISK_DATASYNC, ERR_IO, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct http_reply r = http_client_call(
            &c, "POST", PUSH, SPAN_LIT("{\"items\":[{\"queue\":\"q\",\"payload\":1}]}"));
        CHECK_EQ(r.status, 503);
        CHECK_TEXT(buf_span(&r.body),
                   "{\"error\":\"this node is stopped or stopping\",\"code\":\"retry\"}");
        http_reply_deinit(&r);
    }
    call(&c, "DELETE", KV "/a/k", NULL, 503,
         "{\"error\":\"kv_unavailable\",\"reason\":\"kv_retry\",\"detail\":\"this node is stopped "
         "or "
         "stopping\"}");
    struct http_reply r = http_client_call(&c, "GET", "/health", (struct span){NULL, 0});
    CHECK_EQ(r.status, 503);
    CHECK(json_valid(buf_span(&r.body), 10, NULL));
    CHECK(memmem(r.body.ptr, r.body.len, "\"role\":\"stopped\",\"leader\":false", 31) != NULL);
    CHECK(memmem(r.body.ptr, r.body.len, "\"failure\":{\"error\":\"", 20) != NULL);
    http_reply_deinit(&r);
    http_client_close(&c);
    broker_stop(&b);
}

/* --- routes and status --- */

TEST(unknown_paths_and_methods)
{
    struct broker b;
    broker_start(&b, &(struct setup){0});
    struct http_client c = broker_connect(&b);
    call(&c, "GET", "/api/v1/nothing?x=1", NULL, 404,
         "{\"code\":\"no_such_route\",\"error\":\"not found\",\"path\":\"/api/v1/nothing\"}");
    call(&c, "GET", "/api/v1/pop/queue/q", NULL, 404,
         "{\"code\":\"no_such_route\",\"error\":\"not found\",\"path\":\"/api/v1/pop/queue/q\"}");
    call(&c, "PUT", "/api/v1/resources/queues/q", NULL, 404,
         "{\"code\":\"no_such_route\",\"error\":\"not found\",\"path\":\"/api/v1/resources/queues/"
         "q\"}");
    call(&c, "DELETE", "/api/v1/resources/queues/", NULL, 404,
         "{\"code\":\"no_such_route\",\"error\":\"not found\",\"path\":\"/api/v1/resources/queues/"
         "\"}");
    call(&c, "GET", "/", NULL, 404,
         "{\"code\":\"no_such_route\",\"error\":\"not found\",\"path\":\"/\"}");
    struct http_reply r = http_client_call(&c, "GET", PUSH, (struct span){NULL, 0});
    CHECK_EQ(r.status, 405);
    CHECK_TEXT(http_reply_header(&r, "Allow"), "POST");
    http_reply_deinit(&r);
    r = http_client_call(&c, "HEAD", "/health", (struct span){NULL, 0});
    CHECK_EQ(r.status, 200);
    http_reply_deinit(&r);
    http_client_close(&c);
    broker_stop(&b);
}

TEST(status_health_and_metrics)
{
    struct broker b;
    broker_start(&b, &(struct setup){.sink = true});
    struct http_client c = broker_connect(&b);
    push_one(&c, "q");
    call(&c, "GET", "/status", NULL, 200,
         "{\"engine\":\"segments-rust\",\"s3\":{\"mode\":\"in-process\"},\"status\":\"ok\"}");
    check_contains(&c, "/health",
                   "{\"status\":\"healthy\",\"engine\":\"raft\",\"version\":\"0.1.0\","
                   "\"raft\":{\"role\":\"leader\",\"leader\":true,\"term\":");
    check_contains(&c, "/health",
                   "\"storageReady\":true,\"clusterVersion\":1,\"kinds\":4,\"apply\":{"
                   "\"failure\":null,\"skipped\":[]}}}");
    struct http_reply r = http_client_call(&c, "GET", "/metrics", (struct span){NULL, 0});
    CHECK(json_valid(buf_span(&r.body), 10, NULL));
    http_reply_deinit(&r);
    check_contains(&c, "/metrics", "\"messages\":{\"total\":1,\"rate\":0}");
    check_contains(&c, "/metrics/prometheus", "\nqueen_process_push_messages_total 1\n");
    check_contains(&c, "/metrics/prometheus", "\nqueen_raft_index{kind=\"applied\"} ");
    check_contains(&c, "/metrics/prometheus", "\nqueen_raft_admit_total{outcome=\"admitted\"} 1\n");
    check_contains(&c, "/metrics/prometheus", "\nqueen_kv_ops_total{op=\"putIfAbsent\"} 0\n");
    check_contains(&c, "/metrics/prometheus", "\nqueen_s3_buffer_bytes 0\n");
    http_client_close(&c);
    broker_stop(&b);
    broker_start(&b, &(struct setup){0});
    c = broker_connect(&b);
    call(&c, "GET", "/status", NULL, 200, "{\"status\":\"ok\",\"engine\":\"segments-rust\"}");
    http_client_close(&c);
    broker_stop(&b);
}

TEST_MAIN()
