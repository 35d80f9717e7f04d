/* What answers mean: every row of objects.md 10 Integrity and Retries and of decisions.md 15, and
 * what servers send that no specification has. */
#include "s3/s3_answer.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "lib/test.h"
#include "s3/xml.h"

#define MD5 "5d41402abc4b2a76b9719d911017c592"
#define CODE(code) "<Error><Code>" code "</Code></Error>"

/* Judges the answer `raw` (head and body). */
static void judge(struct s3_verdict *v, struct s3_expect e, const char *raw)
{
    struct s3_answer a = {.code = 0};
    CHECK(s3_answer_parse_raw(&a, span_str(raw)));
    s3_answer_judge(&a, &e, v);
    s3_answer_deinit(&a);
}

/* ---- Statuses ---- */

struct row {
    enum s3_call call;
    bool body_sent;
    const char *raw; /* status line's code, headers and body */
    enum bucket_outcome outcome;
    bool gone;
    const char *error;
};

#define STATUS(code, body) "HTTP/1.1 " code " X\r\n\r\n" body
#define OK(headers, body) "HTTP/1.1 200 OK\r\n" headers "\r\n" body

static const struct row rows[] = {
    {S3_HEAD, true, STATUS("200", ""), BUCKET_OK, false, ""},
    {S3_HEAD, true, STATUS("404", ""), BUCKET_ABSENT, false, ""},
    {S3_HEAD, true, STATUS("403", ""), BUCKET_TERMINAL, false, "status 403: "},
    {S3_HEAD, true, "HTTP/1.1 400 X\r\nx-amz-bucket-region: eu-1\r\n\r\n", BUCKET_TERMINAL, false,
     "status 400: the bucket is in region eu-1"},
    {S3_GET, true, STATUS("200", "anything"), BUCKET_OK, false, ""},
    {S3_GET, true, OK("", CODE("SlowDown")), BUCKET_OK, false, ""}, /* an object may look so */
    {S3_GET, true, STATUS("404", CODE("NoSuchKey")), BUCKET_ABSENT, false, ""},
    {S3_GET, true, STATUS("404", ""), BUCKET_ABSENT, false, ""},
    {S3_GET, true, STATUS("404", CODE("NoSuchBucket")), BUCKET_TERMINAL, false,
     "status 404: " CODE("NoSuchBucket")},
    {S3_LIST, true, STATUS("404", CODE("NoSuchBucket")), BUCKET_TERMINAL, false,
     "status 404: " CODE("NoSuchBucket")},
    {S3_PUT, true, STATUS("200", ""), BUCKET_OK, false, ""},
    {S3_PUT, true, STATUS("204", ""), BUCKET_OK, false, ""},
    {S3_PUT, true, STATUS("301", "moved"), BUCKET_TERMINAL, false, "status 301: moved"},
    {S3_PUT, true, STATUS("400", CODE("BadDigest")), BUCKET_RETRIABLE, false,
     "status 400: " CODE("BadDigest")},
    {S3_MULTIPART_PART, true, STATUS("400", CODE("XAmzContentSHA256Mismatch")), BUCKET_RETRIABLE,
     false, "status 400: " CODE("XAmzContentSHA256Mismatch")},
    {S3_PUT, true, STATUS("400", CODE("InvalidDigest")), BUCKET_TERMINAL, false,
     "status 400: " CODE("InvalidDigest")},
    {S3_PUT, false, STATUS("400", CODE("InvalidDigest")), BUCKET_RETRIABLE, false,
     "status 400: " CODE("InvalidDigest")},
    {S3_PUT, true, STATUS("403", CODE("BadDigest")), BUCKET_TERMINAL, false,
     "status 403: " CODE("BadDigest")},
    {S3_PUT, true, STATUS("400", CODE("RequestTimeout")), BUCKET_RETRIABLE, false,
     "status 400: " CODE("RequestTimeout")},
    {S3_GET, false, STATUS("400", "x"), BUCKET_TERMINAL, false, "status 400: x"}, /* no body */
    {S3_PUT, false, STATUS("403", "no"), BUCKET_TERMINAL, false, "status 403: no"},
    {S3_PUT, true, STATUS("404", CODE("NoSuchBucket")), BUCKET_TERMINAL, false,
     "status 404: " CODE("NoSuchBucket")},
    {S3_PUT, true, STATUS("404", CODE("NoSuchUpload")), BUCKET_TERMINAL, false,
     "status 404: " CODE("NoSuchUpload")},
    {S3_PUT, true, STATUS("408", ""), BUCKET_RETRIABLE, false, "status 408: "},
    {S3_PUT, true, STATUS("409", ""), BUCKET_TERMINAL, false, "status 409: "},
    {S3_PUT, true, STATUS("429", ""), BUCKET_RETRIABLE, false, "status 429: "},
    {S3_PUT, true, STATUS("500", ""), BUCKET_RETRIABLE, false, "status 500: "},
    {S3_PUT, true, STATUS("503", ""), BUCKET_RETRIABLE, false, "status 503: "},
    {S3_PUT, true, OK("", CODE("InternalError")), BUCKET_RETRIABLE, false,
     "status 200: " CODE("InternalError")},
    {S3_PUT, true, OK("", "<html>hello</html>"), BUCKET_OK, false, ""},
    {S3_PUT, true, OK("ETag: \"" MD5 "\"\r\n", ""), BUCKET_OK, false, ""},
    {S3_PUT, true, OK("etag: 5D41402ABC4B2A76B9719D911017C592\r\n", ""), BUCKET_OK, false, ""},
    {S3_PUT, true, OK("ETag: \"0d41402abc4b2a76b9719d911017c592\"\r\n", ""), BUCKET_RETRIABLE,
     false,
     "integrity: the ETag is 0d41402abc4b2a76b9719d911017c592, the MD5 of what was sent " MD5},
    {S3_PUT, true, OK("ETag: \"0d41402abc4b2a76b9719d911017c59g\"\r\n", ""), BUCKET_OK, false, ""},
    {S3_PUT, true, OK("ETag: \"0d41402abc4b2a76b9719d911017c59\"\r\n", ""), BUCKET_OK, false, ""},
    {S3_PUT, true, OK("ETag: \"\"\r\n", ""), BUCKET_OK, false, ""},
    {S3_MULTIPART_CREATE, true, OK("", "<R><UploadId>x</UploadId></R>"), BUCKET_OK, false, ""},
    {S3_MULTIPART_CREATE, true, OK("", "<R><UploadId></UploadId></R>"), BUCKET_RETRIABLE, false,
     "body: the answer has no UploadId"},
    {S3_MULTIPART_CREATE, true, OK("", "<R><UploadId>x</UploadId>"), BUCKET_RETRIABLE, false,
     "body: the answer has no UploadId"},
    {S3_MULTIPART_CREATE, true, OK("", ""), BUCKET_RETRIABLE, false,
     "body: the answer has no UploadId"},
    {S3_MULTIPART_CREATE, true, OK("", CODE("AccessDenied")), BUCKET_TERMINAL, false,
     "status 200: " CODE("AccessDenied")},
    {S3_MULTIPART_PART, true, OK("ETag: x\r\n", ""), BUCKET_OK, false, ""},
    {S3_MULTIPART_PART, true, OK("", ""), BUCKET_RETRIABLE, false, "body: the answer has no ETag"},
    {S3_MULTIPART_PART, true, STATUS("404", CODE("NoSuchUpload")), BUCKET_RETRIABLE, true,
     "status 404: " CODE("NoSuchUpload")},
    {S3_MULTIPART_PART, false, STATUS("404", CODE("NoSuchUpload")), BUCKET_RETRIABLE, true,
     "status 404: " CODE("NoSuchUpload")},
    {S3_MULTIPART_PART, true, STATUS("404", CODE("NoSuchBucket")), BUCKET_TERMINAL, false,
     "status 404: " CODE("NoSuchBucket")},
    {S3_MULTIPART_COMPLETE, true, STATUS("404", CODE("NoSuchUpload")), BUCKET_RETRIABLE, true,
     "status 404: " CODE("NoSuchUpload")},
    {S3_MULTIPART_COMPLETE, true, OK("", CODE("NoSuchUpload")), BUCKET_RETRIABLE, true,
     "status 200: " CODE("NoSuchUpload")},
    {S3_MULTIPART_COMPLETE, true, OK("", CODE("InternalError")), BUCKET_RETRIABLE, false,
     "status 200: " CODE("InternalError")},
    {S3_MULTIPART_COMPLETE, true, OK("", CODE("SlowDown")), BUCKET_RETRIABLE, false,
     "status 200: " CODE("SlowDown")},
    {S3_MULTIPART_COMPLETE, true, OK("", CODE("ServiceUnavailable")), BUCKET_RETRIABLE, false,
     "status 200: " CODE("ServiceUnavailable")},
    {S3_MULTIPART_COMPLETE, true, OK("", CODE("RequestTimeout")), BUCKET_RETRIABLE, false,
     "status 200: " CODE("RequestTimeout")},
    {S3_MULTIPART_COMPLETE, true, OK("", "  \r\n<?xml version='1.0'?>" CODE("InvalidPart")),
     BUCKET_TERMINAL, false, "status 200: <?xml version='1.0'?>" CODE("InvalidPart")},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag>\"a-3\"</ETag></R>"), BUCKET_OK, false, ""},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag>&quot;a-3&#34;</ETag></R>"), BUCKET_OK, false,
     ""},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag>a</ETag></R>"), BUCKET_OK, false, ""},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag></ETag></R>"), BUCKET_OK, false, ""},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R/>"), BUCKET_OK, false, ""},
    {S3_MULTIPART_COMPLETE, true, OK("", ""), BUCKET_OK, false, ""},
    {S3_MULTIPART_COMPLETE, true, OK("ETag: \"a-4\"\r\n", "<R><ETag></ETag></R>"), BUCKET_RETRIABLE,
     false, "integrity: the ETag names 4 parts, 3 were sent"},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag>&quot;a-2&quot;</ETag></R>"), BUCKET_RETRIABLE,
     false, "integrity: the ETag names 2 parts, 3 were sent"},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag>8e9f-123456789012</ETag></R>"), BUCKET_OK, false,
     ""}, /* a UUID's last group */
    {S3_MULTIPART_COMPLETE, true, OK("", "  \n "), BUCKET_RETRIABLE, false,
     "body: the answer to the completion is not whole"},
    {S3_MULTIPART_COMPLETE, true, OK("", "<R><ETag>a-3</ETag>"), BUCKET_RETRIABLE, false,
     "body: the answer to the completion is not whole"},
    {S3_MULTIPART_ABORT, true, STATUS("204", ""), BUCKET_OK, false, ""},
    {S3_MULTIPART_ABORT, true, STATUS("404", CODE("NoSuchUpload")), BUCKET_OK, false, ""},
    {S3_MULTIPART_ABORT, true, STATUS("403", "x"), BUCKET_TERMINAL, false, "status 403: x"},
    {S3_LIST, true, OK("", "<ListBucketResult/>"), BUCKET_OK, false, ""},
    {S3_LIST, true, OK("", "<ListBucketResult>"), BUCKET_RETRIABLE, false,
     "body: the answer is no whole list"},
    {S3_LIST, true, OK("", ""), BUCKET_RETRIABLE, false, "body: the answer is no whole list"},
    {S3_LIST, true, OK("", "<html></html>"), BUCKET_RETRIABLE, false,
     "body: the answer is no whole list"},
    {S3_LIST, true, OK("", CODE("SlowDown")), BUCKET_RETRIABLE, false,
     "status 200: " CODE("SlowDown")},
    {S3_LIST, true, OK("", "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"),
     BUCKET_RETRIABLE, false,
     "body: the answer is a part of a list, but with no key behind the last one"},
};

