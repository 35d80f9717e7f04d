/* Fuzz target of what an S3 server answers: heads, XML bodies, lists, texts of errors.
 *
 * The first byte says what was asked; the rest is the answer as it comes from a socket, or, when it
 * has no head, the body of a 200. Checked on any bytes: nothing crashes; outcomes, texts and values
 * keep what they promise. */
#include "fuzz/fuzz.h"

#include "base/utf8.h"
#include "s3/s3_answer.h"

static void check_list(const struct s3_list *l, struct span prefix, struct span after)
{
    for (size_t i = 0; i < l->n_keys; i++) {
        ASSERT(span_starts_with(l->keys[i], prefix));
        ASSERT(span_cmp(l->keys[i], after) > 0);
        ASSERT(i == 0 || span_cmp(l->keys[i - 1], l->keys[i]) < 0);
        ASSERT(l->keys[i].ptr >= l->out.ptr &&
               l->keys[i].ptr + l->keys[i].len <= l->out.ptr + l->out.len);
    }
}

/* Names only, and no secret: they are printed in advice. */
static void check_name(const char *name, struct span secret)
{
    ASSERT(strlen(name) < BUCKET_CLUE_MAX);
    ASSERT(strstr(name, (const char *)secret.ptr) == NULL);
    ASSERT(strspn(name, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_.") ==
           strlen(name));
}

static void check_verdict(const struct s3_verdict *v, enum s3_call call, struct span secret)
{
    struct span error = span_str(v->error);
    ASSERT((error.len == 0) == (v->outcome == BUCKET_OK || v->outcome == BUCKET_ABSENT));
    ASSERT(utf8_valid(error));
    ASSERT(memmem(error.ptr, error.len, secret.ptr, secret.len) == NULL);
    check_name(v->clue.code, secret);
    check_name(v->clue.region, secret);
    check_name(v->clue.bucket, secret);
    ASSERT(!v->upload_gone || v->outcome == BUCKET_RETRIABLE);
    if (v->outcome == BUCKET_OK && (call == S3_MULTIPART_CREATE || call == S3_MULTIPART_PART))
        ASSERT(v->value.len > 0 && v->value.len <= S3_ANSWER_VALUE_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct span secret = SPAN_LIT("AKID7EXAMPLE"); /* a short key may stand in any name */
    struct span bytes = span_make(data + 1, size - 1);
    struct s3_answer a = {.code = 0};
    struct s3_verdict v = {.outcome = BUCKET_OK};
    struct s3_expect e = {.call = (enum s3_call)(data[0] % S3_CALLS),
                          .body_sent = data[0] < 128,
                          .md5_hex = SPAN_LIT("5d41402abc4b2a76b9719d911017c592"),
                          .parts = 3,
                          .prefix = SPAN_LIT("p/"),
                          .after = SPAN_LIT("p/0"),
                          .secrets = &secret,
                          .n_secrets = 1};
    if (!s3_answer_parse_raw(&a, bytes)) {
        s3_answer_reset(&a);
        s3_answer_header(&a, SPAN_LIT("HTTP/1.1 200 OK"));
        s3_answer_header(&a, SPAN_LIT("\r\n"));
        buf_put_span(&a.body, bytes);
    }
    ASSERT(a.head_done && a.code >= 200);
    s3_answer_judge(&a, &e, &v);
    check_verdict(&v, e.call, secret);
    check_list(&v.list, e.prefix, e.after);
    s3_verdict_deinit(&v);
    s3_answer_deinit(&a);
    return 0;
}
