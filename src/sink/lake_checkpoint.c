/* Checkpoints (objects.md 9): where each partition is read from behind window k. Only a cache:
 * whatever does not read well is ERR_INVALID and ignored by the caller. */
#include "sink/lake.h"

#include "base/mem.h"
#include "json/json.h"

#include <zstd.h>

#define INFLATED_MAX (512u * 1024 * 1024) /* objects.md 9 */
#define PIECE_SIZE (128u * 1024)
#define DEPTH_MAX 64

/* ---- Writing ---- */

static int compare_rows(const void *a, const void *b)
{
    const struct lake_checkpoint_row *x = *(const struct lake_checkpoint_row *const *)a;
    const struct lake_checkpoint_row *y = *(const struct lake_checkpoint_row *const *)b;
    return span_cmp(x->partition, y->partition);
}

static void put_row(struct buf *out, const struct lake_checkpoint_row *row)
{
    buf_putc(out, '[');
    buf_put_json_string(out, row->partition);
    buf_putc(out, ',');
    buf_put_u64(out, row->next_offset);
    if (row->has_id) {
        buf_puts(out, ",\"");
        buf_put_uuid(out, &row->id);
        buf_putc(out, '"');
    }
    buf_putc(out, ']');
}

void lake_checkpoint_put(struct buf *out, uint64_t k, int64_t t_end,
                         const struct lake_checkpoint_row *rows, size_t n)
{
    const struct lake_checkpoint_row **sorted = MEM_ARRAY(const struct lake_checkpoint_row *, n);
    for (size_t i = 0; i < n; i++)
        sorted[i] = &rows[i];
    if (n > 0)
        qsort(sorted, n, sizeof(*sorted), compare_rows);

    struct lake_compressor *c = lake_compressor_new(SINK_ZSTD);
    struct buf text = BUF_INIT;
    buf_puts(&text, "{\"k\":");
    buf_put_u64(&text, k);
    buf_puts(&text, ",\"tEnd\":");
    buf_put_i64(&text, t_end);
    buf_puts(&text, ",\"positions\":[");
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_putc(&text, ',');
        put_row(&text, sorted[i]);
        if (text.len >= PIECE_SIZE) {
            lake_compressor_write(c, buf_span(&text), out);
            buf_reset(&text);
        }
    }
    buf_puts(&text, "]}");
    lake_compressor_write(c, buf_span(&text), out);
    lake_compressor_end(c, out);
    lake_compressor_free(c);
    buf_deinit(&text);
    mem_free(sorted);
}

/* ---- Reading ---- */

#define TRY_READ(expression)                                                                       \
    do {                                                                                           \
        if ((expression) != ERR_OK)                                                                \
            return ERR_INVALID;                                                                    \
    } while (0)

/* One whole frame and nothing behind it, at most INFLATED_MAX bytes of text. */
static enum err inflate_with(ZSTD_DCtx *d, struct span bytes, struct buf *out)
{
    ZSTD_inBuffer input = {bytes.ptr, bytes.len, 0};
    uint8_t piece[PIECE_SIZE];
    size_t left;
    do {
        ZSTD_outBuffer output = {piece, sizeof(piece), 0};
        size_t before = input.pos;
        left = ZSTD_decompressStream(d, &output, &input);
        if (ZSTD_isError(left))
            return ERR_INVALID;
        TRY_READ(buf_try_append(out, piece, output.pos, INFLATED_MAX));
        if (left > 0 && output.pos == 0 && input.pos == before)
            return ERR_INVALID; /* the frame is cut */
    } while (left > 0);
    return input.pos == input.size ? ERR_OK : ERR_INVALID;
}

static enum err inflate_frame(struct span bytes, struct buf *out)
{
    ZSTD_DCtx *d = ZSTD_createDCtx();
    ASSERT(d != NULL);
    enum err err = inflate_with(d, bytes, out);
    ZSTD_freeDCtx(d);
    return err;
}

