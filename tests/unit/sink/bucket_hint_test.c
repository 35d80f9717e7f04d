/* Goal: every kind of trouble has a sentence of its own that names what to change. Method: a table
 * from what an attempt shows to the sentence. */
#include "sink/bucket_hint.h"

#include "lib/test.h"
#include "sink/settings_table.h"

#define NOW INT64_C(1796040000000000)
#define MINUTE INT64_C(60000000)
#define SECRET "wJalrXUtnFEMI"

/* Where the requests go: "p" path, "v" virtual-host style, "a" virtual-host style to an address,
 * "s" path style over https, "w" virtual-host style over https, "e" path style with encryption, "k"
 * with aws:kms. */
#define TEXT(literal) ((char *)(uintptr_t)(literal)) /* settings own theirs */

static struct sink_settings settings_of(char kind)
{
    struct sink_settings set = {.endpoint = TEXT("http://s3.example:9000"),
                                .region = TEXT("us-east-1"),
                                .bucket = TEXT("lake"),
                                .prefix = TEXT("queen"),
                                .access_key = TEXT("AKID7"),
                                .secret_key = TEXT(SECRET),
                                .key_segment_max = kind == 'm' ? 255 : 1024,
                                .path_style = strchr("psekm", kind) != NULL};
    if (kind == 'a')
        set.endpoint = TEXT("http://10.0.0.7:9000");
    if (kind == 's' || kind == 'w')
        set.endpoint = TEXT("https://s3.example");
    if (kind == 'e' || kind == 'k')
        set.sse = TEXT(kind == 'e' ? "AES256" : "aws:kms");
    return set;
}

struct row {
    char kind;
    const char *op;
    unsigned status;
    struct bucket_clue clue;
    enum bucket_cause cause;
    const char *says; /* the beginning */
    const char *sets; /* stands in it */
};

#define SILENT(why)                                                                                \
    {                                                                                              \
        .silence = (why)                                                                           \
    }
#define CODE(name)                                                                                 \
    {                                                                                              \
        .code = name                                                                               \
    }

