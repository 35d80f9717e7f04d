/* Building requests. The target and the headers are made once and used for both, the signature and
 * the wire, so that they cannot differ.
 *
 * Sent but not signed is only Content-Length, which libcurl adds. */
#include "s3/s3_request.h"

#include "base/mem.h"

#define EMPTY_SHA256 SPAN_LIT("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
#define HEADERS_MAX 8
#define PARAMS_MAX 4

struct row {
    const char *label;
    const char *method;
    bool has_body;
};

static const struct row rows[S3_CALLS] = {
    [S3_HEAD] = {"head", "HEAD", false},
    [S3_PUT] = {"put", "PUT", true},
    [S3_GET] = {"get", "GET", false},
    [S3_LIST] = {"list", "GET", false},
    [S3_MULTIPART_CREATE] = {"multipart_create", "POST", true},
    [S3_MULTIPART_PART] = {"multipart_part", "PUT", true},
    [S3_MULTIPART_COMPLETE] = {"multipart_complete", "POST", true},
    [S3_MULTIPART_ABORT] = {"multipart_abort", "DELETE", false},
};

const char *s3_call_label(enum s3_call call)
{
    return rows[call].label;
}

bool s3_call_has_body(enum s3_call call)
{
    return rows[call].has_body;
}

/* ---- Endpoint ---- */

static bool ends_with(struct span s, struct span end)
{
    return s.len >= end.len && span_eq(span_sub(s, s.len - end.len, s.len), end);
}

enum err s3_place_set_endpoint(struct s3_place *place, struct span endpoint)
{
    struct span http = SPAN_LIT("http://");
    struct span https = SPAN_LIT("https://");
    bool is_https = span_starts_with(endpoint, https);
    if (!is_https && !span_starts_with(endpoint, http))
        return ERR_INVALID;
    struct span authority = span_sub(endpoint, is_https ? https.len : http.len, endpoint.len);
    while (authority.len > 0 && authority.ptr[authority.len - 1] == '/')
        authority.len--;
    for (size_t i = 0; i < authority.len; i++) {
        uint8_t c = authority.ptr[i];
        if (c <= ' ' || c >= 0x7F || strchr("/?#@\\\"<>", c) != NULL)
            return ERR_INVALID;
    }
    struct span port = is_https ? SPAN_LIT(":443") : SPAN_LIT(":80");
    if (ends_with(authority, port))
        authority.len -= port.len;
    if (authority.len == 0)
        return ERR_INVALID;
    place->https = is_https;
    place->authority = authority;
    return ERR_OK;
}

/* ---- Target ---- */

static void put_path(struct buf *b, const struct s3_place *place, const struct s3_call_spec *spec)
{
    buf_putc(b, '/');
    if (place->path_style)
        sigv4_put_encoded(b, place->bucket, false);
    if (spec->call == S3_LIST)
        return;
    buf_puts(b, place->path_style ? "/" : "");
    sigv4_put_encoded(b, spec->key, true);
}

static void put_query(struct buf *b, const struct s3_call_spec *spec)
{
    struct sigv4_pair params[PARAMS_MAX];
    char part[16];
    size_t n = 0;
    switch (spec->call) {
    case S3_HEAD:
    case S3_PUT:
    case S3_GET:
        return;
    case S3_LIST:
        params[n++] = (struct sigv4_pair){SPAN_LIT("list-type"), SPAN_LIT("2")};
        params[n++] = (struct sigv4_pair){SPAN_LIT("max-keys"), SPAN_LIT("1000")};
        params[n++] = (struct sigv4_pair){SPAN_LIT("prefix"), spec->key};
        if (spec->start_after.len > 0)
            params[n++] = (struct sigv4_pair){SPAN_LIT("start-after"), spec->start_after};
        break;
    case S3_MULTIPART_CREATE:
        params[n++] = (struct sigv4_pair){SPAN_LIT("uploads"), SPAN_LIT("")};
        break;
    case S3_MULTIPART_PART:
        (void)snprintf(part, sizeof(part), "%u", spec->part); /* fits */
        params[n++] = (struct sigv4_pair){SPAN_LIT("partNumber"), span_str(part)};
        params[n++] = (struct sigv4_pair){SPAN_LIT("uploadId"), spec->upload_id};
        break;
    case S3_MULTIPART_COMPLETE:
    case S3_MULTIPART_ABORT:
        params[n++] = (struct sigv4_pair){SPAN_LIT("uploadId"), spec->upload_id};
        break;
    }
    sigv4_put_query(b, params, n);
}

/* ---- Headers ---- */

struct headers {
    struct sigv4_pair list[HEADERS_MAX]; /* added in the order of their names */
    size_t n;
};

