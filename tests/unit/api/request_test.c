/* Parsers of the request bodies: what they take, and what each refusal says. */
#include "api/request.h"

#include "base/mem.h"

#include "lib/test.h"

#define DEPTH 500u

static void check_refusal(const struct refusal *r, unsigned status, const char *code,
                          const char *part)
{
    CHECK_EQ(r->status, status);
    CHECK((code == NULL) == (r->code == NULL));
    if (code != NULL)
        CHECK_TEXT(span_str(r->code), code);
    if (strstr(r->text, part) == NULL)
        CHECK_TEXT(span_str(r->text), part);
}

/* open x n, inner, close x n */
static void put_nested(struct buf *out, const char *open, unsigned n, const char *inner,
                       const char *close)
{
    for (unsigned i = 0; i < n; i++)
        buf_puts(out, open);
    buf_puts(out, inner);
    for (unsigned i = 0; i < n; i++)
        buf_puts(out, close);
}

/* --- push --- */

static void refuses_push(const char *body, unsigned status, const char *code, const char *part)
{
    struct push_request r;
    struct refusal refusal;
    CHECK_EQ(push_request_parse(span_str(body), DEPTH, &r, &refusal), ERR_INVALID);
    check_refusal(&refusal, status, code, part);
    push_request_deinit(&r);
}

TEST(push_items_are_taken_byte_for_byte)
{
    static const char body[] =
        " {\"x\":[1,{}],\"items\" : [ {\"queue\":\"or\\u0064ers\",\"partition\":\"cust-1\","
        "\"payload\": {\"a\" : 42.00,\n\"a\":\"\\ud800\"}  ,\"traceId\":7},"
        "{\"payload\":null,\"transactionId\":\"\",\"partition\":null,\"queue\":\"q\"},"
        "{\"payload\":1E400,\"transactionId\":null,\"partition\":\"\",\"queue\":\"q\\/\"}] } ";
    struct push_request r;
    struct refusal refusal;
    CHECK_EQ(push_request_parse(span_str(body), DEPTH, &r, &refusal), ERR_OK);
    CHECK_EQ(r.n, 3);
    CHECK_TEXT(r.items[0].queue, "orders");
    CHECK_TEXT(r.items[0].partition, "cust-1");
    CHECK(r.items[0].minted);
    CHECK_TEXT(r.items[0].payload, "{\"a\" : 42.00,\n\"a\":\"\\ud800\"}");
    CHECK_TEXT(r.items[1].partition, "Default");
    CHECK(!r.items[1].minted);
    CHECK_EQ(r.items[1].transaction_id.len, 0);
    CHECK_TEXT(r.items[1].payload, "null");
    CHECK_TEXT(r.items[2].queue, "q/");
    CHECK_TEXT(r.items[2].partition, "Default");
    CHECK(r.items[2].minted);
    CHECK_TEXT(r.items[2].payload, "1E400");
    push_request_deinit(&r);
}

TEST(push_of_equal_keys_the_last_counts)
{
    static const char body[] =
        "{\"items\":[{\"queue\":\"a\",\"payload\":1}],\"items\":[{\"queue\":\"b\",\"queue\":\"c\","
        "\"payload\":1,\"payload\":2,\"transactionId\":\"t\",\"transactionId\":null,"
        "\"partition\":\"p\",\"partition\":null}]}";
    struct push_request r;
    struct refusal refusal;
    CHECK_EQ(push_request_parse(span_str(body), DEPTH, &r, &refusal), ERR_OK);
    CHECK_EQ(r.n, 1);
    CHECK_TEXT(r.items[0].queue, "c");
    CHECK_TEXT(r.items[0].payload, "2");
    CHECK_TEXT(r.items[0].partition, "Default");
    CHECK(r.items[0].minted);
    push_request_deinit(&r);
}

TEST(push_refusals_name_the_item)
{
    refuses_push("", 400, "bad_body", "bad push body: ");
    refuses_push("[]", 400, "bad_body", "not an object");
    refuses_push("{}", 400, "bad_body", "items is missing");
    refuses_push("{\"items\":{}}", 400, "bad_body", "items must be an array");
    refuses_push("{\"items\":null}", 400, "bad_body", "items must be an array");
    refuses_push("{\"items\":[]} x", 400, "bad_body", "at byte 13");
    refuses_push("{\"items\":[1]}", 400, "bad_body", "item 0 is not an object");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"payload\":1},{\"payload\":1}]}", 400, "bad_body",
                 "item 1: queue is missing");
    refuses_push("{\"items\":[{\"queue\":\"\",\"payload\":1}]}", 400, "bad_body",
                 "item 0: queue is empty");
    refuses_push("{\"items\":[{\"queue\":null,\"payload\":1}]}", 400, "bad_body",
                 "item 0: queue must be a string");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"data\":1}]}", 400, "bad_body",
                 "item 0: payload is missing");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"partition\":1,\"payload\":1}]}", 400, "bad_body",
                 "item 0: partition must be a string");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"transactionId\":1,\"payload\":1}]}", 400,
                 "bad_body", "item 0: transactionId must be a string");
    refuses_push("{\"items\":[{\"queue\":\"\\ud800\",\"payload\":1}]}", 400, "bad_body",
                 "item 0: queue has an unpaired surrogate");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"partition\":\"\\udfff\",\"payload\":1}]}", 400,
                 "bad_body", "item 0: partition has an unpaired surrogate");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"transactionId\":\"\\ud800x\",\"payload\":1}]}",
                 400, "bad_body", "item 0: transactionId has an unpaired surrogate");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"payload\":01}]}", 400, "bad_body", "at byte");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"payload\":\"\xff\"}]}", 400, "bad_body", "UTF-8");
    refuses_push("{\"items\":[{\"queue\":\"q\",\"payload\":1},]}", 400, "bad_body", "at byte");
}