static const struct row rows[] = {
    /* no answer */
    {'p', "head", 0, SILENT(BUCKET_NO_NAME), CAUSE_ENDPOINT,
     "the name of the host s3.example:9000 does not resolve", "QUEEN_S3_ENDPOINT"},
    {'v', "head", 0, SILENT(BUCKET_NO_NAME), CAUSE_ENDPOINT,
     "the name of the host lake.s3.example:9000 does not resolve", "QUEEN_S3_PATH_STYLE=true"},
    {'a', "head", 0, SILENT(BUCKET_NO_NAME), CAUSE_ADDRESSING,
     "virtual-host style puts the bucket's name in front", "QUEEN_S3_PATH_STYLE=true"},
    {'p', "head", 0, SILENT(BUCKET_REFUSED), CAUSE_ENDPOINT,
     "nobody takes connections at s3.example:9000", "QUEEN_S3_ENDPOINT"},
    {'p', "put", 0, SILENT(BUCKET_NO_CONNECTION), CAUSE_ENDPOINT,
     "there came no connection in time to s3.example:9000", "firewall"},
    {'p', "put", 0, SILENT(BUCKET_SLOW), CAUSE_ENDPOINT, "the store took the request but", ""},
    {'p', "head", 0, SILENT(BUCKET_CLOSED), CAUSE_ENDPOINT, "what answers there does not speak",
     "begin with https://"},
    {'s', "head", 0, SILENT(BUCKET_CLOSED), CAUSE_ENDPOINT, "the store closed the connection", ""},
    {'p', "head", 0, SILENT(BUCKET_NOT_HTTP), CAUSE_ENDPOINT, "what answers there does not speak",
     "begin with https://"},
    {'s', "head", 0, SILENT(BUCKET_NOT_HTTP), CAUSE_ENDPOINT,
     "what answers there does not speak HTTP", "correct QUEEN_S3_ENDPOINT"},
    {'s', "head", 0, SILENT(BUCKET_NOT_TLS), CAUSE_ENDPOINT,
     "what answers there does not speak TLS", "begin with http://"},
    {'s', "head", 0, SILENT(BUCKET_CERT_AUTHORITY), CAUSE_ENDPOINT,
     "the server's certificate is of an authority", "SSL_CERT_FILE"},
    {'s', "head", 0, SILENT(BUCKET_CERT_NAME), CAUSE_ENDPOINT,
     "the server's certificate is not for s3.example:", "QUEEN_S3_ENDPOINT"},
    {'w', "head", 0, SILENT(BUCKET_CERT_NAME), CAUSE_ENDPOINT,
     "the server's certificate is not for lake.s3.example:", "QUEEN_S3_PATH_STYLE=true"},
    {'s', "head", 0, SILENT(BUCKET_CERT_TIME), CAUSE_ENDPOINT,
     "the server's certificate has expired or is not valid yet", "clock"},
    {'s', "head", 0, SILENT(BUCKET_CERT_UNREADABLE), CAUSE_ENDPOINT,
     "the certificates to trust cannot be read", "SSL_CERT_FILE"},
    {'p', "put", 0, SILENT(BUCKET_SILENT), CAUSE_UNKNOWN, "", ""},
    /* region */
    {'p',
     "list",
     400,
     {.code = "AuthorizationHeaderMalformed", .region = "eu-1"},
     CAUSE_REGION,
     "the bucket is in the region eu-1, not in us-east-1",
     "QUEEN_S3_REGION=eu-1"},
    {'p',
     "head",
     301,
     {.region = "eu-1"},
     CAUSE_REGION,
     "the bucket is in the region eu-1, not in us-east-1",
     "QUEEN_S3_REGION=eu-1"},
    {'p',
     "head",
     400,
     {.region = "eu-1"},
     CAUSE_REGION,
     "the bucket is in the region eu-1",
     "QUEEN_S3_REGION=eu-1"},
    {'p', "list", 400, CODE("AuthorizationHeaderMalformed"), CAUSE_REGION,
     "the store does not take the region us-east-1", "QUEEN_S3_REGION"},
    {'p', "list", 301, CODE("PermanentRedirect"), CAUSE_REGION,
     "the bucket is in another region than us-east-1", "QUEEN_S3_REGION and QUEEN_S3_ENDPOINT"},
    {'p', "head", 400, CODE(""), CAUSE_UNKNOWN, "", ""},
    {'p', "put", 400, {.code = "InvalidDigest", .region = "us-east-1"}, CAUSE_UNKNOWN, "", ""},
    {'p', "put", 403, {.code = "AccessDenied", .region = "us-east-1"}, CAUSE_PERMISSION, "", ""},
    /* addressing */
    {'v',
     "list",
     404,
     {.code = "NoSuchBucket", .bucket = "lake.s3.example"},
     CAUSE_ADDRESSING,
     "the store took lake.s3.example for the bucket, not lake",
     "QUEEN_S3_PATH_STYLE=true"},
    {'v',
     "put",
     404,
     {.code = "NoSuchBucket", .bucket = "queen"},
     CAUSE_ADDRESSING,
     "the store took queen for the bucket, not lake",
     "QUEEN_S3_PATH_STYLE=true"},
    {'v',
     "list",
     200,
     {.lists_buckets = true},
     CAUSE_ADDRESSING,
     "the store did not see the bucket in the host name",
     "QUEEN_S3_PATH_STYLE=true"},
    {'p',
     "list",
     404,
     {.code = "NoSuchBucket", .bucket = "s3"},
     CAUSE_ADDRESSING,
     "the store took s3 for the bucket, not lake",
     "QUEEN_S3_PATH_STYLE=false"},
    {'p', "list", 404, CODE("NoSuchKey"), CAUSE_ADDRESSING,
     "the store did not see the bucket in the path", "QUEEN_S3_PATH_STYLE=false"},
    {'p', "list", 405, CODE("MethodNotAllowed"), CAUSE_ADDRESSING, "", "QUEEN_S3_PATH_STYLE=false"},
    {'p', "list", 403, CODE("SecondLevelDomainForbidden"), CAUSE_ADDRESSING,
     "the store wants the bucket in the host name", "QUEEN_S3_PATH_STYLE=false"},
    /* keys */
    {'p', "list", 403, CODE("InvalidAccessKeyId"), CAUSE_KEYS, "the store does not know the access",
     "QUEEN_S3_ACCESS_KEY"},
    {'p', "list", 404, CODE("XAdminUserNotFound"), CAUSE_KEYS, "the store does not know the access",
     "QUEEN_S3_ACCESS_KEY"},
    {'p', "put", 403, CODE("NotSignedUp"), CAUSE_KEYS, "the store does not know the access",
     "QUEEN_S3_ACCESS_KEY"},
    {'p', "list", 403, CODE("SignatureDoesNotMatch"), CAUSE_KEYS, "the secret key does not belong",
     "QUEEN_S3_SECRET_KEY"},
    {'p', "put", 401, CODE(""), CAUSE_KEYS, "the store does not take these keys",
     "QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY"},
    /* clock */
    {'p',
     "list",
     403,
     {.code = "RequestTimeTooSkewed", .server_us = NOW - 30 * MINUTE},
     CAUSE_CLOCK,
     "this machine's clock is 30 min ahead of the store's",
     "NTP"},
    {'p',
     "list",
     403,
     {.code = "RequestTimeTooSkewed", .server_us = NOW + 300 * MINUTE - 1},
     CAUSE_CLOCK,
     "this machine's clock is 5 hours behind the store's",
     "NTP"},
    {'p',
     "head",
     403,
     {.server_us = NOW + 14400 * MINUTE},
     CAUSE_CLOCK,
     "this machine's clock is 10 days behind the store's",
     "NTP"},
    {'p', "list", 403, CODE("RequestTimeTooSkewed"), CAUSE_CLOCK,
     "the clocks of this machine and of the store are too far apart", "NTP"},
    {'p',
     "list",
     403,
     {.code = "AccessDenied", .server_us = NOW - 13 * MINUTE},
     CAUSE_PERMISSION,
     "the access key may not",
     ""},
    {'p',
     "list",
     403,
     {.code = "InvalidAccessKeyId", .server_us = NOW - 30 * MINUTE},
     CAUSE_KEYS,
     "the store does not know",
     ""},
    {'p', "put", 503, {.code = "SlowDown", .server_us = NOW - 30 * MINUTE}, CAUSE_STORE, "", ""},
    /* bucket */
    {'p',
     "list",
     404,
     {.code = "NoSuchBucket", .bucket = "lake"},
     CAUSE_BUCKET,
     "there is no bucket lake at this endpoint: create it, or correct QUEEN_S3_BUCKET",
     ""},
    {'v', "put", 404, CODE("NoSuchBucket"), CAUSE_BUCKET, "there is no bucket lake",
     "QUEEN_S3_PATH_STYLE=true"},
    {'p', "list", 400, CODE("InvalidBucketName"), CAUSE_BUCKET, "the store allows no bucket",
     "QUEEN_S3_BUCKET"},
    /* permissions */
    {'p', "head", 403, CODE(""), CAUSE_PERMISSION, "the access key may not do this",
     "s3:ListBucket and s3:GetObject on the bucket lake"},
    {'p', "list", 403, CODE("AccessDenied"), CAUSE_PERMISSION, "the access key may not do this",
     "grant it s3:ListBucket on the bucket lake"},
    {'p', "get", 403, CODE("AccessDenied"), CAUSE_PERMISSION, "the access key may not do this",
     "grant it s3:GetObject"},
    {'p', "put", 403, CODE("AccessDenied"), CAUSE_PERMISSION, "the access key may not do this",
     "grant it s3:PutObject on the bucket lake"},
    {'p', "multipart_part", 403, CODE("AccessDenied"), CAUSE_PERMISSION, "", "s3:PutObject"},
    {'p', "multipart_complete", 200, CODE("AccessDenied"), CAUSE_PERMISSION, "", "s3:PutObject"},
    {'p', "multipart_abort", 403, CODE(""), CAUSE_PERMISSION, "", "s3:AbortMultipartUpload"},
    {'k', "put", 403, CODE("AccessDenied"), CAUSE_PERMISSION, "", "kms:GenerateDataKey"},
    /* encryption */
    {'e', "put", 400, CODE("InvalidRequest"), CAUSE_OBJECT,
     "the store refuses objects with the encryption AES256", "unset QUEEN_S3_SSE"},
    {'e', "multipart_create", 501, CODE("NotImplemented"), CAUSE_OBJECT,
     "the store refuses objects with the encryption AES256", "QUEEN_S3_SSE"},
    {'k', "put", 400, CODE("KMS.NotFoundException"), CAUSE_OBJECT, "the store cannot use the key",
     "QUEEN_S3_SSE_KMS_KEY_ID"},
    {'e', "get", 400, CODE("InvalidRequest"), CAUSE_UNKNOWN, "", ""},
    {'p', "put", 400, CODE("InvalidRequest"), CAUSE_UNKNOWN, "", ""},
    {'e', "put", 503, CODE("SlowDown"), CAUSE_STORE, "", ""},
    /* endpoint */
    {'p',
     "list",
     301,
     {.to_https = true},
     CAUSE_ENDPOINT,
     "the store wants TLS",
     "begin with https://"},
    {'s', "list", 200, CODE(""), CAUSE_ENDPOINT, "what answers there does not look like an S3",
     "QUEEN_S3_ENDPOINT"},
    {'s', "list", 404, CODE(""), CAUSE_ENDPOINT, "what answers there does not look like an S3",
     "QUEEN_S3_ENDPOINT"},
    {'p', "list", 501, CODE("NotImplemented"), CAUSE_STORE, "", ""},
    {'p', "put", 429, CODE(""), CAUSE_STORE, "", ""},
    {'p', "put", 404, CODE(""), CAUSE_UNKNOWN, "", ""},
};

