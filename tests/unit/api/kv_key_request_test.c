/* The requests about one key and for a listing (spec/kv.md 4, 5). */
#include "api/request.h"

#include "lib/test.h"

static const struct kv_limits limits = {
    .value_max = 100, .ops_max = KV_OPS_MAX, .keys_max = 1024, .depth_max = 500};

static struct kv_key_source from(enum kv_op_type type, const char *path, const char *body)
{
    return (struct kv_key_source){
        .type = type, .path = span_str(path), .query = SPAN_LIT(""), .body = span_str(body)};
}

static void check_refusal(const struct refusal *refusal, unsigned status, const char *reason,
                          const char *part)
{
    CHECK_EQ(refusal->status, status);
    CHECK_TEXT(span_str(refusal->code), status == 413 ? "payload_too_large" : "kv_bad_request");
    CHECK_TEXT(span_str(refusal->reason), reason);
    if (strstr(refusal->text, part) == NULL)
        CHECK_TEXT(span_str(refusal->text), part);
    CHECK(strstr(refusal->text, "operation 0") == NULL); /* there is but one */
}

static void refuses(struct kv_key_source source, unsigned status, const char *reason,
                    const char *part)
{
    struct kv_request r;
    struct refusal refusal;
    CHECK_EQ(kv_key_request_parse(&source, &limits, &r, &refusal), ERR_INVALID);
    check_refusal(&refusal, status, reason, part);
    kv_request_deinit(&r);
}

static void gets(const char *path, const char *ns, struct span key)
{
    struct kv_request r;
    struct refusal refusal;
    struct kv_key_source source = from(KV_GET, path, "");
    CHECK_EQ(kv_key_request_parse(&source, &limits, &r, &refusal), ERR_OK);
    CHECK_EQ(r.n, 1);
    CHECK_EQ(r.ops[0].type, KV_GET);
    CHECK_TEXT(r.ops[0].ns, ns);
    CHECK_SPAN(r.ops[0].key, key);
    kv_request_deinit(&r);
}

/* Goal: each part of the path is decoded once, and what is no escape stays as it is. */
TEST(the_key_is_the_rest_of_the_path)
{
    gets("n/k", "n", SPAN_LIT("k"));
    gets("n/a/b", "n", SPAN_LIT("a/b"));
    gets("n/a%2Fb", "n", SPAN_LIT("a/b"));
    gets("n//a//", "n", SPAN_LIT("/a//"));
    gets("n/%2541", "n", SPAN_LIT("%41"));
    gets("n/100%", "n", SPAN_LIT("100%"));
    gets("n/%zz%4", "n", SPAN_LIT("%zz%4"));
    gets("n/a+b%20c", "n", SPAN_LIT("a+b c"));
    gets("n/%C3%A9", "n", SPAN_LIT("\xc3\xa9"));
    gets("n/..", "n", SPAN_LIT(".."));
    gets("%6e%2D1/k", "n-1", SPAN_LIT("k"));
}

TEST(bad_paths_are_refused)
{
    char path[600] = "n/";
    refuses(from(KV_GET, "N/k", ""), 400, "kv_bad_namespace", "namespace");
    refuses(from(KV_GET, "/k", ""), 400, "kv_bad_namespace", "namespace");
    refuses(from(KV_GET, "n%2Fk", ""), 400, "kv_bad_namespace", "namespace");
    refuses(from(KV_GET, "n%00/k", ""), 400, "kv_bad_namespace", "namespace");
    refuses(from(KV_GET, "n", ""), 400, "kv_bad_key", "/api/v1/kv/<namespace>/<key>");
    refuses(from(KV_GET, "n/", ""), 400, "kv_bad_key", "1..512");
    refuses(from(KV_GET, "n/a%00b", ""), 400, "kv_bad_key", "NUL");
    refuses(from(KV_GET, "n/%FF", ""), 400, "kv_bad_key", "UTF-8");
    refuses(from(KV_GET, "n/%ed%a0%80", ""), 400, "kv_bad_key", "UTF-8");
    memset(path + 2, 'k', 512);
    refuses(from(KV_GET, path, ""), 413, "kv_key_too_large", "too long");
    path[514] = 'k';
    refuses(from(KV_GET, path, ""), 400, "kv_bad_key", "513 bytes");
    struct kv_key_source with_query = from(KV_GET, "n/k", "");
    with_query.query = SPAN_LIT("a=1");
    refuses(with_query, 400, "kv_no_query_string", "query");
    with_query = from(KV_PUT, "n/k", "{\"value\":1,\"forever\":true}");
    with_query.query = SPAN_LIT("forever=true");
    refuses(with_query, 400, "kv_no_query_string", "query");
}

