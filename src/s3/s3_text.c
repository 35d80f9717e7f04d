/* Texts of errors. A server may send back whatever it was sent: access key id and signature stand
 * in the body of a SignatureDoesNotMatch. They are taken out of the whole text before it is cut, so
 * that no half of one is left at the cut. */
#include "s3/s3_answer.h"

#include "base/utf8.h"

/* Length of the secret that `text` begins with, 0 when there is none. */
static size_t secret_at(struct span text, const struct span *secrets, size_t n)
{
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        if (secrets[i].len > longest && span_starts_with(text, secrets[i]))
            longest = secrets[i].len;
    }
    return longest;
}

static void put_without_secrets(struct buf *b, struct span text, const struct span *secrets,
                                size_t n)
{
    for (size_t i = 0; i < text.len;) {
        size_t hidden = secret_at(span_sub(text, i, text.len), secrets, n);
        if (hidden > 0)
            buf_puts(b, "***");
        else
            buf_putc(b, text.ptr[i]);
        i += hidden > 0 ? hidden : 1;
    }
}

void s3_answer_text(char out[ERROR_TEXT_MAX], const char *prefix, struct span text,
                    const struct span *secrets, size_t n_secrets)
{
    struct buf raw = BUF_INIT;
    struct buf clean = BUF_INIT;
    int len = snprintf(out, ERROR_TEXT_MAX, "%s", prefix);
    ASSERT(len >= 0 && len < ERROR_TEXT_MAX);

    put_without_secrets(&raw, text, secrets, n_secrets);
    buf_put_utf8_lossy(&clean, span_trim(buf_span(&raw)));
    struct span s = buf_span(&clean);
    size_t at = (size_t)len;
    for (unsigned chars = 0; s.len > 0 && chars < S3_ANSWER_TEXT_CHARS; chars++) {
        size_t size = utf8_sequence(s.ptr, s.len);
        ASSERT(size > 0);
        if (at + size >= ERROR_TEXT_MAX)
            break;
        memcpy(out + at, s.ptr, size);
        if (s.ptr[0] < ' ' || s.ptr[0] == 0x7F)
            out[at] = ' ';
        at += size;
        s = span_sub(s, size, s.len);
    }
    out[at] = '\0';
    buf_deinit(&raw);
    buf_deinit(&clean);
}
