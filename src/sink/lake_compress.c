/* Compressing one object as a stream (objects.md 4, pinned), and who wrote it (objects.md 6).
 *
 * Bytes must be a function of the text alone, whatever pieces it arrives in. zstd's streaming
 * interface promises that as long as nothing is flushed in between and the last call brings no
 * input. zlib gets its input in pieces of one fixed size.
 *
 * Bytes also depend on the library's version: lake_compressor_known() compares what this one makes
 * of a generated text with the digests below, which are those of zstd 1.5.4 and zlib 1.2.13. */
#include "sink/lake.h"

#include "base/err.h"
#include "base/mem.h"

#include <zlib.h>
#include <zstd.h>

#define ZSTD_LEVEL 3
#define GZIP_LEVEL 6
#define GZIP_WINDOW_BITS (15 + 16) /* 32 KiB; 16 asks zlib for a gzip header */
#define GZIP_MEM_LEVEL 8
#define GZIP_OS_UNKNOWN 255
#define PIECE_SIZE (64u * 1024) /* of zlib's input, and of room for output */

struct lake_compressor {
    enum sink_compression compression;
    ZSTD_CCtx *zstd;
    z_stream gzip;
    gz_header header;
    struct buf staged; /* input for zlib, below PIECE_SIZE */
};

struct lake_compressor *lake_compressor_new(enum sink_compression compression)
{
    struct lake_compressor *c = mem_new(sizeof(*c));
    c->compression = compression;
    switch (compression) {
    case SINK_ZSTD:
        c->zstd = ZSTD_createCCtx();
        ASSERT(c->zstd != NULL);
        ASSERT(!ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)));
        ASSERT(!ZSTD_isError(ZSTD_CCtx_setParameter(c->zstd, ZSTD_c_checksumFlag, 0)));
        break;
    case SINK_GZIP:
        ASSERT(deflateInit2(&c->gzip, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW_BITS, GZIP_MEM_LEVEL,
                            Z_DEFAULT_STRATEGY) == Z_OK);
        c->header.os = GZIP_OS_UNKNOWN;
        ASSERT(deflateSetHeader(&c->gzip, &c->header) == Z_OK);
        break;
    case SINK_NONE:
        break;
    }
    return c;
}

void lake_compressor_free(struct lake_compressor *c)
{
    if (c == NULL)
        return;
    ZSTD_freeCCtx(c->zstd); /* NULL is allowed */
    if (c->compression == SINK_GZIP)
        (void)deflateEnd(&c->gzip); /* an unfinished stream is no error here */
    buf_deinit(&c->staged);
    mem_free(c);
}

/* Runs zstd until the input is used up, or with ZSTD_e_end until the frame is written. */
static void run_zstd(struct lake_compressor *c, struct span in, ZSTD_EndDirective mode,
                     struct buf *out)
{
    ZSTD_inBuffer input = {in.ptr, in.len, 0};
    size_t left;
    do {
        size_t before = out->len;
        ZSTD_outBuffer output = {buf_extend(out, PIECE_SIZE), PIECE_SIZE, 0};
        left = ZSTD_compressStream2(c->zstd, &output, &input, mode);
        ASSERT(!ZSTD_isError(left)); /* only short memory could be the reason */
        out->len = before + output.pos;
    } while (mode == ZSTD_e_end ? left > 0 : input.pos < input.size);
}

static void run_gzip(struct lake_compressor *c, struct span in, int flush, struct buf *out)
{
    c->gzip.next_in = (Bytef *)(uintptr_t)in.ptr; /* zlib only reads */
    c->gzip.avail_in = (uInt)in.len;
    int result;
    do {
        size_t before = out->len;
        c->gzip.next_out = buf_extend(out, PIECE_SIZE);
        c->gzip.avail_out = PIECE_SIZE;
        result = deflate(&c->gzip, flush);
        ASSERT(result != Z_STREAM_ERROR);
        out->len = before + PIECE_SIZE - c->gzip.avail_out;
    } while (flush == Z_FINISH ? result != Z_STREAM_END : c->gzip.avail_out == 0);
}

static void write_gzip(struct lake_compressor *c, struct span in, struct buf *out)
{
    while (in.len > 0) {
        size_t room = PIECE_SIZE - c->staged.len;
        size_t len = in.len < room ? in.len : room;
        buf_append(&c->staged, in.ptr, len);
        in = span_sub(in, len, in.len);
        if (c->staged.len == PIECE_SIZE) {
            run_gzip(c, buf_span(&c->staged), Z_NO_FLUSH, out);
            buf_reset(&c->staged);
        }
    }
}

void lake_compressor_write(struct lake_compressor *c, struct span in, struct buf *out)
{
    switch (c->compression) {
    case SINK_ZSTD:
        if (in.len > 0)
            run_zstd(c, in, ZSTD_e_continue, out);
        break;
    case SINK_GZIP:
        write_gzip(c, in, out);
        break;
    case SINK_NONE:
        buf_put_span(out, in);
        break;
    }
}