TEST(bodies_are_taken)
{
    struct kv_request r;
    struct refusal refusal;
    struct kv_key_source source = from(
        KV_PUT, "n/k",
        "{\"value\":{\"b\":[[1.50]],\"a\":null},\"ttlSeconds\":5,\"expect\":7,\"required\":true,"
        "\"unknown\":{}}");
    CHECK_EQ(kv_key_request_parse(&source, &limits, &r, &refusal), ERR_OK);
    CHECK_EQ(r.ops[0].type, KV_PUT);
    CHECK_TEXT(r.ops[0].value, "{\"a\":null,\"b\":[[1.5]]}");
    CHECK_EQ(r.ops[0].ttl_seconds, 5);
    CHECK(r.ops[0].has_expect);
    CHECK_EQ(r.ops[0].expect, 7);
    CHECK(r.ops[0].required);
    kv_request_deinit(&r);
    source = from(KV_DELETE, "n/k", "");
    CHECK_EQ(kv_key_request_parse(&source, &limits, &r, &refusal), ERR_OK);
    CHECK(!r.ops[0].has_expect);
    kv_request_deinit(&r);
    source = from(KV_DELETE, "n/k", " {\"expect\":0, \"value\":1} ");
    CHECK_EQ(kv_key_request_parse(&source, &limits, &r, &refusal), ERR_OK);
    CHECK(r.ops[0].has_expect);
    CHECK_EQ(r.ops[0].value.len, 0);
    kv_request_deinit(&r);
    source = from(KV_GET, "n/k", "not looked at");
    CHECK_EQ(kv_key_request_parse(&source, &limits, &r, &refusal), ERR_OK);
    kv_request_deinit(&r);
}

TEST(bad_bodies_are_refused)
{
    static const struct {
        enum kv_op_type type;
        const char *body;
        unsigned status;
        const char *reason, *part;
    } table[] = {
        {KV_PUT, "", 400, "kv_bad_body", "at byte 0"},
        {KV_PUT, "[]", 400, "kv_bad_body", "not an object"},
        {KV_PUT, "{} {}", 400, "kv_bad_body", "at byte 3"},
        {KV_PUT, "{", 400, "kv_bad_body", "at byte 1"},
        {KV_PUT, "{}", 400, "kv_bad_body", "value is missing"},
        {KV_PUT, "{\"value\":1}", 400, "kv_expiry_not_specified", "ttlSeconds"},
        {KV_PUT, "{\"value\":1,\"ttlSeconds\":0}", 400, "kv_bad_ttl", "ttlSeconds"},
        {KV_PUT, "{\"value\":1,\"forever\":1}", 400, "kv_bad_body", "forever"},
        {KV_PUT, "{\"value\":1,\"forever\":true,\"expect\":null}", 400, "kv_bad_expect", "expect"},
        {KV_PUT, "{\"value\":1,\"forever\":true,\"required\":1}", 400, "kv_bad_body", "required"},
        {KV_PUT, "{\"value\":1E400,\"forever\":true}", 400, "kv_bad_body", "value"},
        {KV_PUT, "{\"value\":1,\"forever\":true,\"op\":\"put\"}", 400, "kv_field_in_path", "op "},
        {KV_PUT, "{\"value\":1,\"forever\":true,\"ns\":null}", 400, "kv_field_in_path", "ns "},
        {KV_PUT, "{\"namespace\":\"n\"}", 400, "kv_field_in_path", "namespace "},
        {KV_PUT, "{\"key\":\"k\"}", 400, "kv_field_in_path", "key "},
        {KV_PUT, "{\"tenant\":\"x\"}", 400, "kv_tenant_not_an_input", "tenant"},
        {KV_DELETE, "{\"key\":\"k\"}", 400, "kv_field_in_path", "key "},
        {KV_DELETE, "{\"tenantId\":\"k\"}", 400, "kv_tenant_not_an_input", "tenant"},
        {KV_DELETE, "{\"expect\":-1}", 400, "kv_bad_expect", "expect"},
        {KV_DELETE, "null", 400, "kv_bad_body", "not an object"},
        {KV_DELETE, " ", 400, "kv_bad_body", "at byte 1"},
    };
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        refuses(from(table[i].type, "n/k", table[i].body), table[i].status, table[i].reason,
                table[i].part);
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"forever\":true,\"value\":\"");
    for (unsigned i = 0; i < 99; i++)
        buf_putc(&body, 'x');
    buf_puts(&body, "\"}");
    buf_putc(&body, 0);
    refuses(from(KV_PUT, "n/k", (const char *)body.ptr), 413, "kv_value_too_large", "too large");
    buf_deinit(&body);
}

