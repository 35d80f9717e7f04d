/* What a failure tells of its cause beside its text: names out of the error document and the head.
 * They are printed in advice to operators, so that only names get through, and no secret. */
#include "s3/s3_answer.h"

#include "base/timefmt.h"
#include "s3/xml.h"

#define SECRET_IN_NAME_MIN 8u

/* ---- Names ---- */

static bool is_name_byte(uint8_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
           c == '_' || c == '.';
}

/* A short key, as of a store on a desk, may stand in any word: it hides only itself, or what a
 * failure means would depend on it. */
static bool shows_secret(struct span name, const struct span *secrets, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct span secret = secrets[i];
        if (secret.len < SECRET_IN_NAME_MIN ? span_eq(name, secret) : span_contains(name, secret))
            return true;
    }
    return false;
}

void s3_clue_copy(char out[BUCKET_CLUE_MAX], struct span name, const struct span *secrets,
                  size_t n_secrets)
{
    out[0] = '\0';
    if (name.len == 0 || name.len >= BUCKET_CLUE_MAX || shows_secret(name, secrets, n_secrets))
        return;
    for (size_t i = 0; i < name.len; i++) {
        if (!is_name_byte(name.ptr[i]))
            return;
    }
    memcpy(out, name.ptr, name.len);
    out[name.len] = '\0';
}

static void copy_element(char out[BUCKET_CLUE_MAX], const struct s3_answer *a,
                         const struct s3_expect *e, const char *name)
{
    struct buf text = BUF_INIT;
    (void)xml_find(buf_span(&a->body), name, 0, &text, NULL); /* empty when there is none */
    s3_clue_copy(out, span_trim(buf_span(&text)), e->secrets, e->n_secrets);
    buf_deinit(&text);
}

/* `the region 'a' is wrong; expecting 'b'`: not every server has an element for b. */
static void copy_expected_region(char out[BUCKET_CLUE_MAX], const struct s3_answer *a,
                                 const struct s3_expect *e)
{
    static const char before[] = "expecting '";
    struct buf text = BUF_INIT;
    (void)xml_find(buf_span(&a->body), "Message", 0, &text, NULL);
    struct span s = buf_span(&text);
    const uint8_t *at = s.len > 0 ? memmem(s.ptr, s.len, before, strlen(before)) : NULL;
    if (at != NULL) {
        s = span_sub(s, (size_t)(at - s.ptr) + strlen(before), s.len);
        const uint8_t *end = s.len > 0 ? memchr(s.ptr, '\'', s.len) : NULL;
        if (end != NULL)
            s3_clue_copy(out, span_make(s.ptr, (size_t)(end - s.ptr)), e->secrets, e->n_secrets);
    }
    buf_deinit(&text);
}

void s3_clue_read(const struct s3_answer *a, const struct s3_expect *e, struct bucket_clue *out)
{
    *out = (struct bucket_clue){
        .silence = BUCKET_ANSWERED,
        .server_us = a->server_us,
        .to_https = a->to_https,
        .lists_buckets = xml_has_root(buf_span(&a->body), "ListAllMyBucketsResult"),
    };
    copy_element(out->code, a, e, "Code");
    copy_element(out->bucket, a, e, "BucketName");
    s3_clue_copy(out->region, span_str(a->region), e->secrets, e->n_secrets);
    if (out->region[0] == '\0')
        copy_element(out->region, a, e, "Region");
    if (out->region[0] == '\0')
        copy_expected_region(out->region, a, e);
}

/* ---- Dates ---- */

static unsigned month_of(struct span name)
{
    static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (unsigned i = 0; i < 12; i++) {
        if (span_eq(name, span_make(names + (size_t)3 * i, 3)))
            return i + 1;
    }
    return 0;
}

int64_t s3_date_parse(struct span text)
{
    /* Mon, 30 Nov 2026 18:02:50 GMT
     * 0    5  8   12   17       26 */
    int64_t us = 0;
    if (text.len != 29 || !span_eq(span_sub(text, 25, 29), SPAN_LIT(" GMT")))
        return 0;
    struct buf iso = BUF_INIT;
    buf_put_span(&iso, span_sub(text, 12, 16));
    buf_putc(&iso, '-');
    buf_put_padded(&iso, month_of(span_sub(text, 8, 11)), 2); /* 00 is no month */
    buf_putc(&iso, '-');
    buf_put_span(&iso, span_sub(text, 5, 7));
    buf_putc(&iso, 'T');
    buf_put_span(&iso, span_sub(text, 17, 25));
    buf_putc(&iso, 'Z');
    if (!time_parse_iso(buf_span(&iso), &us))
        us = 0;
    buf_deinit(&iso);
    return us;
}
