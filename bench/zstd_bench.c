/* The limit of the sink: zstd -3 alone on the same bytes.
 *
 *   zstd_bench [--runs=3] --files=A.jsonl.zst,B.jsonl.zst
 *
 * Takes objects that the sink wrote, decompresses them into memory, and compresses the text again as
 * the sink does, as one stream of level 3. Time of this thread's CPU; the best of the runs. The
 * result must be the object, byte for byte: so it is the same work. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zstd.h>

#define PIECE (256u << 10) /* handed over at once */

struct bytes {
    char *ptr;
    size_t len;
};

static struct bytes read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        bench_die("%s: cannot be read", path);
    fseek(f, 0, SEEK_END);
    struct bytes b = {.len = (size_t)ftell(f)};
    rewind(f);
    b.ptr = malloc(b.len + 1);
    if (fread(b.ptr, 1, b.len, f) != b.len)
        bench_die("%s: cannot be read", path);
    fclose(f);
    return b;
}

static struct bytes decompress(struct bytes in)
{
    ZSTD_DCtx *d = ZSTD_createDCtx();
    struct bytes out = {.ptr = NULL};
    ZSTD_inBuffer from = {in.ptr, in.len, 0};
    size_t cap = 0, left = 1;
    while (left > 0 && from.pos < from.size) {
        if (cap - out.len < (1u << 20))
            out.ptr = realloc(out.ptr, cap = 2 * cap + (4u << 20));
        ZSTD_outBuffer to = {out.ptr, cap, out.len};
        left = ZSTD_decompressStream(d, &to, &from);
        if (ZSTD_isError(left))
            bench_die("not a zstd object: %s", ZSTD_getErrorName(left));
        out.len = to.pos;
    }
    ZSTD_freeDCtx(d);
    return out;
}

static struct bytes compress(ZSTD_CCtx *c, struct bytes text, char *room, size_t cap)
{
    ZSTD_outBuffer to = {room, cap, 0};
    ZSTD_CCtx_reset(c, ZSTD_reset_session_only);
    for (size_t at = 0; at < text.len; at += PIECE) {
        size_t len = text.len - at < PIECE ? text.len - at : PIECE;
        ZSTD_inBuffer from = {text.ptr + at, len, 0};
        while (from.pos < from.size)
            ZSTD_compressStream2(c, &to, &from, ZSTD_e_continue);
    }
    ZSTD_inBuffer none = {NULL, 0, 0};
    if (ZSTD_compressStream2(c, &to, &none, ZSTD_e_end) != 0)
        bench_die("no room for the result");
    return (struct bytes){room, to.pos};
}

int main(int argc, char **argv)
{
    unsigned runs = (unsigned)bench_number(argc, argv, "runs", 3);
    char *files = strdup(bench_text(argc, argv, "files", ""));
    bench_arguments_end(argc, argv);
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, 3);
    double seconds = 0;
    size_t text_bytes = 0, object_bytes = 0;
    bool same = true;
    for (char *rest = files, *path; (path = strsep(&rest, ",")) != NULL;) {
        struct bytes object = read_file(path), text = decompress(object);
        size_t cap = ZSTD_compressBound(text.len);
        char *room = malloc(cap);
        double best = 1e9;
        for (unsigned i = 0; i < runs; i++) {
            double start = bench_thread_cpu();
            struct bytes again = compress(c, text, room, cap);
            double took = bench_thread_cpu() - start;
            best = took < best ? took : best;
            same =
                same && again.len == object.len && memcmp(again.ptr, object.ptr, object.len) == 0;
        }
        seconds += best;
        text_bytes += text.len;
        object_bytes += object.len;
        free(room);
        free(text.ptr);
        free(object.ptr);
    }
    printf("zstd text_mb=%.1f ratio=%.2f cpu_s=%.3f cpu_s_per_gb=%.3f mb_per_s=%.1f same=%s\n",
           (double)text_bytes / 1e6, (double)text_bytes / (double)object_bytes, seconds,
           seconds / (double)text_bytes * 1e9, (double)text_bytes / 1e6 / seconds,
           same ? "yes" : "NO");
    return same ? 0 : 1;
}
