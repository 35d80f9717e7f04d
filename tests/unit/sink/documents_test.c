/* The sink's KV documents: keys, the exact text, and whatever else may lie there. */
#include "base/mem.h"
#include "json/json.h"
#include "lib/test.h"
#include "sink/documents.h"
#include "sink/lease.h"

#define NAME(text)                                                                                 \
    {                                                                                              \
        (const uint8_t *)(text), sizeof(text) - 1                                                  \
    }

static const struct sink_intent INTENT = {
    .k = 7,
    .t_start = 1791007200000000,
    .t_end = 1791009458377855,
    .format = SINK_JSONL,
    .compression = SINK_ZSTD,
    .layout = SINK_MERGED,
    .align = SINK_ALIGN_HOUR,
    .writer = NAME("queen-s3/2.0.0 jsonl+zstd raw"),
    .endpoint = NAME("file:///srv/\"lake\""),
    .bucket = NAME("lake"),
    .prefix = NAME("queen"),
    .segment_max = 255,
    .queue_id = 12,
};

static const char INTENT_TEXT[] =
    "{\"align\":\"hour\",\"bucket\":\"lake\",\"compression\":\"zstd\",\"endpoint\":"
    "\"file:///srv/\\\"lake\\\"\",\"format\":\"jsonl\",\"k\":7,\"layout\":\"merged\",\"prefix\":"
    "\"queen\",\"queueId\":12,\"segmentMax\":255,\"tEnd\":1791009458377855,\"tStart\":"
    "1791007200000000,\"writer\":\"queen-s3/2.0.0 jsonl+zstd raw\"}";

TEST(keys_are_escaped_and_shortened)
{
    struct buf b = BUF_INIT;
    sink_key_lease(&b, SPAN_LIT("default"), SPAN_LIT("a/b c"));
    CHECK_TEXT(buf_span(&b), "s3:default:a%2Fb%20c:lease");
    buf_reset(&b);
    sink_key_intent(&b, SPAN_LIT("x"), SPAN_LIT("orders"));
    CHECK_TEXT(buf_span(&b), "s3:x:orders:intent");
    buf_reset(&b);
    sink_key_committed(&b, SPAN_LIT("x"), SPAN_LIT("orders"));
    CHECK_TEXT(buf_span(&b), "s3:x:orders:committed");
    buf_reset(&b);
    sink_key_presence(&b, SPAN_LIT("x"), SPAN_LIT("node-1@h"));
    CHECK_TEXT(buf_span(&b), "s3:x:node=node-1%40h");
    buf_reset(&b);
    char name[600];
    memset(name, '/', sizeof(name));
    sink_key_committed(&b, SPAN_LIT("default"), span_make(name, sizeof(name)));
    CHECK(b.len <= 300 + strlen("s3:default::committed"));
    buf_deinit(&b);
}

/* Goal: what is written is the KV store's normal form, so that rows compare byte for byte. */
static void check_normal(struct span text)
{
    struct buf normal = BUF_INIT;
    struct error error;
    CHECK_EQ(json_normalise(text, 16, 65536, &normal, &error), ERR_OK);
    CHECK_SPAN(text, buf_span(&normal));
    buf_deinit(&normal);
}

TEST(an_intent_survives_the_round_trip)
{
    struct buf b = BUF_INIT;
    struct sink_intent got;
    sink_intent_put(&b, &INTENT);
    CHECK_TEXT(buf_span(&b), INTENT_TEXT);
    check_normal(buf_span(&b));
    CHECK_EQ(sink_intent_parse(buf_span(&b), &got), ERR_OK);
    CHECK_EQ(got.k, 7);
    CHECK_EQ(got.t_start, INTENT.t_start);
    CHECK_EQ(got.t_end, INTENT.t_end);
    CHECK_EQ(got.format, SINK_JSONL);
    CHECK_EQ(got.compression, SINK_ZSTD);
    CHECK_EQ(got.layout, SINK_MERGED);
    CHECK_EQ(got.align, SINK_ALIGN_HOUR);
    CHECK_SPAN(got.writer, INTENT.writer);
    CHECK_SPAN(got.endpoint, INTENT.endpoint);
    CHECK_SPAN(got.bucket, INTENT.bucket);
    CHECK_SPAN(got.prefix, INTENT.prefix);
    CHECK_EQ(got.segment_max, 255);
    CHECK_EQ(got.queue_id, 12);
    CHECK(!got.lost_only);
    CHECK(sink_intent_raw(&got));
    sink_intent_deinit(&got);
    buf_deinit(&b);
}

TEST(a_lost_only_intent_says_so)
{
    struct buf b = BUF_INIT;
    struct sink_intent intent = INTENT, got;
    intent.lost_only = true;
    intent.writer = SPAN_LIT("queen-s3/2.0.0 jsonl");
    sink_intent_put(&b, &intent);
    check_normal(buf_span(&b));
    CHECK_EQ(sink_intent_parse(buf_span(&b), &got), ERR_OK);
    CHECK(got.lost_only);
    CHECK(!sink_intent_raw(&got));
    sink_intent_deinit(&got);
    buf_deinit(&b);
}

