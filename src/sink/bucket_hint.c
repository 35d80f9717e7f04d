/* The table of causes. Answers are looked at from the most telling sign to the least: a redirection
 * to https, clocks that differ, what the S3 error code names, the region, the bucket, then what
 * depends on the request, and last the bare status. */
#include "sink/bucket_hint.h"

#include "base/timefmt.h"

#define SKEW_TOLD_US (14 * 60 * US_PER_SEC) /* stores refuse from 15 minutes on */
#define SEGMENT_OF_FOLDERS 255u             /* bytes of a file's name */

struct hint {
    struct buf *out;
    const struct sink_settings *set;
    const struct bucket_symptom *s;
};

/* --- looking --- */

static bool code_is(const struct hint *h, const char *code)
{
    return strcmp(h->s->clue->code, code) == 0;
}

static bool code_begins(const struct hint *h, const char *code)
{
    return span_starts_with(span_str(h->s->clue->code), span_str(code));
}

static bool op_is(const struct hint *h, const char *op)
{
    return strcmp(h->s->op, op) == 0;
}

static bool writes_object(const struct hint *h)
{
    return op_is(h, "put") || op_is(h, "multipart_create") || op_is(h, "multipart_part") ||
           op_is(h, "multipart_complete");
}

static bool is_https(const struct sink_settings *set)
{
    return span_starts_with(span_str(set->endpoint), SPAN_LIT("https://"));
}

static const char *authority(const struct sink_settings *set)
{
    return set->endpoint + (is_https(set) ? strlen("https://") : strlen("http://"));
}

static bool is_ip_address(const char *host)
{
    size_t len = strcspn(host, ":");

    return host[0] == '[' || (len > 0 && strspn(host, "0123456789.") == len);
}

bool bucket_hint_needs_path_style(const struct sink_settings *set)
{
    return !set->is_file && !set->path_style && is_ip_address(authority(set));
}

static size_t longest_segment(struct span key)
{
    size_t longest = 0, from = 0;

    for (size_t i = 0; i <= key.len; i++) {
        if (i < key.len && key.ptr[i] != '/')
            continue;
        longest = i - from > longest ? i - from : longest;
        from = i + 1;
    }
    return longest;
}

/* --- saying --- */

#define SAY(h, ...) buf_printf((h)->out, __VA_ARGS__)

/* The host that was asked, with its port. */
static void put_host(const struct hint *h)
{
    if (!h->set->path_style)
        SAY(h, "%s.", h->set->bucket);
    SAY(h, "%s", authority(h->set));
}

static const char *other_style(const struct hint *h)
{
    return h->set->path_style ? "QUEEN_S3_PATH_STYLE=false" : "QUEEN_S3_PATH_STYLE=true";
}

/* --- no answer --- */

static void no_name(const struct hint *h)
{
    SAY(h, "the name of the host ");
    put_host(h);
    if (h->set->path_style)
        SAY(h, " does not resolve: correct QUEEN_S3_ENDPOINT, or this machine's name service");
    else
        SAY(h, " does not resolve: set QUEEN_S3_PATH_STYLE=true if the store has no wildcard DNS "
               "name for its buckets, else correct QUEEN_S3_ENDPOINT or QUEEN_S3_BUCKET");
}

static void no_connection(const struct hint *h, const char *what)
{
    SAY(h, "%s ", what);
    put_host(h);
    SAY(h, ": start the store, correct host and port in QUEEN_S3_ENDPOINT, or let the firewall "
           "pass it");
}

static void no_http(const struct hint *h)
{
    if (is_https(h->set))
        SAY(h, "what answers there does not speak HTTP: correct QUEEN_S3_ENDPOINT");
    else
        SAY(h, "what answers there does not speak plain HTTP: if it speaks TLS, QUEEN_S3_ENDPOINT "
               "has to begin with https://");
}

static void no_tls(const struct hint *h)
{
    if (h->s->answered_before)
        SAY(h, "the TLS handshake failed, which it did not before: look at the store");
    else
        SAY(h, "what answers there does not speak TLS: let QUEEN_S3_ENDPOINT begin with http://, "
               "or name the port that does");
}

static void unknown_authority(const struct hint *h)
{
    SAY(h, "the server's certificate is of an authority that is not trusted here: add that "
           "authority's certificate to the system's store (update-ca-certificates), or name its "
           "PEM file in SSL_CERT_FILE");
}

