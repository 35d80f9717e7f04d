/* AWS Signature Version 4; what is signed and how it is spelled is in sigv4.h.
 *
 * Canonical request:  method, path, query, one `name:value` line a header, signed names, payload
 * String to sign:     AWS4-HMAC-SHA256, date, <day>/<region>/s3/aws4_request, hash of the above
 * Signing key:        HMAC chain over "AWS4" + secret: day, region, s3, aws4_request */
#include "s3/sigv4.h"

#include "base/hash.h"
#include "base/timefmt.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#define PARAMS_MAX 16
#define DAY_LEN 8 /* the first bytes of the date */
#define SERVICE "s3"
#define ALGORITHM "AWS4-HMAC-SHA256"

static bool is_unreserved(uint8_t c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void sigv4_put_encoded(struct buf *b, struct span raw, bool keep_slash)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < raw.len; i++) {
        uint8_t c = raw.ptr[i];
        if (is_unreserved(c) || (c == '/' && keep_slash)) {
            buf_putc(b, c);
            continue;
        }
        buf_putc(b, '%');
        buf_putc(b, (uint8_t)hex[c >> 4]);
        buf_putc(b, (uint8_t)hex[c & 15]);
    }
}

static int compare_encoded(const void *a, const void *b)
{
    const struct sigv4_pair *x = a;
    const struct sigv4_pair *y = b;
    int order = span_cmp(x->name, y->name);
    return order != 0 ? order : span_cmp(x->value, y->value);
}

void sigv4_put_query(struct buf *b, const struct sigv4_pair *params, size_t n)
{
    struct sigv4_pair list[PARAMS_MAX];
    size_t ends[2 * PARAMS_MAX + 1] = {0};
    struct buf text = BUF_INIT;
    ASSERT(n <= PARAMS_MAX);
    for (size_t i = 0; i < n; i++) {
        sigv4_put_encoded(&text, params[i].name, false);
        ends[2 * i + 1] = text.len;
        sigv4_put_encoded(&text, params[i].value, false);
        ends[2 * i + 2] = text.len;
    }
    struct span all = buf_span(&text);
    for (size_t i = 0; i < n; i++) {
        list[i].name = span_sub(all, ends[2 * i], ends[2 * i + 1]);
        list[i].value = span_sub(all, ends[2 * i + 1], ends[2 * i + 2]);
    }
    if (n > 1)
        qsort(list, n, sizeof(list[0]), compare_encoded);
    for (size_t i = 0; i < n; i++) {
        buf_puts(b, i > 0 ? "&" : "");
        buf_put_span(b, list[i].name);
        buf_putc(b, '=');
        buf_put_span(b, list[i].value);
    }
    buf_deinit(&text);
}

void sigv4_date(int64_t wall_us, char out[SIGV4_DATE_SIZE])
{
    struct buf iso = BUF_INIT; /* 2026-10-03T06:37:37.501942Z */
    size_t len = 0;
    buf_put_iso_us(&iso, wall_us);
    for (size_t i = 0; i < iso.len && len < SIGV4_DATE_SIZE - 2; i++) {
        if (iso.ptr[i] != '-' && iso.ptr[i] != ':')
            out[len++] = (char)iso.ptr[i];
    }
    out[len++] = 'Z';
    out[len] = '\0';
    buf_deinit(&iso);
}

static void put_signed_names(struct buf *b, const struct sigv4_request *r)
{
    for (size_t i = 0; i < r->n_headers; i++) {
        buf_puts(b, i > 0 ? ";" : "");
        buf_put_span(b, r->headers[i].name);
    }
}

/* Without blanks at the ends; runs of blanks inside become one. */
static void put_header_value(struct buf *b, struct span value)
{
    bool blank = false;
    value = span_trim(value);
    for (size_t i = 0; i < value.len; i++) {
        bool is_blank = value.ptr[i] == ' ' || value.ptr[i] == '\t';
        if (!is_blank)
            buf_putc(b, value.ptr[i]);
        else if (!blank)
            buf_putc(b, ' ');
        blank = is_blank;
    }
}

void sigv4_put_canonical(struct buf *b, const struct sigv4_request *r)
{
    buf_puts(b, r->method);
    buf_putc(b, '\n');
    buf_put_span(b, r->path);
    buf_putc(b, '\n');
    buf_put_span(b, r->query);
    buf_putc(b, '\n');
    for (size_t i = 0; i < r->n_headers; i++) {
        buf_put_span(b, r->headers[i].name);
        buf_putc(b, ':');
        put_header_value(b, r->headers[i].value);
        buf_putc(b, '\n');
    }
    buf_putc(b, '\n');
    put_signed_names(b, r);
    buf_putc(b, '\n');
    buf_put_span(b, r->payload);
}

static void hmac(struct span key, struct span text, uint8_t out[SHA256_SIZE])
{
    unsigned len = 0;
    ASSERT(HMAC(EVP_sha256(), key.ptr, (int)key.len, text.ptr, text.len, out, &len) != NULL);
    ASSERT(len == SHA256_SIZE);
}

static void signing_key(const struct sigv4_key *key, struct span day, uint8_t out[SHA256_SIZE])
{
    struct buf secret = BUF_INIT;
    uint8_t next[SHA256_SIZE];
    buf_puts(&secret, "AWS4");
    buf_put_span(&secret, key->secret);
    hmac(buf_span(&secret), day, out);
    hmac(span_make(out, SHA256_SIZE), key->region, next);
    hmac(span_make(next, sizeof(next)), SPAN_LIT(SERVICE), out);
    hmac(span_make(out, SHA256_SIZE), SPAN_LIT("aws4_request"), next);
    memcpy(out, next, sizeof(next));
    OPENSSL_cleanse(secret.ptr, secret.len);
    OPENSSL_cleanse(next, sizeof(next));
    buf_deinit(&secret);
}

static void put_scope(struct buf *b, const struct sigv4_key *key, struct span day)
{
    buf_put_span(b, day);
    buf_putc(b, '/');
    buf_put_span(b, key->region);
    buf_puts(b, "/" SERVICE "/aws4_request");
}

void sigv4_put_authorization(struct buf *b, const struct sigv4_key *key,
                             const struct sigv4_request *r,
                             char signature_out[SIGV4_SIGNATURE_SIZE])
{
    struct span day = span_make(r->date, DAY_LEN);
    struct buf text = BUF_INIT;
    uint8_t digest[SHA256_SIZE];

    sigv4_put_canonical(&text, r);
    sha256(buf_span(&text), digest);
    buf_reset(&text);
    buf_printf(&text, ALGORITHM "\n%s\n", r->date);
    put_scope(&text, key, day);
    buf_putc(&text, '\n');
    buf_put_hex(&text, span_make(digest, sizeof(digest)));
    uint8_t secret[SHA256_SIZE];
    signing_key(key, day, secret);
    hmac(span_make(secret, sizeof(secret)), buf_span(&text), digest);
    OPENSSL_cleanse(secret, sizeof(secret));

    buf_reset(&text);
    buf_put_hex(&text, span_make(digest, sizeof(digest)));
    memcpy(signature_out, text.ptr, text.len);
    signature_out[text.len] = '\0';
    buf_puts(b, ALGORITHM " Credential=");
    buf_put_span(b, key->access);
    buf_putc(b, '/');
    put_scope(b, key, day);
    buf_puts(b, ", SignedHeaders=");
    put_signed_names(b, r);
    buf_printf(b, ", Signature=%s", signature_out);
    buf_deinit(&text);
}