/* Every truncation is refused, and so is every field that is missing or of another type. */
TEST(damaged_intents_are_refused)
{
    struct sink_intent got;
    struct span text = span_str(INTENT_TEXT);
    for (size_t len = 0; len < text.len; len++)
        CHECK_EQ(sink_intent_parse(span_sub(text, 0, len), &got), ERR_INVALID);
    static const char *const bad[] = {"[]", "null", "17", "{}", "{\"k\":7}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(sink_intent_parse(span_str(bad[i]), &got), ERR_INVALID);
    static const char *const fields[] = {"\"k\":7",
                                         "\"tEnd\":1791009458377855",
                                         "\"format\":\"jsonl\"",
                                         "\"segmentMax\":255",
                                         "\"prefix\":\"queen\"",
                                         "\"bucket\":\"lake\""};
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        struct buf b = BUF_INIT;
        const char *at = strstr(INTENT_TEXT, fields[i]);
        size_t name_len = (size_t)(strchr(fields[i], ':') + 1 - fields[i]);
        buf_append(&b, INTENT_TEXT, (size_t)(at - INTENT_TEXT) + name_len);
        buf_puts(&b, "true");
        buf_puts(&b, at + strlen(fields[i]));
        CHECK_EQ(sink_intent_parse(buf_span(&b), &got), ERR_INVALID);
        buf_deinit(&b);
    }
}

TEST(an_intent_of_a_newer_version_is_told_apart)
{
    struct sink_intent got;
    struct buf b = BUF_INIT;
    const char *at = strstr(INTENT_TEXT, "\"zstd\"");
    buf_append(&b, INTENT_TEXT, (size_t)(at - INTENT_TEXT));
    buf_puts(&b, "\"brotli\"");
    buf_puts(&b, at + 6);
    CHECK_EQ(sink_intent_parse(buf_span(&b), &got), ERR_OK);
    CHECK(got.unknown);
    CHECK_EQ(got.k, 7);
    sink_intent_deinit(&got);
    buf_reset(&b); /* unknown fields are a newer version's business */
    buf_puts(&b, "{\"zzz\":[1,{}],");
    buf_puts(&b, INTENT_TEXT + 1);
    CHECK_EQ(sink_intent_parse(buf_span(&b), &got), ERR_OK);
    CHECK(!got.unknown);
    sink_intent_deinit(&got);
    buf_deinit(&b);
}

TEST(a_pointer_survives_the_round_trip)
{
    struct buf b = BUF_INIT;
    struct sink_committed got;
    sink_committed_put(&b, &(struct sink_committed){.k = 3,
                                                    .t_end = 1791009458377855,
                                                    .manifest = SPAN_LIT("queen/_queen/x.json"),
                                                    .records = 5,
                                                    .bytes = 207,
                                                    .committed_at_ms = 1791009464741});
    CHECK_TEXT(buf_span(&b),
               "{\"bytes\":207,\"committedAtMs\":1791009464741,\"k\":3,\"manifest\":"
               "\"queen/_queen/x.json\",\"records\":5,\"tEnd\":\"2026-10-03T06:37:38.377855Z\"}");
    check_normal(buf_span(&b));
    CHECK_EQ(sink_committed_parse(buf_span(&b), &got), ERR_OK);
    CHECK_EQ(got.k, 3);
    CHECK_EQ(got.t_end, 1791009458377855);
    CHECK_TEXT(got.manifest, "queen/_queen/x.json");
    CHECK_EQ(got.records, 5);
    CHECK_EQ(got.bytes, 207);
    sink_committed_deinit(&got);
    buf_deinit(&b);
}

TEST(a_pointers_end_may_be_an_integer)
{
    struct sink_committed got;
    CHECK_EQ(sink_committed_parse(SPAN_LIT("{\"k\":1,\"tEnd\":1791009458377855}"), &got), ERR_OK);
    CHECK_EQ(got.t_end, 1791009458377855);
    sink_committed_deinit(&got);
    static const char *const bad[] = {"{\"k\":0,\"tEnd\":1}",
                                      "{\"k\":1}",
                                      "{\"tEnd\":1}",
                                      "{\"k\":1,\"tEnd\":\"soon\"}",
                                      "{\"k\":-1,\"tEnd\":1}",
                                      "{\"k\":1.5,\"tEnd\":1}",
                                      "\"k\""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(sink_committed_parse(span_str(bad[i]), &got), ERR_INVALID);
}

TEST(a_lease_names_its_holder)
{
    struct lease l;
    struct buf b = BUF_INIT, holder = BUF_INIT;
    lease_init(&l, SPAN_LIT("node-1@a"), 0x0123456789abcdefu, 1791009458377855);
    CHECK_EQ(strlen(l.incarnation), 16);
    lease_put(&b, &l);
    check_normal(buf_span(&b));
    struct kv_row row = {.value = buf_span(&b), .version = 3};
    CHECK_EQ(lease_look(&l, NULL, &holder), LEASE_FREE);
    CHECK_EQ(lease_look(&l, &row, &holder), LEASE_MINE);
    CHECK(lease_is_own(&l, buf_span(&b)));
    struct lease later; /* an earlier life's row is mine, but not this handle's */
    lease_init(&later, SPAN_LIT("node-1@a"), 99, 1791009458377855);
    CHECK_EQ(lease_look(&later, &row, &holder), LEASE_MINE);
    CHECK(!lease_is_own(&later, buf_span(&b)));
    lease_init(&later, SPAN_LIT("node-2@b"), 99, 1791009458377855);
    CHECK_EQ(lease_look(&later, &row, &holder), LEASE_OTHER);
    CHECK_TEXT(buf_span(&holder), "node-1@a");
    row.value = SPAN_LIT("{\"instance\":5}");
    CHECK_EQ(lease_look(&l, &row, &holder), LEASE_OTHER);
    CHECK_TEXT(buf_span(&holder), "unknown");
    buf_deinit(&b);
    buf_deinit(&holder);
    CHECK_EQ(lease_ttl_seconds(999), 1);
    CHECK_EQ(lease_ttl_seconds(1000), 1);
    CHECK_EQ(lease_ttl_seconds(30999), 30);
}

TEST_MAIN()
