/* Where a lake is: endpoint, bucket, prefix, encryption at the store (settings.md 3.2). */
#include "sink/settings_read.h"

#include "base/mem.h"
#include "base/utf8.h"

#define PREFIX_MAX 768        /* bytes: room for the rest of a key of 1,024 */
#define FILE_TMP ".queen-tmp" /* of the bucket in a folder, see s3/bucket.h */

static struct span without_slashes_behind(struct span s, size_t keep)
{
    while (s.len > keep && s.ptr[s.len - 1] == '/')
        s.len--;
    return s;
}

static enum err refuse_endpoint(const struct reading *in, struct span value, const char *why)
{
    return settings_refuse(in, "%s=" SPAN_FMT " %s. It is %s", ROW(S_ENDPOINT), RAW(value), why,
                           setting_row(S_ENDPOINT)->what);
}

/* file:///absolute/path, taken literally (decisions.md 3). */
static enum err check_file_endpoint(const struct reading *in, struct span value,
                                    struct sink_settings *s)
{
    size_t scheme = strlen(FILE_SCHEME);
    struct span path = span_sub(value, scheme, value.len);
    if (path.len == 0)
        return refuse_endpoint(in, value, "has no path");
    if (path.ptr[0] != '/')
        return refuse_endpoint(in, value, "names a host before its path");
    s->is_file = true;
    s->endpoint = span_dup(without_slashes_behind(value, scheme + 1));
    return ERR_OK;
}

/* host[:port]; a colon inside [brackets] belongs to an IPv6 address. */
static bool is_port_ok(struct span authority)
{
    for (size_t i = authority.len; i > 0; i--) {
        uint8_t c = authority.ptr[i - 1];
        if (c == ']')
            break;
        if (c == ':') {
            uint64_t port;
            return span_parse_u64(span_sub(authority, i, authority.len), &port) &&
                   port <= UINT16_MAX;
        }
    }
    return true;
}

/* Is it a name or an address, with nothing that means something else in a URL? */
static bool is_host_ok(struct span authority)
{
    bool brackets = authority.ptr[0] == '[';
    const uint8_t *end = memchr(authority.ptr, brackets ? ']' : ':', authority.len);
    size_t len = end == NULL ? authority.len : (size_t)(end - authority.ptr);
    struct span host = span_sub(authority, brackets, len);
    for (size_t i = 0; i < host.len; i++) {
        uint8_t c = host.ptr[i];
        if (!settings_is_name(span_make(&c, 1)) && !(brackets && (c == ':' || c == '%')))
            return false;
    }
    struct span behind = span_sub(authority, brackets ? len + 1 : len, authority.len);
    return host.len > 0 && (!brackets || end != NULL) &&
           (behind.len == 0 ||
            (behind.ptr[0] == ':' && memchr(behind.ptr + 1, ':', behind.len - 1) == NULL));
}

static enum err check_http_endpoint(const struct reading *in, struct span value, size_t scheme,
                                    struct sink_settings *s)
{
    struct span rest = span_sub(value, scheme, value.len);
    const uint8_t *slash = rest.len > 0 ? memchr(rest.ptr, '/', rest.len) : NULL;
    size_t len = slash == NULL ? rest.len : (size_t)(slash - rest.ptr);
    struct span authority = span_sub(rest, 0, len);
    if (memchr(authority.ptr, '@', len) != NULL) /* maybe a password: not repeated */
        return settings_refuse(in, "%s carries a user name. The keys have variables of their own",
                               ROW(S_ENDPOINT));
    if (len == 0 || authority.ptr[0] == ':')
        return refuse_endpoint(in, value, "has no host");
    if (without_slashes_behind(rest, len).len > len)
        return refuse_endpoint(in, value, "carries a path");
    if (!is_host_ok(authority))
        return refuse_endpoint(in, value, "has a host that is no name and no address");
    if (!is_port_ok(authority))
        return refuse_endpoint(in, value, "has a port that is no number up to 65535");
    s->endpoint = span_dup(span_sub(value, 0, scheme + len));
    return ERR_OK;
}

enum err settings_read_endpoint(const struct reading *in, struct sink_settings *s)
{
    static const char *const schemes[] = {"http://", "https://"};
    char *text = NULL;
    TRY(settings_required(in, S_ENDPOINT, &text));
    struct span value = span_str(text);
    enum err err = ERR_AGAIN; /* no scheme yet */
    if (span_starts_with(value, span_str(FILE_SCHEME)))
        err = check_file_endpoint(in, value, s);
    for (unsigned i = 0; err == ERR_AGAIN && i < 2; i++) {
        if (span_starts_with(value, span_str(schemes[i])))
            err = check_http_endpoint(in, value, strlen(schemes[i]), s);
    }
    if (err == ERR_AGAIN)
        err = refuse_endpoint(in, value, "has no scheme");
    mem_free(text);
    return err;
}