TEST(push_names_and_ids_have_a_length)
{
    for (unsigned over = 0; over < 2; over++) {
        struct buf body = BUF_INIT;
        struct push_request r;
        struct refusal refusal;
        buf_puts(&body, "{\"items\":[{\"queue\":\"");
        put_nested(&body, "q", 400, "", "");
        buf_puts(&body, "\",\"partition\":\"");
        put_nested(&body, "p", 11 + over, "", "");
        buf_puts(&body, "\",\"payload\":1}]}");
        enum err err = push_request_parse(buf_span(&body), DEPTH, &r, &refusal);
        CHECK_EQ(err, over == 0 ? ERR_OK : ERR_INVALID);
        if (over == 1)
            check_refusal(&refusal, 413, "name_too_long", "queue name is 400 bytes; ");
        push_request_deinit(&r);

        buf_reset(&body);
        buf_puts(&body, "{\"items\":[{\"queue\":\"q\",\"payload\":1,\"transactionId\":\"");
        put_nested(&body, "t", PUSH_TRANSACTION_ID_MAX + over, "", "");
        buf_puts(&body, "\"}]}");
        err = push_request_parse(buf_span(&body), DEPTH, &r, &refusal);
        CHECK_EQ(err, over == 0 ? ERR_OK : ERR_INVALID);
        if (over == 1)
            check_refusal(&refusal, 400, "bad_body", "item 0: transactionId is 65536 bytes");
        push_request_deinit(&r);
        buf_deinit(&body);
    }
}

TEST(push_payloads_have_a_depth)
{
    static const unsigned depths[] = {500, 501, 9990, 20000};
    static const char *const parts[] = {NULL, "is nested 501 deep; QUEEN_MAX_JSON_DEPTH allows 500",
                                        "is nested 9990 deep", "QUEEN_MAX_JSON_DEPTH allows 500"};
    for (unsigned i = 0; i < 4; i++) {
        struct buf body = BUF_INIT;
        struct push_request r;
        struct refusal refusal;
        buf_puts(&body,
                 "{\"items\":[{\"queue\":\"q\",\"payload\":0},{\"queue\":\"q\",\"payload\":");
        put_nested(&body, "[", depths[i], "", "]");
        buf_puts(&body, "}]}");
        enum err err = push_request_parse(buf_span(&body), DEPTH, &r, &refusal);
        CHECK_EQ(err, i == 0 ? ERR_OK : ERR_INVALID);
        if (i > 0) {
            check_refusal(&refusal, 400, "bad_body", parts[i]);
            check_refusal(&refusal, 400, "bad_body", "item 1: ");
        }
        push_request_deinit(&r);
        buf_deinit(&body);
    }
}

/* Goal: no truncation of a good body is taken, and none is read past its end (ASan). */
TEST(push_truncations_are_refused)
{
    static const char body[] = "{\"items\":[{\"queue\":\"q\\u00e9\",\"partition\":\"p\","
                               "\"payload\":{\"a\":[1,2]},\"transactionId\":\"t\"}]}";
    for (size_t len = 0; len < sizeof(body) - 1; len++) {
        struct push_request r;
        struct refusal refusal;
        uint8_t *copy = mem_copy(body, len + 1);
        CHECK_EQ(push_request_parse(span_make(copy, len), DEPTH, &r, &refusal), ERR_INVALID);
        push_request_deinit(&r);
        mem_free(copy);
    }
}

/* --- fetch --- */

static void refuses_fetch(const char *body, const char *code, const char *part)
{
    struct fetch_request r;
    struct refusal refusal;
    CHECK_EQ(fetch_request_parse(span_str(body), &r, &refusal), ERR_INVALID);
    check_refusal(&refusal, 400, code, part);
    fetch_request_deinit(&r);
}