/* Every QUEEN_S3_ name in the text is a setting. */
static void check_names(const char *text)
{
    for (const char *at = text; (at = strstr(at, "QUEEN_S3_")) != NULL; at++) {
        struct span name = span_make(at, strspn(at, "QUEENS3_ABCDFGHIJKLMOPRTVWXYZ"));
        bool known = false;
        for (unsigned id = 0; id < SETTING_COUNT; id++)
            known |= span_eq(name, span_str(setting_row((enum setting_id)id)->variable));
        if (!known)
            print_error("no setting: " SPAN_FMT "\n", SPAN_ARG(name));
        CHECK(known);
    }
}

static enum bucket_cause hint_of(struct buf *out, char kind, struct bucket_symptom s)
{
    struct sink_settings set = settings_of(kind);
    buf_reset(out);
    s.now_us = NOW;
    enum bucket_cause cause = bucket_hint_put(out, &set, &s);
    buf_putc(out, '\0');
    return cause;
}

TEST(every_row_has_its_sentence)
{
    struct buf out = BUF_INIT;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        enum bucket_cause cause = hint_of(&out, row->kind,
                                          (struct bucket_symptom){.op = row->op,
                                                                  .status = row->status,
                                                                  .error = SPAN_LIT("status: x"),
                                                                  .key = SPAN_LIT("queen/a/b"),
                                                                  .clue = &row->clue});
        const char *text = (const char *)out.ptr;
        bool ok = cause == row->cause && strncmp(text, row->says, strlen(row->says)) == 0 &&
                  strstr(text, row->sets) != NULL;
        if (!ok)
            print_error("row %zu: cause %d: %s\n", i, (int)cause, text);
        CHECK(ok);
        CHECK_EQ(text[0] != '\0', cause != CAUSE_UNKNOWN && cause != CAUSE_STORE);
        CHECK(strlen(text) < 400);
        CHECK(strstr(text, SECRET) == NULL && strstr(text, "AKID7") == NULL);
        check_names(text);
    }
    buf_deinit(&out);
}

