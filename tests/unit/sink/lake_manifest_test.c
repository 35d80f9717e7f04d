#include "sink/lake.h"

#include "unit/sink/lake_fixture.h"

static struct lake_manifest_object guide_object = {
    .key = {(const uint8_t *)GUIDE_KEY, sizeof(GUIDE_KEY) - 1},
    .bytes = 207,
    .records = 3,
    .sha256 = GUIDE_SHA256,
};

static struct lake_manifest guide_manifest(void)
{
    return (struct lake_manifest){
        .sink = SPAN_LIT("default"),
        .tenant = SPAN_LIT(GUIDE_TENANT),
        .queue = SPAN_LIT("orders"),
        .k = 1,
        .t_start = GUIDE_T_START,
        .t_end = GUIDE_T_END,
        .format = SPAN_LIT("jsonl"),
        .compression = SPAN_LIT("zstd"),
        .layout = SPAN_LIT("merged"),
        .objects = &guide_object,
        .n_objects = 1,
        .records = 3,
        .bytes = 207,
        .partitions = 2,
        .has_ts = true,
        .min_ts = GUIDE_STAMP,
        .max_ts = GUIDE_STAMP,
        .writer = SPAN_LIT("queen-s3/2.0.0 jsonl+zstd"),
        .committed_at = INT64_C(1791009464741999), /* written in milliseconds */
    };
}

static void check_put(const struct lake_manifest *m, const char *name)
{
    struct buf out = BUF_INIT;
    struct buf want = golden(name);
    lake_manifest_put(&out, m);
    CHECK_SPAN(buf_span(&out), buf_span(&want));
    buf_deinit(&out);
    buf_deinit(&want);
}

TEST(the_guides_manifest_comes_out)
{
    struct lake_manifest m = guide_manifest();
    check_put(&m, "guide_manifest.json");
}

/* Goal: reading and writing are inverse. Method: the guide's indented text becomes the compact one.
 */
TEST(the_guides_manifest_reads_back)
{
    struct buf text = golden("guide_manifest_indented.json");
    struct lake_manifest m = {0};
    CHECK_EQ(lake_manifest_parse(buf_span(&text), &m), ERR_OK);
    buf_deinit(&text); /* nothing points into it */
    CHECK_TEXT(m.queue, "orders");
    CHECK_EQ(m.k, 1);
    CHECK_EQ(m.n_objects, 1);
    CHECK_TEXT(m.objects[0].key, GUIDE_KEY);
    CHECK_EQ(m.n_lost, 0);
    CHECK(m.has_ts);
    CHECK_EQ(m.committed_at, INT64_C(1791009464741000));
    check_put(&m, "guide_manifest.json");
    lake_manifest_deinit(&m);
}

TEST(a_window_without_records_has_no_bounds)
{
    struct lake_manifest m = guide_manifest();
    struct lake_lost lost[] = {
        {SPAN_LIT("cust\n\"1\""), 5, 9},
        {SPAN_LIT("cust-2"), UINT64_MAX - 1, UINT64_MAX},
    };
    m.n_objects = 0;
    m.records = m.bytes = m.partitions = 0;
    m.has_ts = false;
    m.lost = lost;
    m.n_lost = 2;
    struct buf out = BUF_INIT;
    lake_manifest_put(&out, &m);
    const char *want =
        "{\"sink\":\"default\",\"tenant\":\"" GUIDE_TENANT "\",\"queue\":\"orders\",\"k\":1,"
        "\"tStart\":1791007200000000,\"tEnd\":1791009458377855,\"format\":\"jsonl\","
        "\"compression\":\"zstd\",\"layout\":\"merged\",\"objects\":[],\"records\":0,\"bytes\":0,"
        "\"partitions\":0,\"lost\":[{\"partition\":\"cust\\n\\\"1\\\"\",\"from\":5,\"to\":9},"
        "{\"partition\":\"cust-2\",\"from\":18446744073709551614,\"to\":18446744073709551615}],"
        "\"writer\":\"queen-s3/2.0.0 jsonl+zstd\",\"committedAt\":\"2026-10-03T06:37:44.741000Z\"}";
    CHECK_TEXT(buf_span(&out), want);
    struct lake_manifest back = {0};
    CHECK_EQ(lake_manifest_parse(buf_span(&out), &back), ERR_OK);
    CHECK(!back.has_ts);
    CHECK_EQ(back.n_lost, 2);
    CHECK_TEXT(back.lost[0].partition, "cust\n\"1\"");
    CHECK_EQ(back.lost[1].to, UINT64_MAX);
    lake_manifest_deinit(&back);
    buf_deinit(&out);
}

/* The guide's text with one part replaced; owned. */
static struct buf changed(const char *from, const char *to)
{
    struct buf text = golden("guide_manifest.json");
    struct buf out = BUF_INIT;
    const uint8_t *at = memmem(text.ptr, text.len, from, strlen(from));
    if (at == NULL)
        print_error("no %s in the manifest\n", from);
    CHECK(at != NULL);
    size_t start = (size_t)(at - text.ptr);
    buf_append(&out, text.ptr, start);
    buf_puts(&out, to);
    buf_append(&out, at + strlen(from), text.len - start - strlen(from));
    buf_deinit(&text);
    return out;
}

