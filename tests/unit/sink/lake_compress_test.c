#include "sink/lake.h"

#include "unit/sink/lake_fixture.h"

#include "base/mem.h"
#include "lib/prng.h"

#include <zlib.h>
#include <zstd.h>

/* Text that compresses like a lake's, with some noise. */
static struct buf sample(size_t size)
{
    struct buf b = BUF_INIT;
    struct prng p;
    prng_init(&p, 11);
    while (b.len < size)
        buf_printf(&b, "{\"partition\":\"cust-%llu\",\"payload\":{\"x\":%llu}}\n",
                   (unsigned long long)prng_below(&p, 50), (unsigned long long)prng_u64(&p));
    b.len = size;
    return b;
}

TEST(the_guides_object_comes_out)
{
    struct buf text = golden("guide_object.jsonl");
    struct buf out = compressed(SINK_ZSTD, buf_span(&text), 100);
    struct buf want = golden("guide_object.jsonl.zst");
    CHECK_EQ(out.len, 207);
    check_sha256(buf_span(&out), GUIDE_SHA256);
    CHECK_SPAN(buf_span(&out), buf_span(&want));
    buf_deinit(&text);
    buf_deinit(&out);
    buf_deinit(&want);
}

TEST(gzip_has_a_header_without_time_and_system)
{
    struct buf text = golden("guide_object.jsonl");
    struct buf out = compressed(SINK_GZIP, buf_span(&text), 100);
    struct buf want = golden("guide_object.jsonl.gz");
    CHECK_SPAN(span_sub(buf_span(&out), 0, 10), SPAN_LIT("\x1f\x8b\x08\0\0\0\0\0\0\xff"));
    CHECK_SPAN(buf_span(&out), buf_span(&want));
    buf_deinit(&text);
    buf_deinit(&out);
    buf_deinit(&want);
}

TEST(none_is_the_text)
{
    struct buf text = sample(100000);
    struct buf out = compressed(SINK_NONE, buf_span(&text), 777);
    CHECK(span_eq(buf_span(&out), buf_span(&text)));
    buf_deinit(&text);
    buf_deinit(&out);
}

TEST(empty_text)
{
    struct buf out = compressed(SINK_ZSTD, (struct span){0}, 1);
    CHECK_SPAN(buf_span(&out), SPAN_LIT("\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00"));
    buf_deinit(&out);
    out = compressed(SINK_GZIP, (struct span){0}, 1);
    CHECK_SPAN(buf_span(&out), SPAN_LIT("\x1f\x8b\x08\0\0\0\0\0\0\xff\x03\0\0\0\0\0\0\0\0\0"));
    buf_deinit(&out);
    out = compressed(SINK_NONE, (struct span){0}, 1);
    CHECK_EQ(out.len, 0);
    buf_deinit(&out);
}

/* Goal: bytes depend on the text alone (exactly once needs equal bytes from every build). */
TEST(pieces_do_not_change_the_bytes)
{
    static const size_t pieces[] = {1, 7, 4095, 65535, 65536, 65537, 131072, 1000003};
    struct buf text = sample(3000000);
    for (int c = SINK_ZSTD; c <= SINK_GZIP; c++) {
        struct buf want = compressed((enum sink_compression)c, buf_span(&text), text.len);
        for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
            struct buf out = compressed((enum sink_compression)c, buf_span(&text), pieces[i]);
            CHECK(span_eq(buf_span(&out), buf_span(&want)));
            buf_deinit(&out);
        }
        buf_deinit(&want);
    }
    buf_deinit(&text);
}

TEST(an_empty_piece_changes_nothing)
{
    for (int i = SINK_ZSTD; i <= SINK_NONE; i++) {
        enum sink_compression c = (enum sink_compression)i;
        struct buf out = BUF_INIT;
        struct lake_compressor *z = lake_compressor_new(c);
        lake_compressor_write(z, (struct span){0}, &out);
        lake_compressor_write(z, SPAN_LIT("hello\n"), &out);
        lake_compressor_write(z, (struct span){0}, &out);
        lake_compressor_end(z, &out);
        lake_compressor_free(z);
        struct buf want = compressed(c, SPAN_LIT("hello\n"), 6);
        CHECK_SPAN(buf_span(&out), buf_span(&want));
        buf_deinit(&out);
        buf_deinit(&want);
    }
}

TEST(both_codecs_read_back)
{
    struct buf text = sample(500000);
    uint8_t *back = mem_new(text.len + 1);
    struct buf out = compressed(SINK_ZSTD, buf_span(&text), 10000);
    CHECK_EQ(ZSTD_decompress(back, text.len + 1, out.ptr, out.len), text.len);
    CHECK(memcmp(back, text.ptr, text.len) == 0);
    CHECK_EQ(ZSTD_getFrameContentSize(out.ptr, out.len), ZSTD_CONTENTSIZE_UNKNOWN);
    buf_deinit(&out);

    out = compressed(SINK_GZIP, buf_span(&text), 10000);
    z_stream z = {0};
    CHECK_EQ(inflateInit2(&z, 15 + 16), Z_OK);
    z.next_in = out.ptr;
    z.avail_in = (uInt)out.len;
    z.next_out = back;
    z.avail_out = (uInt)(text.len + 1);
    CHECK_EQ(inflate(&z, Z_FINISH), Z_STREAM_END);
    CHECK_EQ(z.total_out, text.len);
    CHECK_EQ(z.avail_in, 0); /* one member */
    CHECK(memcmp(back, text.ptr, text.len) == 0);
    CHECK_EQ(inflateEnd(&z), Z_OK);
    buf_deinit(&out);
    buf_deinit(&text);
    mem_free(back);
}

static void check_writer(enum sink_compression c, bool raw, const char *want)
{
    struct buf b = BUF_INIT;
    lake_writer(&b, SINK_JSONL, c, raw);
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

/* With the libraries that the digests were made with; another one adds its name and version. */
TEST(the_writer_is_named)
{
    CHECK(lake_compressor_known(SINK_NONE));
    CHECK(lake_compressor_known(SINK_ZSTD) == (strcmp(ZSTD_versionString(), "1.5.4") == 0));
    CHECK(lake_compressor_known(SINK_GZIP) == (strcmp(zlibVersion(), "1.2.13") == 0));
    check_writer(SINK_NONE, false, "queen-s3/2.0.0 jsonl");
    check_writer(SINK_NONE, true, "queen-s3/2.0.0 jsonl raw");
    if (!lake_compressor_known(SINK_ZSTD) || !lake_compressor_known(SINK_GZIP))
        skip();
    check_writer(SINK_ZSTD, false, "queen-s3/2.0.0 jsonl+zstd");
    check_writer(SINK_ZSTD, true, "queen-s3/2.0.0 jsonl+zstd raw");
    check_writer(SINK_GZIP, false, "queen-s3/2.0.0 jsonl+gzip");
}

TEST_MAIN()
