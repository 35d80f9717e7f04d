/* Reading a ListObjectsV2 answer. Servers disagree about order, and some encode keys although they
 * were not asked to (`encoding-type=url`, spelled differently), so keys are decoded when the answer
 * says so, filtered, and sorted here. */
#include "s3/s3_answer.h"

#include "base/mem.h"
#include "base/pct.h"
#include "s3/xml.h"

#include <stdlib.h>

struct reading {
    struct buf text;  /* of all keys, one after another */
    struct buf ends;  /* of size_t: where each ends in text */
    struct buf value; /* of another element */
    size_t n;
    bool truncated, encoded;
};

static void put_piece(struct buf *b, const struct xml *x, enum xml_kind kind)
{
    if (kind == XML_CDATA)
        buf_put_span(b, x->text);
    else
        xml_put_text(b, x->text);
}

static void closed(struct reading *l, const struct xml *x, bool is_key)
{
    struct span value = span_trim(buf_span(&l->value));
    if (is_key) {
        buf_append(&l->ends, &l->text.len, sizeof(l->text.len));
        l->n++;
    } else if (x->depth == 1 && span_eq(x->name, SPAN_LIT("IsTruncated"))) {
        l->truncated = span_eq_nocase(value, SPAN_LIT("true"));
    } else if (x->depth == 1 && span_eq(x->name, SPAN_LIT("EncodingType"))) {
        l->encoded = span_eq_nocase(value, SPAN_LIT("url"));
    }
}

static bool scan(struct reading *l, struct span body)
{
    static const char *const key_path[] = {"ListBucketResult", "Contents", "Key"};
    struct xml x = XML_INIT(body);
    bool in_key = false;
    for (;;) {
        enum xml_kind kind = xml_next(&x);
        switch (kind) {
        case XML_OPEN:
            if (x.depth == 1 && !span_eq(x.name, SPAN_LIT("ListBucketResult")))
                return false;
            in_key = xml_is_at(&x, key_path, 3);
            buf_reset(&l->value);
            break;
        case XML_TEXT:
        case XML_CDATA:
            put_piece(in_key && xml_is_at(&x, key_path, 3) ? &l->text : &l->value, &x, kind);
            break;
        case XML_CLOSE:
            closed(l, &x, in_key && span_eq(x.name, SPAN_LIT("Key")) && xml_is_at(&x, key_path, 2));
            buf_reset(&l->value);
            break;
        case XML_END:
            return true;
        case XML_BAD:
            return false;
        }
    }
}

static int compare_keys(const void *a, const void *b)
{
    return span_cmp(*(const struct span *)a, *(const struct span *)b);
}

/* Appends the key as it is; '+' is a blank only where that gives a key below the prefix. */
static struct span put_decoded(struct buf *out, struct span key, struct span prefix)
{
    size_t at = out->len;
    for (int plus_is_space = 1; plus_is_space >= 0; plus_is_space--) {
        out->len = at;
        buf_put_pct_decoded(out, key, plus_is_space);
        if (span_starts_with(span_make(out->ptr + at, out->len - at), prefix))
            break;
    }
    return span_make(out->ptr + at, out->len - at);
}

static size_t drop_twins(struct span *keys, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || !span_eq(keys[kept - 1], keys[i]))
            keys[kept++] = keys[i];
    }
    return kept;
}

static void hand_over(const struct reading *l, struct span prefix, struct span start_after,
                      struct s3_list *out)
{
    size_t from = 0;
    *out = (struct s3_list){.truncated = l->truncated};
    out->keys = MEM_ARRAY(struct span, l->n);
    buf_reserve(&out->out, l->text.len + 1); /* decoding never lengthens: keys stay in place */
    for (size_t i = 0; i < l->n; i++) {
        size_t end;
        memcpy(&end, l->ends.ptr + i * sizeof(end), sizeof(end));
        struct span raw = span_sub(buf_span(&l->text), from, end);
        from = end;
        size_t at = out->out.len;
        struct span key;
        if (l->encoded) {
            key = put_decoded(&out->out, raw, prefix);
        } else {
            buf_put_span(&out->out, raw);
            key = span_make(out->out.ptr + at, raw.len);
        }
        if (key.len > 0 && span_starts_with(key, prefix) && span_cmp(key, start_after) > 0)
            out->keys[out->n_keys++] = key;
    }
    if (out->n_keys > 1)
        qsort(out->keys, out->n_keys, sizeof(*out->keys), compare_keys);
    out->n_keys = drop_twins(out->keys, out->n_keys);
}

bool s3_list_parse(struct span body, struct span prefix, struct span start_after,
                   struct s3_list *out)
{
    struct reading l = {.n = 0};
    bool ok = scan(&l, body);
    if (ok)
        hand_over(&l, prefix, start_after, out);
    buf_deinit(&l.text);
    buf_deinit(&l.ends);
    buf_deinit(&l.value);
    return ok;
}

void s3_list_deinit(struct s3_list *l)
{
    buf_deinit(&l->out);
    mem_free(l->keys);
    *l = (struct s3_list){.n_keys = 0};
}