TEST(fetch_fields_have_defaults_and_clamps)
{
    static const char body[] =
        "{\"entries\":[{\"queue\":\"q\",\"offset\":0},"
        "{\"queue\":\"q\",\"partition\":42,\"offset\":9223372036854775807,\"maxBytes\":0},"
        "{\"queue\":\"q\",\"partition\":null,\"offset\":7,\"maxBytes\":99999999}],"
        "\"maxWaitMs\":60000,\"minBytes\":-1}";
    struct fetch_request r;
    struct refusal refusal;
    CHECK_EQ(fetch_request_parse(span_str(body), &r, &refusal), ERR_OK);
    CHECK_EQ(r.n, 3);
    CHECK_TEXT(r.entries[0].partition, "Default");
    CHECK_EQ(r.entries[0].max_bytes, 1048576);
    CHECK_TEXT(r.entries[1].partition, "42");
    CHECK_EQ(r.entries[1].offset, INT64_MAX);
    CHECK_EQ(r.entries[1].max_bytes, 1);
    CHECK_TEXT(r.entries[2].partition, "Default");
    CHECK_EQ(r.entries[2].max_bytes, 8388608);
    CHECK_EQ(r.max_wait_ms, 30000);
    CHECK_EQ(r.min_bytes, 0);
    CHECK_EQ(r.total_max, FETCH_TOTAL_BYTES_MAX);
    fetch_request_deinit(&r);

    CHECK_EQ(fetch_request_parse(SPAN_LIT("{\"entries\":[],\"maxBytes\":10}"), &r, &refusal),
             ERR_OK);
    CHECK_EQ(r.n, 0);
    CHECK_EQ(r.max_wait_ms, 0);
    CHECK_EQ(r.min_bytes, 1);
    CHECK_EQ(r.total_max, 10);
    fetch_request_deinit(&r);
}

TEST(fetch_refusals)
{
    refuses_fetch("x", "bad_body", "bad body: ");
    refuses_fetch("{}", "bad_body", "entries is missing");
    refuses_fetch("{\"entries\":1}", "bad_body", "entries must be an array");
    refuses_fetch("{\"entries\":[1]}", "bad_body", "entry 0 is not an object");
    refuses_fetch("{\"entries\":[{\"offset\":0}]}", "bad_body", "entry 0: queue is missing");
    refuses_fetch("{\"entries\":[{\"queue\":\"\",\"offset\":0}]}", "bad_body",
                  "entry 0: queue is empty");
    refuses_fetch("{\"entries\":[{\"queue\":1,\"offset\":0}]}", "bad_body",
                  "entry 0: queue must be a string");
    refuses_fetch("{\"entries\":[{\"queue\":\"q\"}]}", "bad_body", "entry 0: offset is missing");
    refuses_fetch("{\"entries\":[{\"queue\":\"q\",\"offset\":1.0}]}", "bad_body",
                  "entry 0: offset must be an integer");
    refuses_fetch("{\"entries\":[{\"queue\":\"q\",\"offset\":null}]}", "bad_body",
                  "entry 0: offset must be an integer");
    refuses_fetch("{\"entries\":[{\"queue\":\"q\",\"partition\":[],\"offset\":1}]}", "bad_body",
                  "entry 0: partition must be a string");
    refuses_fetch("{\"entries\":[{\"queue\":\"q\",\"offset\":-1}]}", NULL,
                  "offset must be non-negative");
    refuses_fetch("{\"entries\":[],\"maxWaitMs\":\"1\"}", "bad_body",
                  "maxWaitMs must be an integer");
    refuses_fetch("{\"entries\":[{\"queue\":\"\\udead\",\"offset\":1}]}", "bad_body",
                  "unpaired surrogate");
}

TEST(fetch_and_changed_take_1024_entries)
{
    for (unsigned n = 1024; n <= 1025; n++) {
        struct buf body = BUF_INIT;
        struct fetch_request f;
        struct changed_request c;
        struct refusal refusal;
        buf_puts(&body, "{\"entries\":[");
        for (unsigned i = 0; i < n; i++)
            buf_printf(&body, "%s{\"queue\":\"q%u\",\"offset\":-1}", i > 0 ? "," : "", i);
        buf_puts(&body, "]}");
        CHECK_EQ(fetch_request_parse(buf_span(&body), &f, &refusal), ERR_INVALID);
        check_refusal(&refusal, 400, NULL, n == 1024 ? "non-negative" : "too many entries");
        fetch_request_deinit(&f);
        enum err err = changed_request_parse(buf_span(&body), &c, &refusal);
        CHECK_EQ(err, n == 1024 ? ERR_OK : ERR_INVALID);
        if (n == 1025)
            check_refusal(&refusal, 400, NULL, "too many entries");
        changed_request_deinit(&c);
        buf_deinit(&body);
    }
}

/* --- changed --- */