/* --- listings --- */

static void refuses_list(const char *body, const char *reason, const char *part)
{
    struct kv_request r;
    struct refusal refusal;
    CHECK_EQ(kv_list_request_parse(span_str(body), &limits, &r, &refusal), ERR_INVALID);
    check_refusal(&refusal, 400, reason, part);
    kv_request_deinit(&r);
}

TEST(listings_are_taken)
{
    struct kv_request r;
    struct refusal refusal;
    CHECK_EQ(kv_list_request_parse(SPAN_LIT("{\"namespace\":\"n\"}"), &limits, &r, &refusal),
             ERR_OK);
    CHECK_EQ(r.n, 1);
    CHECK_EQ(r.ops[0].type, KV_GET_PREFIX);
    CHECK_TEXT(r.ops[0].ns, "n");
    CHECK_EQ(r.ops[0].key.len, 0);
    CHECK_EQ(r.ops[0].limit, 100);
    CHECK(!r.ops[0].keys_only);
    CHECK(!r.ops[0].with_expired);
    kv_request_deinit(&r);
    CHECK_EQ(kv_list_request_parse(
                 SPAN_LIT("{\"namespace\":\"n\",\"prefix\":\"p\",\"after\":\"pp\",\"limit\":2000,"
                          "\"keysOnly\":true,\"includeExpired\":true,\"ns\":\"x\"}"),
                 &limits, &r, &refusal),
             ERR_OK);
    CHECK_TEXT(r.ops[0].key, "p");
    CHECK_TEXT(r.ops[0].after, "pp");
    CHECK_EQ(r.ops[0].limit, 1000);
    CHECK(r.ops[0].keys_only);
    CHECK(r.ops[0].with_expired);
    kv_request_deinit(&r);
    CHECK_EQ(kv_list_request_parse(
                 SPAN_LIT("{\"namespace\":\"n\",\"prefix\":\"\",\"after\":null,\"limit\":-5}"),
                 &limits, &r, &refusal),
             ERR_OK);
    CHECK_EQ(r.ops[0].limit, 1);
    kv_request_deinit(&r);
}

TEST(bad_listings_are_refused)
{
    refuses_list("", "kv_bad_body", "at byte 0");
    refuses_list("[]", "kv_bad_body", "not an object");
    refuses_list("{}", "kv_bad_namespace", "namespace must match");
    refuses_list("{\"ns\":\"n\"}", "kv_bad_namespace", "namespace must match");
    refuses_list("{\"namespace\":\"\"}", "kv_bad_namespace", "namespace must match");
    refuses_list("{\"namespace\":\"n\",\"prefix\":1}", "kv_bad_key", "string");
    refuses_list("{\"namespace\":\"n\",\"prefix\":\"a\\u0000\"}", "kv_bad_key", "NUL");
    refuses_list("{\"namespace\":\"n\",\"after\":1}", "kv_bad_key", "after");
    refuses_list("{\"namespace\":\"n\",\"limit\":\"1\"}", "kv_bad_body", "limit");
    refuses_list("{\"namespace\":\"n\",\"limit\":1.5}", "kv_bad_body", "limit");
    refuses_list("{\"namespace\":\"n\",\"keysOnly\":0}", "kv_bad_body", "keysOnly");
    refuses_list("{\"namespace\":\"n\",\"includeExpired\":\"x\"}", "kv_bad_body", "includeExpired");
    refuses_list("{\"namespace\":\"n\",\"tenant_id\":1}", "kv_tenant_not_an_input", "tenant");
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"namespace\":\"n\",\"after\":\"");
    for (unsigned i = 0; i < KV_KEY_MAX + 1; i++)
        buf_putc(&body, 'x');
    buf_puts(&body, "\"}");
    buf_putc(&body, 0);
    refuses_list((const char *)body.ptr, "kv_bad_key", "513 bytes");
    buf_deinit(&body);
}

TEST_MAIN()