TEST(every_row_has_its_outcome)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct s3_verdict v = {.outcome = BUCKET_CANCELLED};
        judge(&v,
              (struct s3_expect){.call = row->call,
                                 .body_sent = row->body_sent,
                                 .md5_hex = SPAN_LIT(MD5),
                                 .parts = 3},
              row->raw);
        if (v.outcome != row->outcome || v.upload_gone != row->gone)
            print_error("row %zu: %s\n", i, row->raw);
        CHECK_TEXT(span_str(v.error), row->error);
        CHECK_EQ(v.outcome, row->outcome);
        CHECK_EQ(v.upload_gone, row->gone);
        s3_verdict_deinit(&v);
    }
}

TEST(values_are_taken)
{
    struct s3_verdict v = {.outcome = BUCKET_OK};
    judge(&v, (struct s3_expect){.call = S3_MULTIPART_CREATE},
          OK("",
             "<?xml version=\"1.0\"?><a:InitiateMultipartUploadResult xmlns:a='x>y'><a:Bucket>b"
             "</a:Bucket><a:UploadId> 2~a&amp;b </a:UploadId></a:InitiateMultipartUploadResult>"));
    CHECK_TEXT(buf_span(&v.value), "2~a&b");
    judge(&v, (struct s3_expect){.call = S3_MULTIPART_PART}, OK("ETag: W/\"a\"b\"\r\n", ""));
    CHECK_TEXT(buf_span(&v.value), "a\"b");
    s3_verdict_deinit(&v);
}