enum err settings_read_bucket(const struct reading *in, struct sink_settings *s)
{
    TRY(settings_required(in, S_BUCKET, &s->bucket));
    struct span value = span_str(s->bucket);
    bool ok = memchr(value.ptr, '/', value.len) == NULL &&
              memchr(value.ptr, ' ', value.len) == NULL && !settings_has_control(value) &&
              !span_eq(value, SPAN_LIT(".")) && !span_eq(value, SPAN_LIT("..")) &&
              (!s->is_file || value.len <= FILE_SEGMENT_MAX);
    return ok ? ERR_OK
              : settings_refuse(in, "%s=" SPAN_FMT " is not a bucket name. It is %s", ROW(S_BUCKET),
                                RAW(value), setting_row(S_BUCKET)->what);
}

/* Without path style the bucket is the first label of the host. */
enum err settings_read_path_style(const struct reading *in, struct sink_settings *s)
{
    TRY(settings_bool(in, S_PATH_STYLE, &s->path_style));
    if (s->is_file || s->path_style || settings_is_name(span_str(s->bucket)))
        return ERR_OK;
    return settings_refuse(in, "%s=%s cannot stand in front of a host. Set %s=true, or correct it",
                           ROW(S_BUCKET), s->bucket, ROW(S_PATH_STYLE));
}

static enum err refuse_prefix(const struct reading *in, struct span raw, const char *why)
{
    return settings_refuse(in, "%s=" SPAN_FMT " %s. It is %s", ROW(S_PREFIX), RAW(raw), why,
                           setting_row(S_PREFIX)->what);
}

static enum err check_segments(const struct reading *in, struct span raw, struct span prefix,
                               const struct sink_settings *s)
{
    size_t start = 0;
    for (size_t i = 0; i <= prefix.len; i++) {
        if (i < prefix.len && prefix.ptr[i] != '/')
            continue;
        struct span segment = span_sub(prefix, start, i);
        if (segment.len == 0 || span_eq(segment, SPAN_LIT(".")) || span_eq(segment, SPAN_LIT("..")))
            return refuse_prefix(in, raw, "has an empty or relative segment");
        if (segment.len > s->key_segment_max)
            return settings_refuse(in,
                                   "%s has a segment longer than %llu bytes, the most that a key's "
                                   "segment may have here",
                                   ROW(S_PREFIX), (unsigned long long)s->key_segment_max);
        if (s->is_file && start == 0 && span_eq(segment, SPAN_LIT(FILE_TMP)))
            return refuse_prefix(in, raw, "is the sink's own folder for unfinished objects");
        start = i + 1;
    }
    return ERR_OK;
}

enum err settings_read_prefix(const struct reading *in, struct sink_settings *s)
{
    struct span raw = settings_value(in, S_PREFIX);
    if (raw.len == 0)
        raw = span_str(setting_row(S_PREFIX)->fallback_text);
    struct span prefix = without_slashes_behind(raw, 0);
    while (prefix.len > 0 && prefix.ptr[0] == '/')
        prefix = span_sub(prefix, 1, prefix.len);
    if (!utf8_valid(raw))
        return settings_refuse(in, "%s is not valid UTF-8", ROW(S_PREFIX));
    if (prefix.len == 0)
        return refuse_prefix(in, raw, "is empty");
    TRY(check_segments(in, raw, prefix, s));
    if (prefix.len > PREFIX_MAX)
        return settings_refuse(in, "%s is longer than %d bytes", ROW(S_PREFIX), PREFIX_MAX);
    s->prefix = span_dup(prefix);
    return ERR_OK;
}

enum err settings_read_sse(const struct reading *in, struct sink_settings *s)
{
    int mode = -1;
    const char *name = "off";
    TRY(settings_enum(in, S_SSE, &mode, &name));
    if (mode >= 0 && s->is_file)
        return settings_refuse(
            in,
            "%s=%s does not go with a file:// endpoint. Unset it: a folder has no "
            "server-side encryption",
            ROW(S_SSE), name);
    struct span key_id = settings_value(in, S_SSE_KMS_KEY_ID);
    if (key_id.len > 0 && strcmp(name, "aws:kms") != 0)
        return settings_refuse(in, "%s is set but %s=%s. A KMS key goes with `aws:kms`",
                               ROW(S_SSE_KMS_KEY_ID), ROW(S_SSE), name);
    if (!utf8_valid(key_id))
        return settings_refuse(in, "%s is not valid UTF-8", ROW(S_SSE_KMS_KEY_ID));
    TRY(settings_header_text(in, S_SSE_KMS_KEY_ID, key_id));
    if (mode >= 0)
        s->sse = span_dup(span_str(name));
    if (key_id.len > 0)
        s->sse_kms_key_id = span_dup(key_id);
    return ERR_OK;
}