static void certificate_of_another(const struct hint *h)
{
    SAY(h, "the server's certificate is not for ");
    put_host(h);
    SAY(h, ": correct the host in QUEEN_S3_ENDPOINT, or give the server a certificate with that "
           "name");
    if (!h->set->path_style)
        SAY(h, ", or set QUEEN_S3_PATH_STYLE=true so that the bucket is not part of the name");
}

static enum bucket_cause silence(const struct hint *h)
{
    if (bucket_hint_needs_path_style(h->set)) {
        SAY(h, "virtual-host style puts the bucket's name in front of the host, which does not go "
               "with an IP address: set QUEEN_S3_PATH_STYLE=true");
        return CAUSE_ADDRESSING;
    }
    switch (h->s->clue->silence) {
    case BUCKET_ANSWERED:
    case BUCKET_SILENT:
        return CAUSE_UNKNOWN;
    case BUCKET_NO_NAME:
        no_name(h);
        break;
    case BUCKET_REFUSED:
        no_connection(h, "nobody takes connections at");
        break;
    case BUCKET_NO_CONNECTION:
        no_connection(h, "there came no connection in time to");
        break;
    case BUCKET_SLOW:
        SAY(h, "the store took the request but did not answer in time: look at the store and at "
               "the network between");
        break;
    case BUCKET_CLOSED:
        if (h->s->answered_before || is_https(h->set))
            SAY(h, "the store closed the connection instead of answering: look at the store");
        else
            no_http(h);
        break;
    case BUCKET_NOT_HTTP:
        no_http(h);
        break;
    case BUCKET_NOT_TLS:
        no_tls(h);
        break;
    case BUCKET_CERT_AUTHORITY:
        unknown_authority(h);
        break;
    case BUCKET_CERT_NAME:
        certificate_of_another(h);
        break;
    case BUCKET_CERT_TIME:
        SAY(h, "the server's certificate has expired or is not valid yet: renew it, or correct "
               "this machine's clock");
        break;
    case BUCKET_CERT_UNREADABLE:
        SAY(h, "the certificates to trust cannot be read: correct the path in SSL_CERT_FILE, a PEM "
               "file, or unset it");
        break;
    }
    return CAUSE_ENDPOINT;
}

/* --- answers: every request fails --- */

/* Rounded to the nearest. */
static void put_span_of_time(const struct hint *h, int64_t us)
{
    long long minutes = (us / US_PER_SEC + 30) / 60;

    if (minutes < 180)
        SAY(h, "%lld min", minutes);
    else if (minutes < 72 * 60)
        SAY(h, "%lld hours", (minutes + 30) / 60);
    else
        SAY(h, "%lld days", (minutes + 12 * 60) / (24 * 60));
}

/* Codes that a store may answer with because the times differ. */
static bool may_be_clock(const struct hint *h)
{
    static const char *const codes[] = {"", "AccessDenied", "SignatureDoesNotMatch",
                                        "AuthorizationHeaderMalformed", "InvalidRequest"};

    if (h->s->status != 400 && h->s->status != 401 && h->s->status != 403)
        return false;
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (code_is(h, codes[i]))
            return true;
    }
    return false;
}

static bool clock_differs(const struct hint *h)
{
    bool known = h->s->clue->server_us != 0;
    int64_t ahead = known ? h->s->now_us - h->s->clue->server_us : 0;
    int64_t apart = ahead < 0 ? -ahead : ahead;
    bool told = code_is(h, "RequestTimeTooSkewed") || code_is(h, "RequestExpired");

    if (!told && !(apart >= SKEW_TOLD_US && may_be_clock(h)))
        return false;
    if (apart < 60 * US_PER_SEC) { /* or not known */
        SAY(h, "the clocks of this machine and of the store are too far apart: correct them (NTP)");
        return true;
    }
    SAY(h, "this machine's clock is ");
    put_span_of_time(h, apart);
    SAY(h, " %s the store's: correct the one that is wrong (NTP)",
        ahead > 0 ? "ahead of" : "behind");
    return true;
}

static bool wants_https(const struct hint *h)
{
    if (is_https(h->set))
        return false;
    if (!h->s->clue->to_https &&
        !(h->s->status == 400 && span_contains(h->s->error, SPAN_LIT("HTTPS"))))
        return false;
    SAY(h, "the store wants TLS: QUEEN_S3_ENDPOINT has to begin with https://");
    return true;
}