/* ---- Clues ---- */

struct clue_row {
    enum s3_call call;
    const char *raw;
    struct bucket_clue clue;
};

#define BAD_REGION(message)                                                                        \
    "<Code>AuthorizationHeaderMalformed</Code><Message>" message "</Message>"
#define NOON INT64_C(1796040000000000) /* 30 Nov 2026 12:00:00 */

static const struct clue_row clue_rows[] = {
    {S3_PUT,
     "HTTP/1.1 403 X\r\nDate: Mon, 30 Nov 2026 12:00:00 GMT\r\n\r\n" CODE("AccessDenied"),
     {.code = "AccessDenied", .server_us = NOON}},
    {S3_LIST,
     STATUS("400", "<Error>" BAD_REGION("x") "<Region>eu-1</Region></Error>"),
     {.code = "AuthorizationHeaderMalformed", .region = "eu-1"}},
    {S3_LIST,
     STATUS("400",
            "<Error>" BAD_REGION("the region 'a' is wrong; expecting &apos;eu-2&apos;") "</Error>"),
     {.code = "AuthorizationHeaderMalformed", .region = "eu-2"}},
    {S3_HEAD, "HTTP/1.1 301 X\r\nx-amz-bucket-region: eu-3\r\n\r\n", {.region = "eu-3"}},
    {S3_HEAD, "HTTP/1.1 301 X\r\nx-amz-bucket-region: no name\r\n\r\n", {.region = ""}},
    {S3_LIST, "HTTP/1.1 308 X\r\nLocation: https://s3.example/\r\n\r\n", {.to_https = true}},
    {S3_LIST, "HTTP/1.1 308 X\r\nLocation: http://s3.example/\r\n\r\n", {.to_https = false}},
    {S3_LIST,
     STATUS("404", "<Error><Code>NoSuchBucket</Code><BucketName>s3</BucketName></Error>"),
     {.code = "NoSuchBucket", .bucket = "s3"}},
    {S3_LIST, OK("", "<ListAllMyBucketsResult/>"), {.lists_buckets = true}},
    {S3_LIST, OK("", CODE("AccessDenied")), {.code = "AccessDenied"}},
    {S3_PUT, STATUS("403", CODE("AKID7")), {.code = ""}},         /* a secret */
    {S3_PUT, STATUS("403", CODE("Access Denied")), {.code = ""}}, /* no name */
    {S3_GET, STATUS("404", CODE("XAdminUserNotFound")), {.code = "XAdminUserNotFound"}},
};