void lake_compressor_end(struct lake_compressor *c, struct buf *out)
{
    switch (c->compression) {
    case SINK_ZSTD:
        run_zstd(c, (struct span){0}, ZSTD_e_end, out);
        break;
    case SINK_GZIP:
        run_gzip(c, buf_span(&c->staged), Z_FINISH, out);
        break;
    case SINK_NONE:
        break;
    }
}

/* ---- Self-check ---- */

#define CHECK_TEXT_SIZE (4u * 1024 * 1024)

static const uint8_t known_zstd[SHA256_SIZE] = {
    0x91, 0xAB, 0x3B, 0x15, 0x27, 0x0F, 0xDF, 0x1F, 0xCC, 0xBF, 0x24, 0xCF, 0x0D, 0x8F, 0xE4, 0xF5,
    0x45, 0x74, 0xC6, 0x71, 0x61, 0x29, 0xEA, 0x4E, 0x39, 0xFB, 0xC1, 0xC2, 0x33, 0x2D, 0x23, 0x04};
static const uint8_t known_gzip[SHA256_SIZE] = {
    0xF2, 0xA6, 0x8C, 0xAB, 0xBC, 0x45, 0x97, 0x07, 0x4E, 0x4F, 0x81, 0xE6, 0x5C, 0x26, 0x9A, 0x0F,
    0xF0, 0x34, 0x41, 0x38, 0x07, 0xE8, 0x7F, 0x82, 0x2D, 0x91, 0xC4, 0xDE, 0xD5, 0xA2, 0xE6, 0xCC};

/* Lines like a lake's, from a fixed linear congruential generator (Knuth's MMIX constants). */
static void put_check_text(struct buf *out)
{
    static const char *const words[] = {"new",      "paid",          "shipped",
                                        "returned", "Z\xC3\xBCrich", "a longer word that repeats",
                                        "0",        "42.00"};
    uint64_t state = 1;
    for (uint64_t i = 0; out->len < CHECK_TEXT_SIZE; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t x = state >> 16;
        buf_puts(out, "{\"partition\":\"cust-");
        buf_put_u64(out, x % 97);
        buf_puts(out, "\",\"offset\":");
        buf_put_u64(out, i);
        buf_puts(out, ",\"payload\":{\"order\":");
        buf_put_u64(out, x >> 20);
        buf_puts(out, ",\"status\":\"");
        buf_puts(out, words[x / 97 % 8]);
        buf_puts(out, "\"}}\n");
    }
    out->len = CHECK_TEXT_SIZE;
}

static bool check(enum sink_compression compression, const uint8_t known[SHA256_SIZE])
{
    struct buf text = BUF_INIT;
    struct buf out = BUF_INIT;
    put_check_text(&text);
    struct lake_compressor *c = lake_compressor_new(compression);
    lake_compressor_write(c, buf_span(&text), &out);
    lake_compressor_end(c, &out);
    uint8_t digest[SHA256_SIZE];
    sha256(buf_span(&out), digest);
    lake_compressor_free(c);
    buf_deinit(&text);
    buf_deinit(&out);
    return memcmp(digest, known, SHA256_SIZE) == 0;
}

enum { UNCHECKED, KNOWN, UNKNOWN };

/* Checked at the first call; two threads that come at once both check, with one result. */
static bool check_once(atomic_int *state, enum sink_compression compression,
                       const uint8_t known[SHA256_SIZE])
{
    int seen = atomic_load(state);
    if (seen == UNCHECKED) {
        seen = check(compression, known) ? KNOWN : UNKNOWN;
        atomic_store(state, seen);
    }
    return seen == KNOWN;
}

bool lake_compressor_known(enum sink_compression compression)
{
    static atomic_int zstd_state = UNCHECKED;
    static atomic_int gzip_state = UNCHECKED;
    switch (compression) {
    case SINK_ZSTD:
        return check_once(&zstd_state, compression, known_zstd);
    case SINK_GZIP:
        return check_once(&gzip_state, compression, known_gzip);
    case SINK_NONE:
        break;
    }
    return true;
}

void lake_writer(struct buf *out, enum sink_format f, enum sink_compression compression, bool raw)
{
    ASSERT(f == SINK_JSONL); /* Parquet is not built yet */
    buf_puts(out, "queen-s3/" SINK_VERSION " jsonl");
    if (compression != SINK_NONE)
        buf_printf(out, "+%s", sink_compression_name(compression));
    if (!lake_compressor_known(compression)) {
        if (compression == SINK_ZSTD)
            buf_printf(out, " zstd/%s", ZSTD_versionString());
        else
            buf_printf(out, " zlib/%s", zlibVersion());
    }
    if (raw)
        buf_puts(out, " raw");
}