TEST(changed_cursors_are_ours_or_bad)
{
    struct buf body = BUF_INIT;
    struct changed_request r;
    struct refusal refusal;
    buf_puts(&body, "{\"entries\":[{\"queue\":\"q\",\"after\":\"");
    changed_cursor_put(&body, 0x1234, UINT64_MAX);
    buf_puts(
        &body,
        "\",\"limit\":5000},{\"queue\":\"q\",\"after\":\"\",\"limit\":0},"
        "{\"queue\":\"q\",\"after\":null,\"limit\":7},{\"queue\":\"q\",\"after\":7},"
        "{\"queue\":\"q\",\"after\":\"p1-000000000000123g-ffffffffffffffff\"},"
        "{\"queue\":\"q\",\"after\":\"\\ud800\"},{\"queue\":\"q\",\"since\":\"2026-10-03\"}]}");
    CHECK_EQ(changed_request_parse(buf_span(&body), &r, &refusal), ERR_OK);
    CHECK_EQ(r.entries[0].cursor, CURSOR_AFTER);
    CHECK_EQ(r.entries[0].cursor_queue, 0x1234);
    CHECK_EQ(r.entries[0].cursor_partition, UINT64_MAX);
    CHECK_EQ(r.entries[0].limit, 1000);
    CHECK_EQ(r.entries[1].cursor, CURSOR_START);
    CHECK_EQ(r.entries[1].limit, 1);
    CHECK_EQ(r.entries[2].cursor, CURSOR_START);
    CHECK_EQ(r.entries[2].limit, 7);
    CHECK_EQ(r.entries[3].cursor, CURSOR_BAD);
    CHECK_EQ(r.entries[4].cursor, CURSOR_BAD);
    CHECK_EQ(r.entries[5].cursor, CURSOR_BAD);
    CHECK(r.entries[6].has_since);
    CHECK_EQ(r.entries[6].since, INT64_C(1790985600000000));
    changed_request_deinit(&r);
    buf_deinit(&body);
}

TEST(changed_since_must_be_a_timestamp)
{
    struct changed_request r;
    struct refusal refusal;
    CHECK_EQ(changed_request_parse(
                 SPAN_LIT("{\"entries\":[{\"queue\":\"q\"},{\"queue\":\"q\",\"since\":\"x\"}]}"),
                 &r, &refusal),
             ERR_INVALID);
    check_refusal(&refusal, 400, NULL, "bad body: entry 1: since is not a timestamp: \"x\"");
    changed_request_deinit(&r);
    CHECK_EQ(changed_request_parse(SPAN_LIT("{\"entries\":[{\"queue\":\"q\",\"since\":5}]}"), &r,
                                   &refusal),
             ERR_INVALID);
    check_refusal(&refusal, 400, NULL, "since is not a timestamp: 5");
    changed_request_deinit(&r);
}

/* --- configure --- */

static struct configure_request take_configure(const char *body, struct arena *arena)
{
    struct configure_request r;
    struct refusal refusal;
    enum err err = configure_request_parse(span_str(body), arena, &r, &refusal);
    if (err != ERR_OK)
        print_error("%s\n", refusal.text);
    CHECK_EQ(err, ERR_OK);
    return r;
}

static void refuses_configure(const char *body, unsigned status, const char *code, const char *part)
{
    struct configure_request r;
    struct refusal refusal;
    struct arena arena = ARENA_INIT;
    CHECK_EQ(configure_request_parse(span_str(body), &arena, &r, &refusal), ERR_INVALID);
    check_refusal(&refusal, status, code, part);
    arena_deinit(&arena);
}

#define BIT(option) (UINT32_C(1) << QUEUE_OPTION_##option)

TEST(configure_merges_and_resets)
{
    struct arena arena = ARENA_INIT;
    struct configure_request r = take_configure(
        "{\"queue\":\"q\",\"mode\":null,\"namespace\":\"n\",\"task\":null,\"options\":{"
        "\"leaseTime\":-5,"
        "\"retryLimit\":null,\"deadLetterQueue\":false,\"minPopWaitTime\":70000,\"what\":1,"
        "\"retentionSinkHold\":7}}",
        &arena);
    CHECK_EQ(r.set, BIT(lease_time) | BIT(dead_letter_queue) | BIT(min_pop_wait_time) |
                        BIT(retention_sink_hold));
    CHECK_EQ(r.reset, BIT(retry_limit));
    CHECK_EQ(r.options.lease_time, 1);
    CHECK_EQ(r.options.min_pop_wait_time, 60000);
    CHECK(!r.options.dead_letter_queue);
    CHECK(r.namespace_set);
    CHECK_TEXT(r.namespace_, "n");
    CHECK(!r.task_set);

    r = take_configure("{\"leaseTime\":60,\"queue\":\"q\",\"mode\":\"replace\",\"options\":null,"
                       "\"leaseTime\":null,\"leaseTime\":61,\"task\":\"t\"}",
                       &arena);
    CHECK_EQ(r.set, BIT(lease_time));
    CHECK_EQ(r.reset, ((UINT32_C(1) << QUEUE_OPTION_COUNT) - 1) & ~BIT(lease_time));
    CHECK_EQ(r.options.lease_time, 61);
    CHECK(r.namespace_set);
    CHECK_EQ(r.namespace_.len, 0);
    CHECK_TEXT(r.task, "t");

    r = take_configure("{\"queue\":\"q\",\"namespace\":\"outer\",\"options\":{\"namespace\":null}}",
                       &arena);
    CHECK(r.namespace_set);
    CHECK_EQ(r.namespace_.len, 0);
    r = take_configure("{\"queue\":\"q\"}", &arena);
    CHECK_EQ(r.set | r.reset, 0);
    CHECK(!r.namespace_set);
    arena_deinit(&arena);
}