static void check_parse(const char *from, const char *to, enum err want)
{
    struct buf text = changed(from, to);
    struct lake_manifest m = {.k = 77};
    enum err err = lake_manifest_parse(buf_span(&text), &m);
    if (err != want)
        print_error("%s -> %s: %d\n", from, to, (int)err);
    CHECK_EQ(err, want);
    if (err == ERR_OK)
        lake_manifest_deinit(&m);
    else
        CHECK_EQ(m.k, 77); /* untouched */
    buf_deinit(&text);
}

TEST(readers_tolerate_what_objects_md_lists)
{
    check_parse("\"tenant\":\"" GUIDE_TENANT "\",", "", ERR_OK);
    check_parse(",\"lost\":[]", "", ERR_OK);
    check_parse("\"minTs\":1791009457501942,\"maxTs\":1791009457501942,", "", ERR_OK);
    check_parse("\"lost\":[]", "\"lost\":null", ERR_OK);
    check_parse("\"k\":1", "\"k\":1,\"new\":{\"k\":[1,{\"x\":null}]}", ERR_OK);
    check_parse("\"bytes\":207,\"records\"", "\"more\":[],\"bytes\":207,\"records\"", ERR_OK);
    /* per-partition objects */
    check_parse("\"bytes\":207,\"records\"",
                "\"partition\":\"p\",\"firstOffset\":1,\"lastOffset\":2,\"bytes\":207,\"records\"",
                ERR_OK);
    check_parse("\"sink\":\"default\"", "\"sink\":\"d\\u00e9\\\"\"", ERR_OK);
}

TEST(everything_else_is_refused)
{
    static const char *const required[] = {
        "\"sink\":\"default\",",
        "\"queue\":\"orders\",",
        "\"k\":1,",
        "\"tStart\":1791007200000000,",
        "\"tEnd\":1791009458377855,",
        "\"format\":\"jsonl\",",
        "\"compression\":\"zstd\",",
        "\"layout\":\"merged\",",
        "\"records\":3,\"bytes\":207,",
        "\"partitions\":2,",
        "\"writer\":\"queen-s3/2.0.0 jsonl+zstd\",",
        "\"sha256\":\"" GUIDE_SHA256 "\"",
        "\"bytes\":207,\"records\":3,",
    };
    for (size_t i = 0; i < sizeof(required) / sizeof(required[0]); i++)
        check_parse(required[i], "", ERR_INVALID);
    check_parse(",\"committedAt\":\"2026-10-03T06:37:44.741000Z\"", "", ERR_INVALID);
    check_parse("\"k\":1,", "\"k\":-1,", ERR_INVALID);
    check_parse("\"k\":1,", "\"k\":1.0,", ERR_INVALID);
    check_parse("\"k\":1,", "\"k\":\"1\",", ERR_INVALID);
    check_parse("\"k\":1,", "\"k\":1,\"k\":2,", ERR_INVALID);
    check_parse("\"k\":1,", "\"k\":null,", ERR_INVALID);
    check_parse("\"k\":1,", "\"k\":18446744073709551616,", ERR_INVALID);
    check_parse("\"sink\":\"default\"", "\"sink\":\"\\ud800\"", ERR_INVALID);
    check_parse("\"objects\":[{", "\"objects\":{\"a\":[{", ERR_INVALID);
    check_parse("\"objects\":[{", "\"objects\":[1,{", ERR_INVALID);
    check_parse("\"lost\":[]", "\"lost\":[{\"partition\":\"p\",\"from\":1}]", ERR_INVALID);
    check_parse("\"lost\":[]", "\"lost\":[7]", ERR_INVALID);
    check_parse(GUIDE_SHA256, "abc", ERR_INVALID);
    check_parse(GUIDE_SHA256, "5F2ac4baa20940c6c33a5e3c7207ef7d1087db6538fea0cce88cb16ff43def78",
                ERR_INVALID);
    check_parse("2026-10-03T06:37:44.741000Z", "yesterday", ERR_INVALID);
    check_parse("{\"sink\"", "[{\"sink\"", ERR_INVALID);
}

/* A GET that was cut, or a file that was: never taken for a manifest. */
TEST(every_truncation_is_refused)
{
    struct buf text = golden("guide_manifest.json");
    for (size_t n = 0; n < text.len; n++) {
        struct lake_manifest m = {.k = 77};
        CHECK_EQ(lake_manifest_parse(span_sub(buf_span(&text), 0, n), &m), ERR_INVALID);
        CHECK_EQ(m.k, 77);
    }
    buf_putc(&text, '{');
    struct lake_manifest m;
    CHECK_EQ(lake_manifest_parse(buf_span(&text), &m), ERR_INVALID);
    buf_deinit(&text);
}

TEST_MAIN()