/* decisions.md 2: the error names the setting; a passing failure of a long key only perhaps. */
TEST(a_key_with_a_long_part_names_the_setting)
{
    static const struct {
        unsigned status;
        const char *code;
        size_t part;
        enum bucket_cause cause;
        const char *says;
    } cases[] = {
        {400, "", 256, CAUSE_OBJECT, "the object's key has a part of 256 bytes"},
        {400, "KeyTooLongError", 300, CAUSE_OBJECT, "the object's key has a part of 300 bytes"},
        {400, "KeyTooLongError", 10, CAUSE_OBJECT, "the object's key has a part of 10 bytes"},
        {503, "", 256, CAUSE_OBJECT, "if this does not pass: the object's key has a part of 256"},
        {400, "", 255, CAUSE_UNKNOWN, ""},
        {503, "", 255, CAUSE_STORE, ""},
        {404, "NoSuchBucket", 256, CAUSE_BUCKET, "there is no bucket"},
        {403, "AccessDenied", 256, CAUSE_PERMISSION, "the access key may not"},
    };
    struct buf out = BUF_INIT, key = BUF_INIT;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bucket_clue clue = {.silence = BUCKET_ANSWERED};
        (void)snprintf(clue.code, sizeof(clue.code), "%s", cases[i].code);
        buf_reset(&key);
        buf_puts(&key, "queen/");
        for (size_t n = 0; n < cases[i].part; n++)
            buf_putc(&key, 'x');
        buf_puts(&key, "/z");
        enum bucket_cause cause = hint_of(
            &out, 'p',
            (struct bucket_symptom){
                .op = "put", .status = cases[i].status, .key = buf_span(&key), .clue = &clue});
        const char *text = (const char *)out.ptr;
        CHECK_EQ(cause, cases[i].cause);
        CHECK(strncmp(text, cases[i].says, strlen(cases[i].says)) == 0);
        CHECK_EQ(strstr(text, "QUEEN_S3_KEY_SEGMENT_MAX=255") != NULL, cause == CAUSE_OBJECT);
    }
    buf_deinit(&key);
    buf_deinit(&out);
}