/* What the code alone says. */
static const struct {
    const char *code;
    enum bucket_cause cause;
    const char *text;
} codes[] = {
    {"InvalidAccessKeyId", CAUSE_KEYS,
     "the store does not know the access key: correct QUEEN_S3_ACCESS_KEY"},
    {"XAdminUserNotFound", CAUSE_KEYS,
     "the store does not know the access key: correct QUEEN_S3_ACCESS_KEY"},
    {"NotSignedUp", CAUSE_KEYS,
     "the store does not know the access key, or its account is not open: correct "
     "QUEEN_S3_ACCESS_KEY"},
    {"InvalidSecurity", CAUSE_KEYS,
     "the store does not take these keys: correct QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY"},
    {"ExpiredToken", CAUSE_KEYS,
     "the access key has expired: set QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY to a pair that "
     "stays valid"},
    {"InvalidToken", CAUSE_KEYS,
     "the access key needs a session token, which is not supported: set QUEEN_S3_ACCESS_KEY and "
     "QUEEN_S3_SECRET_KEY to a pair that stays valid"},
    {"SignatureDoesNotMatch", CAUSE_KEYS,
     "the secret key does not belong to the access key: correct QUEEN_S3_SECRET_KEY (or a proxy on "
     "the way rewrites host or path, which are signed)"},
    {"SecondLevelDomainForbidden", CAUSE_ADDRESSING,
     "the store wants the bucket in the host name: set QUEEN_S3_PATH_STYLE=false"},
    {"PathStyleDomainForbidden", CAUSE_ADDRESSING,
     "the store wants the bucket in the host name: set QUEEN_S3_PATH_STYLE=false"},
    {"VirtualHostDomainRequired", CAUSE_ADDRESSING,
     "the store wants the bucket in the host name: set QUEEN_S3_PATH_STYLE=false"},
    {"InvalidBucketName", CAUSE_BUCKET,
     "the store allows no bucket of that name: correct QUEEN_S3_BUCKET"},
};

static enum bucket_cause what_the_code_says(const struct hint *h)
{
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (!code_is(h, codes[i].code))
            continue;
        SAY(h, "%s", codes[i].text);
        return codes[i].cause;
    }
    return CAUSE_UNKNOWN;
}

static bool other_region(const struct hint *h)
{
    unsigned status = h->s->status;
    const char *told = h->s->clue->region;
    bool malformed = code_is(h, "AuthorizationHeaderMalformed");

    if (status != 301 && status != 307 && status != 400)
        return false;
    if (told[0] != '\0' && strcmp(told, h->set->region) != 0) {
        SAY(h, "the bucket is in the region %s, not in %s: set QUEEN_S3_REGION=%s", told,
            h->set->region, told);
        return true;
    }
    if (malformed)
        SAY(h,
            "the store does not take the region %s, or the form of the access key: correct "
            "QUEEN_S3_REGION or QUEEN_S3_ACCESS_KEY",
            h->set->region);
    else if (status == 301 || status == 307)
        SAY(h,
            "the bucket is in another region than %s, or at another endpoint: correct "
            "QUEEN_S3_REGION and QUEEN_S3_ENDPOINT",
            h->set->region);
    return malformed || status != 400;
}

static enum bucket_cause no_bucket(const struct hint *h)
{
    const char *looked_for = h->s->clue->bucket;

    if (looked_for[0] != '\0' && strcmp(looked_for, h->set->bucket) != 0) {
        SAY(h, "the store took %s for the bucket, not %s: set %s", looked_for, h->set->bucket,
            other_style(h));
        return CAUSE_ADDRESSING;
    }
    SAY(h, "there is no bucket %s at this endpoint: create it, or correct QUEEN_S3_BUCKET",
        h->set->bucket);
    if (looked_for[0] == '\0')
        SAY(h, " (or set %s, if the store looks for the bucket in the %s)", other_style(h),
            h->set->path_style ? "host name" : "path");
    return CAUSE_BUCKET;
}

/* A LIST names no object: an answer as if it did shows that the bucket was not seen. */
static enum bucket_cause odd_list(const struct hint *h)
{
    if (!op_is(h, "list"))
        return CAUSE_UNKNOWN;
    if (h->s->clue->lists_buckets || code_is(h, "NoSuchKey") || code_is(h, "MethodNotAllowed")) {
        SAY(h, "the store did not see the bucket in the %s: set %s",
            h->set->path_style ? "path" : "host name", other_style(h));
        return CAUSE_ADDRESSING;
    }
    if (h->s->clue->code[0] == '\0' &&
        (h->s->status < 300 || h->s->status == 404 || h->s->status == 405)) {
        SAY(h, "what answers there does not look like an S3 store: correct QUEEN_S3_ENDPOINT");
        return CAUSE_ENDPOINT;
    }
    return CAUSE_UNKNOWN;
}