TEST(configure_refusals)
{
    refuses_configure("", 400, "bad_request", "bad configure body");
    refuses_configure("[]", 400, "bad_request", "not an object");
    refuses_configure("{}", 400, "bad_request", "queue is required");
    refuses_configure("{\"queue\":\"\"}", 400, "bad_request", "queue is required");
    refuses_configure("{\"queue\":7}", 400, "bad_request", "queue is required");
    refuses_configure("{\"queue\":\"\\ud800\"}", 400, "bad_request", "unpaired surrogate");
    refuses_configure("{\"queue\":\"q\",\"mode\":\"other\"}", 400, "bad_request",
                      "mode must be \"merge\" or \"replace\", got \"other\"");
    refuses_configure("{\"queue\":\"q\",\"mode\":1}", 400, "bad_request", "got 1");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"leaseTime\":1.5}}", 400, "bad_request",
                      "leaseTime must be an integer");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"leaseTime\":\"1\"}}", 400, "bad_request",
                      "leaseTime must be an integer");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"leaseTime\":2147483648}}", 400,
                      "bad_request", "leaseTime must be an integer");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"deadLetterQueue\":1}}", 400, "bad_request",
                      "deadLetterQueue must be a boolean");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"dedupWindowSeconds\":-1}}", 400,
                      "bad_request", "dedupWindowSeconds must be between 0 and 2147483647");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"retentionSinkHoldMaxSeconds\":59}}", 400,
                      "bad_request", "retentionSinkHoldMaxSeconds must be between 60");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"retentionSinkHold\":\"a b\"}}", 400,
                      "bad_request", "retentionSinkHold must match");
    refuses_configure("{\"queue\":\"q\",\"options\":{\"task\":1}}", 400, "bad_request",
                      "task must be a string");
}

TEST(configure_refuses_what_is_not_built)
{
    static const char *const members[] = {
        "\"retentionSeconds\":1",
        "\"completedRetentionSeconds\":1",
        "\"retentionEnabled\":true",
        "\"encryptionEnabled\":true",
        "\"maxWaitTimeSeconds\":1",
        "\"retentionSinkHold\":\"default\"",
        "\"retentionSinkHoldMaxSeconds\":60",
    };
    struct arena arena = ARENA_INIT;
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        struct buf body = BUF_INIT, name = BUF_INIT;
        buf_printf(&body, "{\"queue\":\"q\",\"options\":{%s}}%c", members[i], 0);
        buf_printf(&name, "%.*s is not built yet%c",
                   (int)(strchr(members[i] + 1, '"') - members[i] - 1), members[i] + 1, 0);
        refuses_configure((const char *)body.ptr, 400, "bad_request", (const char *)name.ptr);
        buf_deinit(&body);
        buf_deinit(&name);
    }
    (void)take_configure("{\"queue\":\"q\",\"options\":{\"retentionSeconds\":0,"
                         "\"completedRetentionSeconds\":0,\"retentionEnabled\":false,"
                         "\"encryptionEnabled\":false,\"maxWaitTimeSeconds\":0,"
                         "\"retentionSinkHold\":\"\",\"retentionSinkHoldMaxSeconds\":604800}}",
                         &arena);
    arena_deinit(&arena);
}

TEST(the_options_object_has_every_key)
{
    struct queue_options o;
    struct buf out = BUF_INIT;
    queue_options_implicit(&o);
    struct json_writer w;
    json_writer_init(&w, &out);
    queue_options_put(&w, &o);
    CHECK_TEXT(
        buf_span(&out),
        "{\"priority\":0,\"leaseTime\":60,\"retryLimit\":3,\"retryDelay\":1000,\"maxSize\":0,"
        "\"maxQueueSize\":0,\"ttl\":3600,\"deadLetterQueue\":true,\"dlqAfterMaxRetries\":true,"
        "\"delayedProcessing\":0,\"windowBuffer\":0,\"retentionSeconds\":0,"
        "\"completedRetentionSeconds\":0,\"retentionEnabled\":false,"
        "\"encryptionEnabled\":false,\"maxWaitTimeSeconds\":0,\"minPopWaitTime\":0,"
        "\"dedupWindowSeconds\":3600,\"retentionSinkHold\":\"\","
        "\"retentionSinkHoldMaxSeconds\":604800}");
    buf_deinit(&out);
}