/* The setting is as it should be, but an open window still has its long keys. */
TEST(a_window_begun_with_long_keys_names_its_intent)
{
    struct bucket_clue clue = {.silence = BUCKET_ANSWERED};
    struct buf out = BUF_INIT, key = BUF_INIT;
    buf_puts(&key, "queen/");
    for (size_t n = 0; n < 256; n++)
        buf_putc(&key, 'x');
    enum bucket_cause cause = hint_of(
        &out, 'm',
        (struct bucket_symptom){.op = "put", .status = 400, .key = buf_span(&key), .clue = &clue});
    const char *text = (const char *)out.ptr;
    CHECK_EQ(cause, CAUSE_OBJECT);
    CHECK(strstr(text, "correct segmentMax in its intent") != NULL);
    CHECK(strstr(text, "set QUEEN_S3_KEY_SEGMENT_MAX") == NULL);
    check_names(text);
    buf_deinit(&key);
    buf_deinit(&out);
}

/* What was fine before is not called a wrong setting. */
TEST(an_endpoint_that_has_answered_is_not_doubted)
{
    struct bucket_clue closed = {.silence = BUCKET_CLOSED}, tls = {.silence = BUCKET_NOT_TLS};
    struct buf out = BUF_INIT;
    struct bucket_symptom s = {.op = "put", .clue = &closed, .answered_before = true};
    (void)hint_of(&out, 'p', s);
    CHECK(strstr((char *)out.ptr, "closed the connection instead of answering") != NULL);
    CHECK(strstr((char *)out.ptr, "QUEEN_S3") == NULL);
    s.clue = &tls;
    (void)hint_of(&out, 's', s);
    CHECK(strstr((char *)out.ptr, "the TLS handshake failed, which it did not before") != NULL);
    buf_deinit(&out);
}

TEST(a_head_refused_beside_a_list_that_works_lacks_getobject)
{
    struct bucket_clue clue = {.silence = BUCKET_ANSWERED};
    struct buf out = BUF_INIT;
    struct bucket_symptom s = {.op = "head", .status = 403, .clue = &clue, .list_works = true};
    CHECK_EQ(hint_of(&out, 'p', s), CAUSE_PERMISSION);
    CHECK(strstr((char *)out.ptr, "grant it s3:GetObject on") != NULL);
    buf_deinit(&out);
}

TEST(plain_http_to_a_tls_port_is_seen_in_the_text)
{
    static const char *const texts[] = {
        "status 400: <html><title>400 The plain HTTP request was sent to HTTPS port</title>",
        "status 400: Client sent an HTTP request to an HTTPS server."};
    struct bucket_clue clue = {.silence = BUCKET_ANSWERED};
    struct buf out = BUF_INIT;
    for (size_t i = 0; i < 2; i++) {
        struct bucket_symptom s = {
            .op = "list", .status = 400, .error = span_str(texts[i]), .clue = &clue};
        CHECK_EQ(hint_of(&out, 'p', s), CAUSE_ENDPOINT);
        CHECK(strstr((char *)out.ptr, "begin with https://") != NULL);
    }
    buf_deinit(&out);
}

TEST(only_an_address_needs_path_style)
{
    static const struct {
        const char *endpoint;
        bool needs;
    } cases[] = {{"http://10.0.0.7", true},       {"https://10.0.0.7:9000", true},
                 {"http://[::1]:9000", true},     {"http://10.example", false},
                 {"http://localhost:80", false},  {"https://s3.amazonaws.com", false},
                 {"http://127.0.0.1.nip", false}, {"http://minio", false}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sink_settings set = settings_of('v');
        set.endpoint = TEXT(cases[i].endpoint);
        CHECK_EQ(bucket_hint_needs_path_style(&set), cases[i].needs);
        set.path_style = true;
        CHECK(!bucket_hint_needs_path_style(&set));
    }
}

TEST(a_folder_has_no_hints)
{
    struct bucket_clue clue = {.silence = BUCKET_ANSWERED};
    struct sink_settings set = {
        .is_file = true, .endpoint = TEXT("file:///lake"), .bucket = TEXT("b")};
    struct buf out = BUF_INIT;
    CHECK_EQ(bucket_hint_put(&out, &set, &(struct bucket_symptom){.op = "head", .clue = &clue}),
             CAUSE_UNKNOWN);
    CHECK_EQ(out.len, 0);
    CHECK(!bucket_hint_needs_path_style(&set));
    buf_deinit(&out);
}

TEST_MAIN()
