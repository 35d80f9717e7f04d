/* Judging answers. The order matters: what the status says, then what the body says (a 200 may
 * carry an error), then whether what came is whole and the same as what was sent.
 *
 * Error texts have the forms of objects.md 10: `status <code>: <body>`, `body: ..`,
 * `integrity: ..`; `transport: ..` is the client's. */
#include "s3/s3_answer.h"

#include "base/bytes.h"
#include "s3/xml.h"

#define RETRY_AFTER_MAX_S UINT64_C(86400) /* a longer one is as good as none */

/* ---- The head ---- */

void s3_answer_reset(struct s3_answer *a)
{
    a->code = 0;
    a->head_done = false;
    a->kms = false;
    a->retry_after_us = -1;
    a->region[0] = '\0';
    a->server_us = 0;
    a->to_https = false;
    buf_reset(&a->etag);
    buf_reset(&a->body);
}

void s3_answer_deinit(struct s3_answer *a)
{
    buf_deinit(&a->etag);
    buf_deinit(&a->body);
}

static struct span strip_quotes(struct span etag)
{
    etag = span_trim(etag);
    if (span_starts_with(etag, SPAN_LIT("W/")))
        etag = span_sub(etag, 2, etag.len);
    while (etag.len > 0 && etag.ptr[0] == '"')
        etag = span_sub(etag, 1, etag.len);
    while (etag.len > 0 && etag.ptr[etag.len - 1] == '"')
        etag.len--;
    return etag;
}

/* HTTP/1.1 200 OK: RFC 9112 4. */
static unsigned status_of(struct span line)
{
    const uint8_t *blank = memchr(line.ptr, ' ', line.len);
    uint64_t code;
    if (blank == NULL || line.ptr + line.len - blank < 4 ||
        !span_parse_u64(span_make(blank + 1, 3), &code))
        return 0;
    return (unsigned)code;
}

static void header_value(struct s3_answer *a, struct span name, struct span value)
{
    uint64_t seconds;
    if (span_eq_nocase(name, SPAN_LIT("etag")) && value.len <= S3_ANSWER_VALUE_MAX) {
        buf_reset(&a->etag);
        buf_put_span(&a->etag, strip_quotes(value));
    } else if (span_eq_nocase(name, SPAN_LIT("retry-after"))) {
        if (span_parse_u64(value, &seconds) && seconds <= RETRY_AFTER_MAX_S)
            a->retry_after_us = (int64_t)seconds * 1000000;
    } else if (span_eq_nocase(name, SPAN_LIT("x-amz-server-side-encryption"))) {
        a->kms = span_starts_with(value, SPAN_LIT("aws:kms"));
    } else if (span_eq_nocase(name, SPAN_LIT("x-amz-bucket-region"))) {
        s3_clue_copy(a->region, value, NULL, 0);
    } else if (span_eq_nocase(name, SPAN_LIT("date"))) {
        a->server_us = s3_date_parse(value);
    } else if (span_eq_nocase(name, SPAN_LIT("location"))) {
        a->to_https = span_starts_with(value, SPAN_LIT("https://"));
    }
}

void s3_answer_header(struct s3_answer *a, struct span line)
{
    while (line.len > 0 && (line.ptr[line.len - 1] == '\n' || line.ptr[line.len - 1] == '\r'))
        line.len--;
    if (span_starts_with(line, SPAN_LIT("HTTP/"))) {
        s3_answer_reset(a);
        a->code = status_of(line);
        return;
    }
    if (line.len == 0) {
        a->head_done = a->code >= 200;
        return;
    }
    const uint8_t *colon = memchr(line.ptr, ':', line.len);
    if (colon == NULL)
        return;
    size_t len = (size_t)(colon - line.ptr);
    header_value(a, span_trim(span_sub(line, 0, len)),
                 span_trim(span_sub(line, len + 1, line.len)));
}

bool s3_answer_parse_raw(struct s3_answer *a, struct span bytes)
{
    s3_answer_reset(a);
    if (!span_starts_with(bytes, SPAN_LIT("HTTP/1.")))
        return false;
    while (!a->head_done && bytes.len > 0) {
        const uint8_t *end = memchr(bytes.ptr, '\n', bytes.len);
        if (end == NULL)
            return false;
        size_t len = (size_t)(end - bytes.ptr) + 1;
        s3_answer_header(a, span_sub(bytes, 0, len));
        bytes = span_sub(bytes, len, bytes.len);
    }
    buf_put_span(&a->body,
                 span_sub(bytes, 0, bytes.len < S3_ANSWER_KEPT ? bytes.len : S3_ANSWER_KEPT));
    return a->head_done;
}

/* ---- Verdicts ---- */

