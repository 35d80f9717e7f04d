/* The guide's example, golden files, and small helpers for the tests of the lake. */
#ifndef TESTS_UNIT_SINK_LAKE_FIXTURE_H
#define TESTS_UNIT_SINK_LAKE_FIXTURE_H

#include "sink/lake.h"
#include "lib/test.h"

#include <stdio.h>
#include <stdlib.h>

#define GUIDE_TENANT "00000000-0000-0000-0000-000000000001"
#define GUIDE_T_START INT64_C(1791007200000000)
#define GUIDE_T_END INT64_C(1791009458377855)
#define GUIDE_STAMP INT64_C(1791009457501942)
#define GUIDE_SHA256 "5f2ac4baa20940c6c33a5e3c7207ef7d1087db6538fea0cce88cb16ff43def78"
#define GUIDE_KEY                                                                                  \
    "queen/tenant=" GUIDE_TENANT "/queue=orders/dt=2026-10-03/hour=06/"                            \
    "w-0000000001-1791007200000000-1791009458377855.jsonl.zst"

/* In the order of the lake. */
static const struct {
    const char *partition;
    uint64_t offset;
    const char *transaction_id;
    const char *payload;
} guide_records[] = {
    {"cust-1", 0, "01a1007b-855d-7001-8107-adfdabd3e51c",
     "{\"order\":1,\"status\":\"new\",\"total\":42.00}"},
    {"cust-1", 1, "01a1007b-855d-7003-ab83-e480f30b0bb6",
     "{\"order\":1,\"status\":\"paid\",\"total\":42.00}"},
    {"cust-2", 0, "01a1007b-855d-7002-aa32-19bf977724d0",
     "{\"order\":2,\"status\":\"new\",\"total\":17.50}"},
};

static inline struct lake_spec guide_spec(void)
{
    return (struct lake_spec){
        .endpoint = SPAN_LIT("http://minio:9000"),
        .bucket = SPAN_LIT("lake"),
        .prefix = SPAN_LIT("queen"),
        .tenant = SPAN_LIT(GUIDE_TENANT),
        .queue = SPAN_LIT("orders"),
        .segment_max = 1024,
    };
}

static inline struct lake_window guide_window(void)
{
    return (struct lake_window){
        .spec = guide_spec(), .k = 1, .t_start = GUIDE_T_START, .t_end = GUIDE_T_END};
}

/* A file of tests/golden; owned. */
static inline struct buf golden(const char *name)
{
    struct buf out = BUF_INIT;
    struct buf path = BUF_INIT;
    buf_printf(&path, "%s/%s", GOLDEN_DIR, name);
    buf_putc(&path, '\0');
    FILE *f = fopen((const char *)path.ptr, "rb");
    if (f == NULL)
        print_error("no golden file %s\n", (const char *)path.ptr);
    CHECK(f != NULL);
    uint8_t piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
        buf_append(&out, piece, n);
    CHECK(fclose(f) == 0);
    buf_deinit(&path);
    return out;
}

static inline void check_sha256(struct span bytes, const char *hex)
{
    uint8_t digest[SHA256_SIZE];
    struct buf text = BUF_INIT;
    sha256(bytes, digest);
    buf_put_hex(&text, span_make(digest, sizeof(digest)));
    CHECK_TEXT(buf_span(&text), hex);
    buf_deinit(&text);
}

/* The whole text compressed, handed over in pieces of `piece` bytes. */
static inline struct buf compressed(enum sink_compression c, struct span text, size_t piece)
{
    struct buf out = BUF_INIT;
    struct lake_compressor *z = lake_compressor_new(c);
    for (size_t at = 0; at < text.len; at += piece)
        lake_compressor_write(z, span_sub(text, at, at + piece < text.len ? at + piece : text.len),
                              &out);
    lake_compressor_end(z, &out);
    lake_compressor_free(z);
    return out;
}

#endif
