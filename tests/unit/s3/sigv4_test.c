/* Signatures: the examples that AWS publishes, and golden data of another implementation. */
#include "s3/s3_request.h"

#include "lib/test.h"

/* ---- AWS, "Examples: Signature Calculations" of the S3 API reference ---- */

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HOST                                                                                       \
    {                                                                                              \
        SPAN_LIT("host"), SPAN_LIT("examplebucket.s3.amazonaws.com")                               \
    }
#define DATE                                                                                       \
    {                                                                                              \
        SPAN_LIT("x-amz-date"), SPAN_LIT("20130524T000000Z")                                       \
    }
#define SHA(hex)                                                                                   \
    {                                                                                              \
        SPAN_LIT("x-amz-content-sha256"), SPAN_LIT(hex)                                            \
    }

static void check_aws(const struct sigv4_request *r, const char *signature)
{
    struct buf b = BUF_INIT;
    char got[SIGV4_SIGNATURE_SIZE];
    struct sigv4_key key = {.access = SPAN_LIT("AKIAIOSFODNN7EXAMPLE"),
                            .secret = SPAN_LIT("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
                            .region = SPAN_LIT("us-east-1")};
    sigv4_put_authorization(&b, &key, r, got);
    CHECK_TEXT(span_str(got), signature);
    CHECK(span_starts_with(buf_span(&b),
                           SPAN_LIT("AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/"
                                    "us-east-1/s3/aws4_request, SignedHeaders=")));
    buf_deinit(&b);
}

TEST(aws_get_object)
{
    struct sigv4_pair headers[] = {
        HOST, {SPAN_LIT("range"), SPAN_LIT("bytes=0-9")}, SHA(EMPTY), DATE};
    check_aws(&(struct sigv4_request){.method = "GET",
                                      .path = SPAN_LIT("/test.txt"),
                                      .headers = headers,
                                      .n_headers = 4,
                                      .payload = SPAN_LIT(EMPTY),
                                      .date = "20130524T000000Z"},
              "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(aws_put_object)
{
#define BODY_SHA "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
    struct buf path = BUF_INIT;
    struct sigv4_pair headers[] = {
        {SPAN_LIT("date"), SPAN_LIT("Fri, 24 May 2013 00:00:00 GMT")},
        HOST,
        SHA(BODY_SHA),
        DATE,
        {SPAN_LIT("x-amz-storage-class"), SPAN_LIT("REDUCED_REDUNDANCY")}};
    sigv4_put_encoded(&path, SPAN_LIT("/test$file.text"), true);
    check_aws(&(struct sigv4_request){.method = "PUT",
                                      .path = buf_span(&path),
                                      .headers = headers,
                                      .n_headers = 5,
                                      .payload = SPAN_LIT(BODY_SHA),
                                      .date = "20130524T000000Z"},
              "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    buf_deinit(&path);
}

static void check_aws_query(const struct sigv4_pair *params, size_t n, const char *signature)
{
    struct buf query = BUF_INIT;
    struct sigv4_pair headers[] = {HOST, SHA(EMPTY), DATE};
    sigv4_put_query(&query, params, n);
    check_aws(&(struct sigv4_request){.method = "GET",
                                      .path = SPAN_LIT("/"),
                                      .query = buf_span(&query),
                                      .headers = headers,
                                      .n_headers = 3,
                                      .payload = SPAN_LIT(EMPTY),
                                      .date = "20130524T000000Z"},
              signature);
    buf_deinit(&query);
}

TEST(aws_get_bucket_lifecycle)
{
    struct sigv4_pair params[] = {{SPAN_LIT("lifecycle"), SPAN_LIT("")}};
    check_aws_query(params, 1, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
}

TEST(aws_list_objects)
{
    struct sigv4_pair params[] = {{SPAN_LIT("prefix"), SPAN_LIT("J")},
                                  {SPAN_LIT("max-keys"), SPAN_LIT("2")}};
    check_aws_query(params, 2, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

TEST(the_canonical_request_is_as_published)
{
    struct buf b = BUF_INIT;
    struct sigv4_pair headers[] = {
        HOST, {SPAN_LIT("x-note"), SPAN_LIT("  two   blanks\t here ")}, DATE};
    sigv4_put_canonical(&b, &(struct sigv4_request){.method = "GET",
                                                    .path = SPAN_LIT("/a%2Bb"),
                                                    .query = SPAN_LIT("uploads="),
                                                    .headers = headers,
                                                    .n_headers = 3,
                                                    .payload = SPAN_LIT("UNSIGNED"),
                                                    .date = "20130524T000000Z"});
    CHECK_TEXT(buf_span(&b), "GET\n/a%2Bb\nuploads=\nhost:examplebucket.s3.amazonaws.com\n"
                             "x-note:two blanks here\nx-amz-date:20130524T000000Z\n\n"
                             "host;x-note;x-amz-date\nUNSIGNED");
    buf_deinit(&b);
}

/* ---- Encoding ---- */

static void check_encoded(struct span raw, bool keep_slash, const char *want)
{
    struct buf b = BUF_INIT;
    sigv4_put_encoded(&b, raw, keep_slash);
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

TEST(keys_are_encoded_once)
{
    check_encoded(SPAN_LIT("AZaz09-._~"), true, "AZaz09-._~");
    check_encoded(SPAN_LIT("a/b"), true, "a/b");
    check_encoded(SPAN_LIT("a/b"), false, "a%2Fb");
    check_encoded(SPAN_LIT("+=!*'() "), true, "%2B%3D%21%2A%27%28%29%20");
    check_encoded(SPAN_LIT("%2F"), true, "%252F");
    check_encoded(SPAN_LIT("\xC3\xA8"), true, "%C3%A8");
    check_encoded(SPAN_LIT("\0\xFF"), true, "%00%FF");
    check_encoded(SPAN_LIT(""), true, "");
}

TEST(queries_are_sorted_by_what_is_sent)
{
    struct buf b = BUF_INIT;
    struct sigv4_pair params[] = {{SPAN_LIT("b"), SPAN_LIT("2")},
                                  {SPAN_LIT("uploads"), SPAN_LIT("")},
                                  {SPAN_LIT("b"), SPAN_LIT("10")},
                                  {SPAN_LIT("B"), SPAN_LIT("/")},
                                  {SPAN_LIT("\xC3"), SPAN_LIT("x")}};
    sigv4_put_query(&b, params, 5);
    CHECK_TEXT(buf_span(&b), "%C3=x&B=%2F&b=10&b=2&uploads=");
    buf_reset(&b);
    sigv4_put_query(&b, NULL, 0);
    CHECK_EQ(b.len, 0);
    buf_deinit(&b);
}

TEST(dates_have_no_fraction)
{
    char date[SIGV4_DATE_SIZE];
    sigv4_date(INT64_C(1791009457501942), date);
    CHECK_TEXT(span_str(date), "20261003T063737Z");
    sigv4_date(0, date);
    CHECK_TEXT(span_str(date), "19700101T000000Z");
}

/* ---- botocore ---- */

static const struct vector {
    enum s3_call call;
    bool path_style;
    enum s3_sse sse;
    const char *key, *other; /* start_after or upload id */
    const char *target, *authorization;
} vectors[] = {
#include "sigv4_vectors.inc"
};

/* Value of a header line. */
static struct span header(const struct s3_wire *w, const char *name)
{
    const char *line = (const char *)w->headers.ptr;
    const char *end = line + w->headers.len;
    for (; line < end; line += strlen(line) + 1) {
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            return span_str(line + strlen(name) + 2);
    }
    return span_make(NULL, 0);
}

static void check_vector(const struct vector *v)
{
    struct s3_wire w = {.method = NULL};
    struct s3_place place = {.path_style = v->path_style,
                             .authority = SPAN_LIT("s3.example.com:9000"),
                             .bucket = SPAN_LIT("lake"),
                             .key = {.access = SPAN_LIT("AKIDEXAMPLE"),
                                     .secret = SPAN_LIT("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
                                     .region = SPAN_LIT("eu-central-1")},
                             .sse = v->sse,
                             .kms_key_id = SPAN_LIT("arn:aws:kms:x:1:key/a b")};
    struct s3_call_spec spec = {.call = v->call,
                                .key = span_str(v->key),
                                .start_after = span_str(v->call == S3_LIST ? v->other : ""),
                                .content_type = SPAN_LIT("application/json"),
                                .upload_id = span_str(v->other),
                                .part = 12,
                                .md5 = SPAN_LIT("CZ21Bdkd9JZfUjPMQU4KQg=="),
                                .wall_us = INT64_C(1791009457501942)};
    if (s3_call_has_body(v->call) && v->call != S3_MULTIPART_CREATE)
        spec.sha256 = SPAN_LIT("44f8354494a5ba03ba1792a8d3e9c534c47a9181980fde7a3f44b06ef2ae7c7f");
    s3_request_build(&place, &spec, &w);
    CHECK_TEXT(span_str((const char *)w.target.ptr), v->target);
    CHECK_TEXT(header(&w, "authorization"), v->authorization);
    s3_wire_deinit(&w);
}

TEST(requests_are_signed_as_by_another_implementation)
{
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++)
        check_vector(&vectors[i]);
}

/* ---- Endpoints ---- */

static void check_endpoint(const char *text, bool https, const char *authority)
{
    struct s3_place p = {.https = !https};
    CHECK_EQ(s3_place_set_endpoint(&p, span_str(text)), ERR_OK);
    CHECK_EQ(p.https, https);
    CHECK_TEXT(p.authority, authority);
}

TEST(endpoints_are_split)
{
    check_endpoint("http://s3.example.com", false, "s3.example.com");
    check_endpoint("https://s3.example.com/", true, "s3.example.com");
    check_endpoint("https://s3.example.com:443", true, "s3.example.com");
    check_endpoint("http://s3.example.com:80//", false, "s3.example.com");
    check_endpoint("http://s3.example.com:443", false, "s3.example.com:443");
    check_endpoint("http://[::1]:9000", false, "[::1]:9000");
    static const char *const bad[] = {"s3.example.com", "ftp://x",    "http://",    "http:///",
                                      "http://a/b",     "http://u@h", "http://a b", "http://a?b"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct s3_place p;
        CHECK_EQ(s3_place_set_endpoint(&p, span_str(bad[i])), ERR_INVALID);
    }
}

TEST(a_completion_names_every_part)
{
    struct buf b = BUF_INIT;
    struct span etags[] = {SPAN_LIT("abc"), SPAN_LIT("<&>")};
    s3_request_put_completion(&b, etags, 2);
    CHECK_TEXT(
        buf_span(&b),
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"abc\"</ETag></Part>"
        "<Part><PartNumber>2</PartNumber><ETag>\"&lt;&amp;&gt;\"</ETag></Part>"
        "</CompleteMultipartUpload>");
    buf_deinit(&b);
}

TEST_MAIN()