void s3_verdict_reset(struct s3_verdict *v)
{
    v->outcome = BUCKET_OK;
    v->upload_gone = false;
    v->error[0] = '\0';
    v->clue = (struct bucket_clue){.silence = BUCKET_ANSWERED};
    buf_reset(&v->value);
    s3_list_deinit(&v->list);
}

void s3_verdict_deinit(struct s3_verdict *v)
{
    buf_deinit(&v->value);
    s3_list_deinit(&v->list);
}

static void say(struct s3_verdict *v, const struct s3_expect *e, const char *form, struct span text)
{
    s3_answer_text(v->error, form, text, e->secrets, e->n_secrets);
}

static void unreadable(struct s3_verdict *v, const struct s3_expect *e, const char *what)
{
    v->outcome = BUCKET_RETRIABLE;
    say(v, e, "body: ", span_str(what));
}

/* The body's beginning; the code in front when it stands behind that. */
static void status_text(struct s3_verdict *v, const struct s3_answer *a, const struct s3_expect *e)
{
    char form[BUCKET_CLUE_MAX + 32];
    char note[BUCKET_CLUE_MAX + 32];
    const char *code = v->clue.code;
    struct span text = span_trim(buf_span(&a->body));
    (void)snprintf(form, sizeof(form), "status %u: ", a->code); /* fits */
    if (text.len == 0 && a->region[0] != '\0') { /* a HEAD has nothing else to tell */
        (void)snprintf(note, sizeof(note), "the bucket is in region %s", a->region); /* fits */
        text = span_str(note);
    }
    say(v, e, form, text);
    if (code[0] != '\0' && strstr(v->error, code) == NULL) {
        (void)snprintf(form, sizeof(form), "status %u: %s: ", a->code, code); /* fits */
        say(v, e, form, text);
    }
}

static bool is_one_of(struct span code, const char *const *codes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (span_eq(code, span_str(codes[i])))
            return true;
    }
    return false;
}

/* In the body of a 200. */
static bool is_passing_code(struct span code)
{
    static const char *const codes[] = {"InternalError", "SlowDown", "ServiceUnavailable",
                                        "RequestTimeout"};
    return is_one_of(code, codes, sizeof(codes) / sizeof(codes[0]));
}

/* Of a 400 that tells of the way the body took, not of what it is: late, short, damaged. */
static bool is_about_the_way(struct span code)
{
    static const char *const codes[] = {"RequestTimeout", "IncompleteBody", "BadDigest",
                                        "XAmzContentSHA256Mismatch"};
    return is_one_of(code, codes, sizeof(codes) / sizeof(codes[0]));
}

static bool uses_upload(enum s3_call call)
{
    return call == S3_MULTIPART_PART || call == S3_MULTIPART_COMPLETE;
}

static bool is_retriable_status(const struct s3_answer *a, const struct s3_expect *e,
                                struct span error_code)
{
    unsigned code = a->code;
    if (code == 408 || code == 429 || code >= 500)
        return true;
    return code == 400 &&
           ((s3_call_has_body(e->call) && !e->body_sent) || is_about_the_way(error_code));
}

/* Is a 404 with this code about something else than the object: the bucket, or who asks? */
static bool is_no_object_at_all(struct span code)
{
    return span_eq(code, SPAN_LIT("NoSuchBucket")) || span_eq(code, SPAN_LIT("XAdminUserNotFound"));
}

/* Any status that is no success. */
static void judge_status(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v)
{
    struct span name = span_str(v->clue.code);
    bool reads = e->call == S3_HEAD || e->call == S3_GET;
    if (a->code == 404 && e->call == S3_MULTIPART_ABORT) {
        v->outcome = BUCKET_OK; /* it is gone: what was asked for */
    } else if (a->code == 404 && reads && !is_no_object_at_all(name)) {
        v->outcome = BUCKET_ABSENT;
    } else {
        v->upload_gone = uses_upload(e->call) && span_eq(name, SPAN_LIT("NoSuchUpload"));
        v->outcome =
            v->upload_gone || is_retriable_status(a, e, name) ? BUCKET_RETRIABLE : BUCKET_TERMINAL;
        status_text(v, a, e);
    }
}

/* An error in the body of a success. */
static void judge_error_document(const struct s3_answer *a, const struct s3_expect *e,
                                 struct span error_code, struct s3_verdict *v)
{
    s3_clue_read(a, e, &v->clue);
    v->upload_gone = uses_upload(e->call) && span_eq(error_code, SPAN_LIT("NoSuchUpload"));
    v->outcome = v->upload_gone || is_passing_code(error_code) ? BUCKET_RETRIABLE : BUCKET_TERMINAL;
    status_text(v, a, e);
}

static bool is_hex(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (hex_value(s.ptr[i]) < 0)
            return false;
    }
    return true;
}