TEST(failures_tell_what_they_know)
{
    struct span secret = SPAN_LIT("AKID7");
    for (size_t i = 0; i < sizeof(clue_rows) / sizeof(clue_rows[0]); i++) {
        const struct clue_row *row = &clue_rows[i];
        struct s3_verdict v = {.outcome = BUCKET_OK};
        judge(&v, (struct s3_expect){.call = row->call, .secrets = &secret, .n_secrets = 1},
              row->raw);
        CHECK(v.outcome == BUCKET_TERMINAL || v.outcome == BUCKET_RETRIABLE);
        CHECK_TEXT(span_str(v.clue.code), row->clue.code);
        CHECK_TEXT(span_str(v.clue.region), row->clue.region);
        CHECK_TEXT(span_str(v.clue.bucket), row->clue.bucket);
        CHECK_EQ(v.clue.server_us, row->clue.server_us);
        CHECK_EQ(v.clue.to_https, row->clue.to_https);
        CHECK_EQ(v.clue.lists_buckets, row->clue.lists_buckets);
        CHECK_EQ(v.clue.silence, BUCKET_ANSWERED);
        s3_verdict_deinit(&v);
    }
}

/* What a failure means does not depend on the letters of the keys. */
TEST(a_short_key_hides_no_code)
{
    struct span secrets[] = {SPAN_LIT("a"), SPAN_LIT("oad"), SPAN_LIT("Upload")};
    struct s3_verdict v = {.outcome = BUCKET_OK};
    judge(&v, (struct s3_expect){.call = S3_MULTIPART_PART, .secrets = secrets, .n_secrets = 3},
          STATUS("404", CODE("NoSuchUpload")));
    CHECK_EQ(v.outcome, BUCKET_RETRIABLE);
    CHECK(v.upload_gone);
    judge(&v, (struct s3_expect){.call = S3_PUT, .secrets = secrets, .n_secrets = 3},
          STATUS("403", CODE("Upload")));
    CHECK_TEXT(span_str(v.clue.code), "");
    s3_verdict_deinit(&v);
}