/* --- answers: this request fails --- */

static bool encryption_refused(const struct hint *h)
{
    unsigned status = h->s->status;
    bool creates = op_is(h, "put") || op_is(h, "multipart_create");

    if (!creates || h->set->sse == NULL)
        return false;
    if (code_begins(h, "KMS.") || code_begins(h, "Kms")) {
        SAY(h, "the store cannot use the key of the encryption: correct QUEEN_S3_SSE_KMS_KEY_ID");
        return true;
    }
    bool refused =
        status == 501 || (status == 400 && (code_is(h, "") || code_is(h, "InvalidRequest") ||
                                            code_is(h, "InvalidArgument") ||
                                            code_is(h, "InvalidEncryptionAlgorithmError")));
    if (refused)
        SAY(h,
            "the store refuses objects with the encryption %s: set up its keys in the store, or "
            "unset QUEEN_S3_SSE",
            h->set->sse);
    return refused;
}

static bool key_too_long(const struct hint *h)
{
    unsigned status = h->s->status;
    size_t longest = longest_segment(h->s->key);
    bool told = code_is(h, "KeyTooLongError") || code_is(h, "KeyTooLong");
    bool may_be = status == 400 || status == 409 || status == 414 || status >= 500;

    if (op_is(h, "list") || (!told && (longest <= SEGMENT_OF_FOLDERS || !may_be)))
        return false;
    SAY(h,
        "%sthe object's key has a part of %zu bytes between two slashes, and stores that keep "
        "keys as folders take %u: ",
        status >= 500 ? "if this does not pass: " : "", longest, SEGMENT_OF_FOLDERS);
    if (longest > h->set->key_segment_max) /* the setting has been changed since */
        SAY(h, "the window was begun with such keys, correct segmentMax in its intent "
               "(docs/operations.md, QUEEN_S3_KEY_SEGMENT_MAX)");
    else
        SAY(h, "set QUEEN_S3_KEY_SEGMENT_MAX=%u", SEGMENT_OF_FOLDERS);
    return true;
}

static const char *permission_for(const struct hint *h)
{
    if (op_is(h, "head"))
        return h->s->list_works ? "s3:GetObject" : "s3:ListBucket and s3:GetObject";
    if (op_is(h, "get"))
        return "s3:GetObject and, so that an object that is not there is no refusal, s3:ListBucket";
    if (op_is(h, "list"))
        return "s3:ListBucket";
    return op_is(h, "multipart_abort") ? "s3:AbortMultipartUpload" : "s3:PutObject";
}

static enum bucket_cause denied(const struct hint *h)
{
    if (h->s->status == 401) {
        SAY(h, "the store does not take these keys: correct QUEEN_S3_ACCESS_KEY and "
               "QUEEN_S3_SECRET_KEY");
        return CAUSE_KEYS;
    }
    SAY(h,
        "the access key may not do this: grant it %s%s on the bucket %s, or correct "
        "QUEEN_S3_ACCESS_KEY",
        permission_for(h),
        writes_object(h) && h->set->sse != NULL && strcmp(h->set->sse, "aws:kms") == 0
            ? " and kms:GenerateDataKey"
            : "",
        h->set->bucket);
    return CAUSE_PERMISSION;
}

static enum bucket_cause answer(const struct hint *h)
{
    enum bucket_cause cause;
    unsigned status = h->s->status;

    if (wants_https(h))
        return CAUSE_ENDPOINT;
    if (clock_differs(h))
        return CAUSE_CLOCK;
    cause = what_the_code_says(h);
    if (cause != CAUSE_UNKNOWN)
        return cause;
    if (other_region(h))
        return CAUSE_REGION;
    if (code_is(h, "NoSuchBucket"))
        return no_bucket(h);
    cause = odd_list(h);
    if (cause != CAUSE_UNKNOWN)
        return cause;
    if (encryption_refused(h) || key_too_long(h))
        return CAUSE_OBJECT;
    if (status == 401 || status == 403 || code_is(h, "AccessDenied"))
        return denied(h);
    return status >= 500 || status == 408 || status == 429 ? CAUSE_STORE : CAUSE_UNKNOWN;
}

enum bucket_cause bucket_hint_put(struct buf *out, const struct sink_settings *set,
                                  const struct bucket_symptom *s)
{
    const struct hint h = {out, set, s};

    if (set->is_file)
        return CAUSE_UNKNOWN;
    return s->status == 0 ? silence(&h) : answer(&h);
}