TEST(labels_have_a_type_and_a_length)
{
    refuses_configure("{\"queue\":\"q\",\"namespace\":1,\"options\":{}}", 400, "bad_request",
                      "namespace must be a string");
    refuses_configure("{\"queue\":\"q\",\"task\":\"\\udc00\",\"options\":{}}", 400, "bad_request",
                      "task has an unpaired surrogate");
    struct buf body = BUF_INIT;
    for (unsigned over = 0; over < 2; over++) {
        buf_reset(&body);
        buf_puts(&body, "{\"queue\":\"q\",\"options\":{\"task\":\"");
        memset(buf_extend(&body, 411 + over), 'x', 411 + over);
        buf_puts(&body, "\"}}");
        buf_putc(&body, 0);
        struct arena arena = ARENA_INIT;
        if (over)
            refuses_configure((const char *)body.ptr, 413, "name_too_long", "task is 412 bytes");
        else
            CHECK_EQ(take_configure((const char *)body.ptr, &arena).task.len, 411);
        arena_deinit(&arena);
    }
    buf_deinit(&body);
}

/* --- query strings --- */

TEST(query_parameters_are_decoded_and_the_last_of_equal_names_counts)
{
    struct buf out = BUF_INIT;
    static const struct {
        const char *query, *name, *value; /* NULL: not there */
    } cases[] = {
        {"", "a", NULL},       {"a", "a", ""},        {"a=", "a", ""},
        {"a=1&b=2", "b", "2"}, {"a=1&a=2", "a", "2"}, {"%61=x%20y+z%2B", "a", "x y z+"},
        {"a=b=c", "a", "b=c"}, {"ab=1", "a", NULL},   {"&&=&a=%zz%", "a", "%zz%"},
        {"=1&a=2", "", "1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        buf_reset(&out);
        CHECK_EQ(query_text(span_str(cases[i].query), cases[i].name, &out), cases[i].value != NULL);
        CHECK_TEXT(buf_span(&out), cases[i].value == NULL ? "" : cases[i].value);
    }
    buf_deinit(&out);
}

TEST(integers_of_a_query_are_clamped_or_refused)
{
    static const struct {
        const char *query;
        int64_t value; /* 0: refused */
    } cases[] = {
        {"", 7},
        {"n=5", 5},
        {"n=0", 1},
        {"n=-9223372036854775807", 1},
        {"n=11", 10},
        {"n=007", 7},
        {"n=", 0},
        {"n=x", 0},
        {"n=1.5", 0},
        {"n=1e1", 0},
        {"n=%205", 0},
        {"n=+5", 0},
        {"n=-", 0},
        {"n=--1", 0},
        {"n=9223372036854775807", 10},
        {"n=9223372036854775808", 0},
        {"n=5&n=x", 0},
        {"n=x&n=5", 5},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct refusal refusal;
        int64_t n = 7;
        enum err err = query_integer(span_str(cases[i].query), "n", 1, 10, &n, &refusal);
        CHECK_EQ(err, cases[i].value == 0 ? ERR_INVALID : ERR_OK);
        CHECK_EQ(n, cases[i].value == 0 ? 7 : cases[i].value);
        if (err != ERR_OK)
            check_refusal(&refusal, 400, NULL, "the query parameter n must be an integer");
    }
}

/* --- kv --- */

static const struct kv_limits limits = {
    .value_max = KV_VALUE_MAX, .ops_max = KV_OPS_MAX, .keys_max = 1024, .depth_max = 500};

static void refuses_kv(struct span body, unsigned status, const char *kind, const char *reason,
                       const char *part)
{
    struct kv_request r;
    struct refusal refusal;
    CHECK_EQ(kv_request_parse(body, &limits, &r, &refusal), ERR_INVALID);
    check_refusal(&refusal, status, kind, part);
    CHECK_TEXT(span_str(refusal.reason), reason);
    kv_request_deinit(&r);
}

static void refuses_op(const char *op, const char *reason, const char *part)
{
    struct buf body = BUF_INIT;
    buf_printf(&body, "[%s]", op);
    refuses_kv(buf_span(&body), 400, "kv_bad_request", reason, part);
    buf_deinit(&body);
}

TEST(kv_operations_are_taken)
{
    static const char body[] =
        "{\"operations\":["
        "{\"op\":\"get\",\"ns\":\"a\",\"key\":\"k\\/1\",\"expect\":null},"
        "{\"op\":\"getMany\",\"ns\":\"a\",\"keys\":[\"x\",\"y\"]},"
        "{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"p\",\"after\":\"pa\",\"limit\":5000,"
        "\"keysOnly\":true},"
        "{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":{\"b\":1,\"a\":[1.50, 2]},"
        "\"ttlSeconds\":30,\"expect\":7,\"required\":true},"
        "{\"op\":\"putIfAbsent\",\"ns\":\"a\",\"key\":\"l\",\"value\":null,\"forever\":true,"
        "\"expect\":0},"
        "{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"m\"},"
        "{\"op\":\"incr\",\"ns\":\"a\",\"key\":\"n\",\"delta\":0.10,\"min\":-1,\"max\":1E2,"
        "\"forever\":true},"
        "{\"op\":\"check\",\"ns\":\"a\",\"key\":\"k\",\"expect\":9}]}";
    struct kv_request r;
    struct refusal refusal;
    CHECK_EQ(kv_request_parse(span_str(body), &limits, &r, &refusal), ERR_OK);
    CHECK_EQ(r.n, 8);
    CHECK_TEXT(r.ops[0].key, "k/1");
    CHECK(!r.ops[0].has_expect);
    CHECK_EQ(r.ops[1].n_keys, 2);
    CHECK_TEXT(r.ops[1].keys[1], "y");
    CHECK_TEXT(r.ops[2].key, "p");
    CHECK_TEXT(r.ops[2].after, "pa");
    CHECK_EQ(r.ops[2].limit, 1000);
    CHECK(r.ops[2].keys_only);
    CHECK_TEXT(r.ops[3].value, "{\"a\":[1.5,2],\"b\":1}");
    CHECK_EQ(r.ops[3].ttl_seconds, 30);
    CHECK_EQ(r.ops[3].expect, 7);
    CHECK(r.ops[3].required);
    CHECK_TEXT(r.ops[4].value, "null");
    CHECK(r.ops[4].forever);
    CHECK(r.ops[4].has_expect);
    CHECK_TEXT(r.ops[6].value, "0.10");
    CHECK_TEXT(r.ops[6].min, "-1");
    CHECK_TEXT(r.ops[6].max, "1E2");
    CHECK_EQ(r.ops[7].type, KV_CHECK);
    kv_request_deinit(&r);
    CHECK_EQ(kv_request_parse(SPAN_LIT("[]"), &limits, &r, &refusal), ERR_OK);
    CHECK_EQ(r.n, 0);
    kv_request_deinit(&r);
}

TEST(kv_refusals_of_section_6)
{
    refuses_kv(SPAN_LIT("x"), 400, "kv_bad_request", "kv_bad_body", "at byte 0");
    refuses_kv(SPAN_LIT("1"), 400, "kv_bad_request", "kv_bad_body", "neither");
    refuses_kv(SPAN_LIT("{}"), 400, "kv_bad_request", "kv_bad_body", "operations is missing");
    refuses_kv(SPAN_LIT("{\"operations\":1}"), 400, "kv_bad_request", "kv_bad_body", "an array");
    refuses_op("1", "kv_bad_body", "operation 0: not an object");
    refuses_op("{}", "kv_unknown_op", "operation 0");
    refuses_op("{\"op\":\"putIfVersion\",\"ns\":\"a\",\"key\":\"k\"}", "kv_unknown_op", "op");
    refuses_op("{\"op\":\"get\",\"key\":\"k\"}", "kv_bad_namespace", "ns");
    refuses_op("{\"op\":\"get\",\"ns\":\"A\",\"key\":\"k\"}", "kv_bad_namespace", "ns");
    refuses_op("{\"op\":\"get\",\"ns\":\"a\"}", "kv_bad_key", "key is missing");
    refuses_op("{\"op\":\"get\",\"ns\":\"a\",\"key\":\"\"}", "kv_bad_key", "1..512");
    refuses_op("{\"op\":\"get\",\"ns\":\"a\",\"key\":7}", "kv_bad_key", "string");
    refuses_op("{\"op\":\"get\",\"ns\":\"a\",\"key\":\"a\\u0000b\"}", "kv_bad_key", "NUL");
    refuses_op("{\"op\":\"get\",\"ns\":\"a\",\"key\":\"\\ud800\"}", "kv_bad_key", "surrogate");
    refuses_op("{\"op\":\"get\",\"ns\":\"a\",\"key\":\"k\",\"tenant\":\"x\"}",
               "kv_tenant_not_an_input", "tenant");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1}", "kv_expiry_not_specified",
               "ttlSeconds");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"forever\":false}",
               "kv_expiry_not_specified", "ttlSeconds");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"forever\":true,"
               "\"ttlSeconds\":1}",
               "kv_expiry_not_specified", "ttlSeconds");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"ttlSeconds\":0}",
               "kv_bad_ttl", "ttlSeconds");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"ttlSeconds\":1.5}",
               "kv_bad_ttl", "ttlSeconds");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,"
               "\"ttlSeconds\":18446744073709551615}",
               "kv_bad_ttl", "ttlSeconds");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"forever\":true}", "kv_bad_body",
               "value is missing");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1E400,\"forever\":true}",
               "kv_bad_body", "value");
    refuses_op("{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"forever\":true,"
               "\"expect\":null}",
               "kv_bad_expect", "expect");
    refuses_op("{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"k\",\"expect\":-1}", "kv_bad_expect",
               "expect");
    refuses_op("{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"k\",\"expect\":1.0}", "kv_bad_expect",
               "expect");
    refuses_op("{\"op\":\"putIfAbsent\",\"ns\":\"a\",\"key\":\"k\",\"value\":1,\"forever\":true,"
               "\"expect\":1}",
               "kv_bad_expect", "0 only");
    refuses_op("{\"op\":\"check\",\"ns\":\"a\",\"key\":\"k\"}", "kv_bad_expect", "check");
    refuses_op("{\"op\":\"incr\",\"ns\":\"a\",\"key\":\"k\",\"delta\":1,\"forever\":true,"
               "\"expect\":1}",
               "kv_bad_expect", "incr");
    refuses_op("{\"op\":\"incr\",\"ns\":\"a\",\"key\":\"k\",\"forever\":true}", "kv_bad_body",
               "delta");
    refuses_op("{\"op\":\"incr\",\"ns\":\"a\",\"key\":\"k\",\"delta\":\"1\",\"forever\":true}",
               "kv_bad_body", "delta");
    refuses_op("{\"op\":\"incr\",\"ns\":\"a\",\"key\":\"k\",\"delta\":1}",
               "kv_expiry_not_specified", "ttlSeconds");
    refuses_op("{\"op\":\"getPrefix\",\"ns\":\"a\"}", "kv_prefix_required", "prefix");
    refuses_op("{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"\"}", "kv_prefix_required",
               "prefix");
    refuses_op("{\"op\":\"getMany\",\"ns\":\"a\",\"keys\":\"k\"}", "kv_bad_body", "keys");
    refuses_op("{\"op\":\"getMany\",\"ns\":\"a\",\"keys\":[1]}", "kv_bad_key", "string");
    refuses_op("{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"k\",\"required\":1}", "kv_bad_body",
               "required");
    refuses_op("{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"k\"},{\"op\":\"check\",\"ns\":\"a\","
               "\"key\":\"k\",\"expect\":0},{\"op\":\"delete\",\"ns\":\"a\",\"key\":\"k\"}",
               "kv_duplicate_key_in_call", "operation 2");
}