TEST(dates_are_read)
{
    static const char *const bad[] = {"",
                                      "Mon, 30 Nov 2026 12:00:00",
                                      "Mon, 30 Nox 2026 12:00:00 GMT",
                                      "Mon, 31 Nov 2026 12:00:00 GMT",
                                      "Mon, 30 Nov 2026 12:00:00 UTC",
                                      "Monday, 30-Nov-26 12:00:00 GMT"};
    CHECK_EQ(s3_date_parse(SPAN_LIT("Mon, 30 Nov 2026 12:00:00 GMT")), NOON);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK_EQ(s3_date_parse(span_str(bad[i])), 0);
}

/* Goal: the text names the code wherever it stands. */
TEST(a_code_behind_the_cut_stands_in_front)
{
    struct s3_verdict v = {.outcome = BUCKET_OK};
    char raw[600];
    (void)snprintf(
        raw, sizeof(raw),
        STATUS("403", "<Error><Message>%0300d</Message><Code>AccessDenied</Code></Error>"), 0);
    judge(&v, (struct s3_expect){.call = S3_PUT}, raw);
    CHECK(strstr(v.error, "status 403: AccessDenied: <Error><Message>000") == v.error);
    s3_verdict_deinit(&v);
}

/* ---- Heads ---- */

TEST(heads_are_read)
{
    struct s3_answer a = {.code = 0};
    CHECK(s3_answer_parse_raw(&a, span_str("HTTP/1.1 100 Continue\r\nETag: old\r\n\r\n"
                                           "HTTP/1.0 503 Slow Down\r\nRETRY-AFTER:  12 \r\n"
                                           "etag:\"e\"\r\nno colon\r\n\r\nbody")));
    CHECK_EQ(a.code, 503);
    CHECK_EQ(a.retry_after_us, 12000000);
    CHECK_TEXT(buf_span(&a.etag), "e");
    CHECK_TEXT(buf_span(&a.body), "body");
    CHECK(s3_answer_parse_raw(
        &a, span_str("HTTP/1.1 200\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n")));
    CHECK_EQ(a.code, 200);
    CHECK_EQ(a.retry_after_us, -1);
    CHECK_EQ(a.etag.len, 0);
    static const char *const bad[] = {"",
                                      "HTTP/1.1 200 OK\r\n",
                                      "HTTP/1.1 200 OK\r\nA: b\r\n\r",
                                      "HTTP/1.1 100 Continue\r\n\r\n",
                                      "0\r\n\r\n",
                                      "\x16\x03\x01",
                                      "HTTP/1.1\r\n\r\n",
                                      "HTTP/1.1 abc\r\n\r\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CHECK(!s3_answer_parse_raw(&a, span_str(bad[i])));
    s3_answer_deinit(&a);
}

/* ---- Texts ---- */

TEST(texts_are_cut_and_clean)
{
    char out[ERROR_TEXT_MAX];
    struct span secrets[] = {SPAN_LIT("KEY"), SPAN_LIT("KEYKEY"), {NULL, 0}};
    struct buf b = BUF_INIT;
    s3_answer_text(out, "status 403: ", SPAN_LIT("\n a\r\nb\tKEYKEY-KEY\x01 \xFFz\n"), secrets, 3);
    CHECK_TEXT(span_str(out), "status 403: a  b ***-***  \xEF\xBF\xBDz");
    for (int i = 0; i < 300; i++)
        buf_puts(&b, "\xF0\x9F\x98\x80");
    s3_answer_text(out, "body: ", buf_span(&b), NULL, 0);
    CHECK(utf8_valid(span_str(out)));
    CHECK(strlen(out) < sizeof(out));
    buf_reset(&b);
    for (int i = 0; i < 199; i++)
        buf_putc(&b, 'x');
    buf_puts(&b, "KEY"); /* across the cut */
    s3_answer_text(out, "", buf_span(&b), secrets, 3);
    CHECK_EQ(strlen(out), 200);
    CHECK_EQ(out[199], '*');
    buf_deinit(&b);
}

/* ---- Lists ---- */

#define LIST(inside) "<ListBucketResult xmlns=\"http://s3\">" inside "</ListBucketResult>"
#define KEY(key) "<Contents><Key>" key "</Key><Size>1</Size></Contents>"

/* keys: joined with blanks */
static void check_list(const char *body, const char *prefix, const char *after, const char *keys)
{
    struct s3_list l = {.n_keys = 0};
    struct buf got = BUF_INIT;
    CHECK(s3_list_parse(span_str(body), span_str(prefix), span_str(after), &l));
    for (size_t i = 0; i < l.n_keys; i++) {
        buf_puts(&got, i > 0 ? " " : "");
        buf_put_span(&got, l.keys[i]);
    }
    CHECK_TEXT(buf_span(&got), keys);
    buf_deinit(&got);
    s3_list_deinit(&l);
}

TEST(lists_are_read)
{
    check_list(LIST(KEY("p/a") KEY("p/b")), "p/", "", "p/a p/b");
    check_list(LIST(""), "p/", "", "");
    /* folder order, twins, keys of others, keys that were had */
    check_list(LIST(KEY("p/a/b") KEY("p/a-b") KEY("p/a-b") KEY("q") KEY("p/0")), "p/", "p/0",
               "p/a-b p/a/b");
    check_list(LIST("<Prefix>p/x</Prefix><Contents><Owner><Key>p/no</Key></Owner><Key>p/y</Key>"
                    "</Contents><CommonPrefixes><Prefix>p/z</Prefix></CommonPrefixes>"),
               "p/", "", "p/y");
    check_list(LIST("<Contents><Key>p/&lt;&amp;&gt;&#x27;&#232;&bogus;&amp</Key></Contents>"), "",
               "", "p/<&>'\xC3\xA8&bogus;&amp");
    check_list(LIST("<Contents><Key>p/<![CDATA[a&amp;]]>b</Key></Contents>"), "", "", "p/a&amp;b");
    check_list("\xEF\xBB\xBF<?xml version=\"1.0\"?>\n<!DOCTYPE x><!-- <Key> -->\n" LIST(
                   "\n  " KEY("p/ a ") "\n") "\n",
               "", "", "p/ a ");
    check_list("<s3:ListBucketResult><s3:Contents><s3:Key>p</s3:Key></s3:Contents>"
               "</s3:ListBucketResult>",
               "", "", "p");
}

TEST(encoded_lists_are_decoded_when_they_say_so)
{
#define URL "<EncodingType>url</EncodingType>"
    check_list(LIST(KEY("p/q%3Da")), "p/", "", "p/q%3Da");
    check_list(LIST(URL KEY("p/q%253Da")), "p/", "", "p/q%3Da");
    check_list(LIST(URL KEY("p%2Fq%253Da%2f")), "p/", "", "p/q%3Da/");
    check_list(LIST(KEY("p+x/q%20a") "<EncodingType>URL</EncodingType>"), "p x/", "", "p x/q a");
    check_list(LIST(URL KEY("p+x/a%2Bb")), "p+x/", "", "p+x/a+b"); /* '+' stands for itself */
    check_list(LIST(URL KEY("p%ZZ%")), "", "", "p%ZZ%");
}

TEST(truncation_is_read)
{
    static const struct {
        const char *text;
        bool truncated;
    } cases[] = {{"true", true}, {"True", true}, {" TRUE\n", true}, {"false", false}, {"", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char body[200];
        struct s3_list l;
        (void)snprintf(body, sizeof(body), LIST("<IsTruncated>%s</IsTruncated>"), cases[i].text);
        CHECK(s3_list_parse(span_str(body), span_str(""), span_str(""), &l));
        CHECK_EQ(l.truncated, cases[i].truncated);
        s3_list_deinit(&l);
    }
}

/* Goal: no part of a list is taken for a list. Method: every truncation of one. */
TEST(a_cut_list_is_no_list)
{
    const char *body =
        "<?xml version=\"1.0\"?>" LIST("<IsTruncated>false</IsTruncated>" KEY("p/a"));
    for (size_t len = 0; len < strlen(body); len++) {
        struct s3_list l = {.n_keys = 99};
        uint8_t *copy = mem_copy(body, len); /* so that a read past the end is seen */
        CHECK(!s3_list_parse(span_make(copy, len), span_str(""), span_str(""), &l));
        CHECK_EQ(l.n_keys, 99);
        mem_free(copy);
    }
}

TEST(what_is_no_xml_is_refused)
{
    static const char *const bad[] = {"<a></b>",
                                      "<a><b></a></b>",
                                      "</a>",
                                      "<a></a><b></b>",
                                      "<a/>x",
                                      "x<a/>",
                                      "<>",
                                      "<a b='></a>",
                                      "<![CDATA[x]]>",
                                      "<a><!-- </a>",
                                      "<?x",
                                      "< a></a>",
                                      "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct xml x = XML_INIT(span_str(bad[i]));
        enum xml_kind kind;
        while ((kind = xml_next(&x)) != XML_BAD && kind != XML_END)
            ;
        if (kind != XML_BAD)
            print_error("%s\n", bad[i]);
        CHECK_EQ(kind, XML_BAD);
        CHECK_EQ(xml_next(&x), XML_BAD);
    }
}

TEST_MAIN()