static void add(struct headers *h, const char *name, struct span value)
{
    ASSERT(h->n < HEADERS_MAX);
    h->list[h->n++] = (struct sigv4_pair){span_str(name), value};
}

static void add_sse(struct headers *h, const struct s3_place *place)
{
    switch (place->sse) {
    case S3_SSE_OFF:
        return;
    case S3_SSE_AES256:
        add(h, "x-amz-server-side-encryption", SPAN_LIT("AES256"));
        return;
    case S3_SSE_KMS:
        add(h, "x-amz-server-side-encryption", SPAN_LIT("aws:kms"));
        if (place->kms_key_id.len > 0)
            add(h, "x-amz-server-side-encryption-aws-kms-key-id", place->kms_key_id);
        return;
    }
}

static void add_headers(struct headers *h, const struct s3_place *place,
                        const struct s3_call_spec *spec, struct span host, const char *date)
{
    bool stores = spec->call == S3_PUT || spec->call == S3_MULTIPART_CREATE;
    if (spec->call == S3_PUT)
        add(h, "content-md5", spec->md5);
    if (spec->call == S3_MULTIPART_COMPLETE)
        add(h, "content-type", SPAN_LIT("application/xml"));
    else if (stores && spec->content_type.len > 0)
        add(h, "content-type", spec->content_type);
    add(h, "host", host);
    add(h, "x-amz-content-sha256", spec->sha256.len > 0 ? spec->sha256 : EMPTY_SHA256);
    add(h, "x-amz-date", span_str(date));
    if (stores)
        add_sse(h, place);
}

static void put_line(struct buf *b, struct span name, struct span value)
{
    buf_put_span(b, name);
    buf_puts(b, ": ");
    buf_put_span(b, value);
    buf_putc(b, '\0');
}

void s3_request_build(const struct s3_place *place, const struct s3_call_spec *spec,
                      struct s3_wire *wire)
{
    struct headers h = {.n = 0};
    struct buf host = BUF_INIT;
    struct buf query = BUF_INIT;
    struct buf value = BUF_INIT;
    char date[SIGV4_DATE_SIZE];

    if (!place->path_style) {
        buf_put_span(&host, place->bucket);
        buf_putc(&host, '.');
    }
    buf_put_span(&host, place->authority);
    buf_reset(&wire->target);
    put_path(&wire->target, place, spec);
    put_query(&query, spec);
    sigv4_date(spec->wall_us, date);
    add_headers(&h, place, spec, buf_span(&host), date);
    wire->method = rows[spec->call].method;
    sigv4_put_authorization(
        &value, &place->key,
        &(struct sigv4_request){.method = wire->method,
                                .path = buf_span(&wire->target),
                                .query = buf_span(&query),
                                .headers = h.list,
                                .n_headers = h.n,
                                .payload = spec->sha256.len > 0 ? spec->sha256 : EMPTY_SHA256,
                                .date = date},
        wire->signature);

    buf_reset(&wire->headers);
    for (size_t i = 0; i < h.n; i++)
        put_line(&wire->headers, h.list[i].name, h.list[i].value);
    put_line(&wire->headers, SPAN_LIT("authorization"), buf_span(&value));
    buf_puts(&wire->target, query.len > 0 ? "?" : "");
    buf_put_span(&wire->target, buf_span(&query));
    buf_putc(&wire->target, '\0');
    buf_reset(&wire->url);
    buf_puts(&wire->url, place->https ? "https://" : "http://");
    buf_put_span(&wire->url, buf_span(&host));
    buf_puts(&wire->url, "/");
    buf_putc(&wire->url, '\0');
    buf_deinit(&value);
    buf_deinit(&query);
    buf_deinit(&host);
}

void s3_wire_deinit(struct s3_wire *wire)
{
    buf_deinit(&wire->url);
    buf_deinit(&wire->target);
    buf_deinit(&wire->headers);
}

/* ---- Completion ---- */

static void put_xml_text(struct buf *b, struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        switch (text.ptr[i]) {
        case '&':
            buf_puts(b, "&amp;");
            break;
        case '<':
            buf_puts(b, "&lt;");
            break;
        case '>':
            buf_puts(b, "&gt;");
            break;
        default:
            buf_putc(b, text.ptr[i]);
            break;
        }
    }
}

void s3_request_put_completion(struct buf *b, const struct span *etags, unsigned n)
{
    buf_puts(b, "<CompleteMultipartUpload>");
    for (unsigned i = 0; i < n; i++) {
        buf_printf(b, "<Part><PartNumber>%u</PartNumber><ETag>\"", i + 1);
        put_xml_text(b, etags[i]);
        buf_puts(b, "\"</ETag></Part>");
    }
    buf_puts(b, "</CompleteMultipartUpload>");
}