static enum err read_row(struct json_reader *r, struct buf *names, struct lake_checkpoint_row *row)
{
    TRY_READ(json_enter_array(r));
    struct json_raw raw;
    bool more;
    for (unsigned i = 0;; i++) {
        TRY_READ(json_next_element(r, &more));
        if (!more)
            return i >= 2 ? ERR_OK : ERR_INVALID;
        TRY_READ(json_take(r, &raw));
        if (i == 0) {
            size_t start = names->len;
            if (raw.type != JSON_STRING)
                return ERR_INVALID;
            TRY_READ(json_string_decode(raw.text, names));
            row->partition = span_make(names->ptr + start, names->len - start);
        } else if (i == 1) {
            if (raw.type != JSON_NUMBER || !json_uint64(raw.text, &row->next_offset))
                return ERR_INVALID;
        } else if (i == 2 && raw.type != JSON_NULL) {
            row->has_id = raw.type == JSON_STRING && raw.text.len == UUID_TEXT_LEN + 2 &&
                          uuid_parse(span_sub(raw.text, 1, raw.text.len - 1), &row->id);
            if (!row->has_id)
                return ERR_INVALID;
        }
    }
}

/* The elements of an array of which the reader is a copy: counts without keeping. */
static enum err count_rows(struct json_reader r, size_t *n_out)
{
    struct json_raw raw;
    bool more;
    size_t n = 0;
    TRY_READ(json_enter_array(&r));
    for (;; n++) {
        TRY_READ(json_next_element(&r, &more));
        if (!more)
            break;
        TRY_READ(json_take(&r, &raw));
    }
    *n_out = n;
    return ERR_OK;
}

static enum err read_rows(struct json_reader *r, struct lake_checkpoint *c)
{
    size_t n;
    bool more;
    TRY(count_rows(*r, &n));
    c->rows = mem_try((n + 1) * sizeof(*c->rows));
    if (c->rows == NULL)
        return ERR_INVALID;
    TRY_READ(json_enter_array(r));
    for (;;) {
        TRY_READ(json_next_element(r, &more));
        if (!more)
            return ERR_OK;
        TRY(read_row(r, &c->text, &c->rows[c->n]));
        c->n++;
    }
}

static enum err read_field(struct json_reader *r, struct span key, struct lake_checkpoint *c,
                           unsigned *seen)
{
    enum { K = 1, T_END = 2, POSITIONS = 4 };
    unsigned field = json_string_is(key, SPAN_LIT("k"))           ? K
                     : json_string_is(key, SPAN_LIT("tEnd"))      ? T_END
                     : json_string_is(key, SPAN_LIT("positions")) ? POSITIONS
                                                                  : 0;
    if ((*seen & field) != 0)
        return ERR_INVALID; /* given twice */
    *seen |= field;
    if (field == POSITIONS)
        return read_rows(r, c);
    struct json_raw raw;
    TRY_READ(json_take(r, &raw));
    if (field == K)
        return raw.type == JSON_NUMBER && json_uint64(raw.text, &c->k) ? ERR_OK : ERR_INVALID;
    if (field == T_END)
        return raw.type == JSON_NUMBER && json_int64(raw.text, &c->t_end) ? ERR_OK : ERR_INVALID;
    return ERR_OK;
}

static enum err read_checkpoint(struct span text, struct lake_checkpoint *c)
{
    struct json_reader r;
    json_reader_init(&r, text, DEPTH_MAX);
    unsigned seen = 0;
    TRY_READ(json_enter_object(&r));
    for (;;) {
        struct json_raw key;
        bool more;
        TRY_READ(json_next_key(&r, &key, &more));
        if (!more)
            break;
        TRY(read_field(&r, key.text, c, &seen));
    }
    TRY_READ(json_end(&r));
    return seen == 7 ? ERR_OK : ERR_INVALID;
}

enum err lake_checkpoint_parse(struct span bytes, struct lake_checkpoint *out)
{
    struct lake_checkpoint c = {0};
    struct buf text = BUF_INIT;
    enum err err = inflate_frame(bytes, &text);
    if (err == ERR_OK) {
        buf_reserve(&c.text, text.len + 1); /* decoded names are never longer: no span moves */
        err = read_checkpoint(buf_span(&text), &c);
    }
    buf_deinit(&text);
    if (err != ERR_OK) {
        lake_checkpoint_deinit(&c);
        return err;
    }
    *out = c;
    return ERR_OK;
}

void lake_checkpoint_deinit(struct lake_checkpoint *c)
{
    if (c == NULL)
        return;
    mem_free(c->rows);
    buf_deinit(&c->text);
    *c = (struct lake_checkpoint){0};
}