static void judge_put(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v)
{
    struct span etag = buf_span(&a->etag);
    if (e->md5_hex.len == 0 || a->kms || etag.len != 32 || !is_hex(etag) ||
        span_eq_nocase(etag, e->md5_hex))
        return;
    char text[128];
    (void)snprintf(text, sizeof(text),
                   "the ETag is " SPAN_FMT ", the MD5 of what was sent " SPAN_FMT, SPAN_ARG(etag),
                   SPAN_ARG(e->md5_hex)); /* fits */
    v->outcome = BUCKET_RETRIABLE;
    say(v, e, "integrity: ", span_str(text));
}

static void judge_create(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v)
{
    bool whole = false;
    struct buf id = BUF_INIT;
    bool found = xml_find(buf_span(&a->body), "UploadId", 2, &id, &whole);
    struct span value = span_trim(buf_span(&id));
    if (found && whole && value.len > 0 && value.len <= S3_ANSWER_VALUE_MAX)
        buf_put_span(&v->value, value);
    else
        unreadable(v, e, "the answer has no UploadId");
    buf_deinit(&id);
}

static void judge_part(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v)
{
    if (a->etag.len > 0)
        buf_put_span(&v->value, buf_span(&a->etag));
    else
        unreadable(v, e, "the answer has no ETag");
}

/* The number behind the last '-' of an ETag; false when it ends otherwise. */
static bool parts_of(struct span etag, uint64_t *out)
{
    const uint8_t *dash = etag.len > 0 ? memrchr(etag.ptr, '-', etag.len) : NULL;
    if (dash == NULL)
        return false;
    size_t at = (size_t)(dash - etag.ptr) + 1;
    return etag.len - at <= 9 && span_parse_u64(span_sub(etag, at, etag.len), out);
}

static void judge_completion(const struct s3_answer *a, const struct s3_expect *e,
                             struct s3_verdict *v)
{
    struct buf text = BUF_INIT;
    bool whole = a->body.len == 0; /* a store that says nothing but 200 */
    uint64_t parts;
    if (!whole)
        (void)xml_find(buf_span(&a->body), "ETag", 2, &text, &whole); /* else the header's */
    struct span etag = strip_quotes(buf_span(&text));
    if (etag.len == 0)
        etag = buf_span(&a->etag);
    if (!whole) {
        unreadable(v, e, "the answer to the completion is not whole");
    } else if (parts_of(etag, &parts) && parts != e->parts) {
        char note[96];
        (void)snprintf(note, sizeof(note), "the ETag names %llu parts, %u were sent",
                       (unsigned long long)parts, e->parts); /* fits */
        v->outcome = BUCKET_RETRIABLE;
        say(v, e, "integrity: ", span_str(note));
    }
    buf_deinit(&text);
}

static void judge_list(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v)
{
    if (s3_list_parse(buf_span(&a->body), e->prefix, e->after, &v->list)) {
        if (v->list.truncated && v->list.n_keys == 0) /* asking again would not end */
            unreadable(v, e, "the answer is a part of a list, but with no key behind the last one");
        return;
    }
    s3_clue_read(a, e, &v->clue);
    if (v->clue.lists_buckets)
        unreadable(v, e, "the answer is the list of all buckets");
    else
        unreadable(v, e, "the answer is no whole list");
}

static void judge_success(const struct s3_answer *a, const struct s3_expect *e,
                          struct s3_verdict *v)
{
    struct buf code = BUF_INIT;
    struct span body = buf_span(&a->body);
    bool has_code = e->call != S3_GET && e->call != S3_HEAD &&
                    (e->call == S3_MULTIPART_COMPLETE || xml_has_root(body, "Error")) &&
                    xml_find(body, "Code", 0, &code, NULL);
    if (has_code) {
        judge_error_document(a, e, span_trim(buf_span(&code)), v);
        buf_deinit(&code);
        return;
    }
    switch (e->call) {
    case S3_HEAD:
    case S3_GET: /* the client bounded it */
    case S3_MULTIPART_ABORT:
        break;
    case S3_PUT:
        judge_put(a, e, v);
        break;
    case S3_LIST:
        judge_list(a, e, v);
        break;
    case S3_MULTIPART_CREATE:
        judge_create(a, e, v);
        break;
    case S3_MULTIPART_PART:
        judge_part(a, e, v);
        break;
    case S3_MULTIPART_COMPLETE:
        judge_completion(a, e, v);
        break;
    }
}

void s3_answer_judge(const struct s3_answer *a, const struct s3_expect *e, struct s3_verdict *v)
{
    s3_verdict_reset(v);
    if (a->code >= 200 && a->code < 300) {
        judge_success(a, e, v);
    } else {
        s3_clue_read(a, e, &v->clue);
        judge_status(a, e, v);
    }
}