TEST(kv_sizes_are_limited)
{
    struct buf body = BUF_INIT;
    buf_puts(&body, "[{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"forever\":true,\"value\":\"");
    put_nested(&body, "v", KV_VALUE_MAX - 1, "", "");
    buf_puts(&body, "\"}]");
    refuses_kv(buf_span(&body), 413, "payload_too_large", "kv_value_too_large", "operation 0");
    buf_reset(&body);
    buf_puts(&body, "[{\"op\":\"get\",\"ns\":\"a\",\"key\":\"");
    put_nested(&body, "k", 500, "", "");
    buf_puts(&body, "\"}]");
    refuses_kv(buf_span(&body), 413, "payload_too_large", "kv_key_too_large", "operation 0");
    buf_reset(&body);
    buf_puts(&body, "[{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"p\",\"after\":\"");
    for (unsigned i = 0; i < 70000; i++)
        buf_putc(&body, 'x');
    buf_puts(&body, "\"}]");
    refuses_kv(buf_span(&body), 400, "kv_bad_request", "kv_bad_key", "after is 70000 bytes");
    buf_reset(&body);
    buf_puts(&body, "[{\"op\":\"get\",\"ns\":\"a\",\"key\":\"");
    put_nested(&body, "k", 513, "", "");
    buf_puts(&body, "\"}]");
    refuses_kv(buf_span(&body), 400, "kv_bad_request", "kv_bad_key", "513 bytes");
    buf_reset(&body);
    buf_puts(&body, "[");
    for (unsigned i = 0; i <= KV_OPS_MAX; i++)
        buf_printf(&body, "%s{\"op\":\"get\",\"ns\":\"a\",\"key\":\"k%u\"}", i > 0 ? "," : "", i);
    buf_puts(&body, "]");
    refuses_kv(buf_span(&body), 400, "kv_bad_request", "kv_too_many_ops", "256");
    refuses_kv(SPAN_LIT("[{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"p\",\"limit\":1000},"
                        "{\"op\":\"getPrefix\",\"ns\":\"a\",\"prefix\":\"p\",\"limit\":25}]"),
               400, "kv_bad_request", "kv_too_many_keys", "1024");
    buf_reset(&body);
    buf_puts(&body, "[{\"op\":\"getMany\",\"ns\":\"a\",\"keys\":[");
    for (unsigned i = 0; i <= 1024; i++)
        buf_printf(&body, "%s\"k%u\"", i > 0 ? "," : "", i);
    buf_puts(&body, "]}]");
    refuses_kv(buf_span(&body), 400, "kv_bad_request", "kv_too_many_keys", "1024");
    buf_reset(&body);
    buf_puts(&body, "[{\"op\":\"put\",\"ns\":\"a\",\"key\":\"k\",\"forever\":true,\"value\":");
    put_nested(&body, "[", 501, "", "]");
    buf_puts(&body, "}]");
    refuses_kv(buf_span(&body), 400, "kv_bad_request", "kv_bad_body", "");
    buf_deinit(&body);
}

TEST_MAIN()
