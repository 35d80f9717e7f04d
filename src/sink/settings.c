/* Reading the sink's settings at boot (settings.md 1-8).
 *
 * Every value is looked up once, trimmed, and read as its row of the table says; the first one that
 * does not fit ends the reading with the sentence an operator sees. Features that are accepted but
 * not built yet are refused after everything else, so that a wrong value keeps its own sentence
 * (decisions.md 29). Neither key ever gets into a text. */
#include "sink/settings.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "sink/settings_table.h"

#define PREFIX_MAX 768       /* bytes: room for the rest of a key of 1,024 */
#define SINK_NAME_MAX 64     /* bytes */
#define FILE_SEGMENT_MAX 255 /* bytes of a file's name: decisions.md 2 */
#define FILE_SCHEME "file://"
#define FILE_TMP ".queen-tmp" /* of the bucket in a folder, see s3/bucket.h */
#define EMBEDDED "QUEEN_S3_EMBEDDED"

struct reading {
    env_get_fn get;
    void *ctx;
    struct error *error;
};

#define ROW(id) setting_row(id)->variable
#define RAW(span) SPAN_ARG(span)

static enum err refuse(const struct reading *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static enum err refuse(const struct reading *in, const char *format, ...)
{
    struct buf text = BUF_INIT;
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    enum err err = error_set(in->error, ERR_INVALID, SPAN_FMT, SPAN_ARG(buf_span(&text)));
    buf_deinit(&text);
    return err;
}

/* ---- Values ---- */

/* Length of the white space character (Unicode White_Space) that s starts with; 0 for none. */
static size_t blank_at(struct span s)
{
    static const char *const blanks[] = {
        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x81",
        "\xE2\x80\x82", "\xE2\x80\x83", "\xE2\x80\x84", "\xE2\x80\x85", "\xE2\x80\x86",
        "\xE2\x80\x87", "\xE2\x80\x88", "\xE2\x80\x89", "\xE2\x80\x8A", "\xE2\x80\xA8",
        "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80",
    };
    if (s.len > 0 && (s.ptr[0] == ' ' || (s.ptr[0] >= '\t' && s.ptr[0] <= '\r')))
        return 1;
    for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++) {
        if (span_starts_with(s, span_str(blanks[i])))
            return strlen(blanks[i]);
    }
    return 0;
}

static struct span trim(struct span s)
{
    for (size_t n; (n = blank_at(s)) > 0;)
        s = span_sub(s, n, s.len);
    for (bool more = true; more;) {
        more = false;
        for (size_t n = 1; n <= 3 && n <= s.len; n++) {
            if (blank_at(span_sub(s, s.len - n, s.len)) == n) {
                s = span_sub(s, 0, s.len - n);
                more = true;
                break;
            }
        }
    }
    return s;
}

/* Trimmed; empty when unset. */
static struct span value_of(const struct reading *in, enum setting_id id)
{
    const char *value = in->get(in->ctx, ROW(id));
    return value == NULL ? (struct span){0} : trim(span_str(value));
}

static bool is_set(const struct reading *in, enum setting_id id)
{
    return value_of(in, id).len > 0;
}

static bool parse_bool(struct span value, bool *out)
{
    static const char *const yes[] = {"true", "1", "yes", "on"};
    static const char *const no[] = {"false", "0", "no", "off"};
    for (unsigned i = 0; i < 4; i++) {
        if (span_eq_nocase(value, span_str(yes[i]))) {
            *out = true;
            return true;
        }
        if (span_eq_nocase(value, span_str(no[i]))) {
            *out = false;
            return true;
        }
    }
    return false;
}

static enum err read_bool(const struct reading *in, enum setting_id id, bool *out)
{
    struct span value = value_of(in, id);
    *out = setting_row(id)->fallback != 0;
    if (value.len == 0 || parse_bool(value, out))
        return ERR_OK;
    return refuse(in, "%s=" SPAN_FMT " is not a boolean. It is `true` or `false`", ROW(id),
                  RAW(value));
}

static enum err read_int(const struct reading *in, enum setting_id id, uint64_t *out)
{
    const struct setting *row = setting_row(id);
    struct span value = value_of(in, id);
    unsigned long long min = row->min;
    unsigned long long max = row->max;
    uint64_t n = row->fallback;
    if (value.len > 0 && !span_parse_u64(value, &n))
        return refuse(in, "%s=" SPAN_FMT " is not a whole number. It is %s, in %llu..=%llu",
                      row->variable, RAW(value), row->what, min, max);
    if (value.len > 0 && (n < row->min || n > row->max))
        return refuse(in, "%s=%llu is outside %llu..=%llu. It is %s", row->variable,
                      (unsigned long long)n, min, max, row->what);
    *out = n;
    return ERR_OK;
}

/* The two that the broker reads itself have a sentence of their own. */
static enum err read_broker_int(const struct reading *in, enum setting_id id, uint64_t fallback,
                                uint64_t *out)
{
    const struct setting *row = setting_row(id);
    struct span value = value_of(in, id);
    uint64_t n = fallback;
    if (value.len > 0 && (!span_parse_u64(value, &n) || n < row->min || n > row->max))
        return refuse(in, "%s=" SPAN_FMT " is not an integer in %llu..=%llu", row->variable,
                      RAW(value), (unsigned long long)row->min, (unsigned long long)row->max);
    *out = n;
    return ERR_OK;
}

/* *out is left alone when unset. spelling_out (may be NULL): the canonical one. */
static enum err read_enum(const struct reading *in, enum setting_id id, int *out,
                          const char **spelling_out)
{
    const struct setting *row = setting_row(id);
    struct span value = value_of(in, id);
    if (value.len == 0)
        return ERR_OK;
    for (const struct setting_spelling *s = row->spellings; s->text != NULL; s++) {
        if (span_eq_nocase(value, span_str(s->text))) {
            *out = s->value;
            if (spelling_out != NULL)
                *spelling_out = s->canonical;
            return ERR_OK;
        }
    }
    struct buf text = BUF_INIT;
    buf_printf(&text, "%s=", row->variable);
    for (size_t i = 0; i < value.len; i++)
        buf_putc(&text, value.ptr[i] >= 'A' && value.ptr[i] <= 'Z' ? (uint8_t)(value.ptr[i] | 0x20)
                                                                   : value.ptr[i]);
    buf_printf(&text, " is not a %s. It is ", row->noun);
    setting_put_accepted(&text, row);
    enum err err = refuse(in, SPAN_FMT, SPAN_ARG(buf_span(&text)));
    buf_deinit(&text);
    return err;
}

/* A text that must be there; *out owned. */
static enum err read_required(const struct reading *in, enum setting_id id, char **out)
{
    struct span value = value_of(in, id);
    if (value.len == 0)
        return refuse(in, "%s is not set: it is %s", ROW(id), setting_row(id)->what);
    if (!utf8_valid(value))
        return refuse(in, "%s is not valid UTF-8. It is %s", ROW(id), setting_row(id)->what);
    *out = span_dup(value);
    return ERR_OK;
}

static bool has_control(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < ' ' || s.ptr[i] == 0x7F)
            return true;
    }
    return false;
}

/* A text that goes into the head of a request. It may be a key: not repeated. */
static enum err check_header_text(const struct reading *in, enum setting_id id, struct span value)
{
    if (has_control(value))
        return refuse(in, "%s holds a line break or another control character. It is %s", ROW(id),
                      setting_row(id)->what);
    return ERR_OK;
}

/* ---- Per sink ---- */

static bool has_queue(const struct sink_settings *s, struct span name)
{
    for (size_t i = 0; i < s->n_queues; i++) {
        if (span_eq(span_str(s->queues[i]), name))
            return true;
    }
    return false;
}

static enum err read_queues(const struct reading *in, struct sink_settings *s)
{
    char *text = NULL;
    TRY(read_required(in, S_QUEUES, &text));
    struct span left = span_str(text);
    s->all_queues = span_eq(left, SPAN_LIT("*"));
    while (!s->all_queues && left.len > 0) {
        const uint8_t *comma = memchr(left.ptr, ',', left.len);
        size_t len = comma == NULL ? left.len : (size_t)(comma - left.ptr);
        struct span name = trim(span_sub(left, 0, len));
        if (name.len > 0 && !has_queue(s, name)) {
            s->queues = mem_grow(s->queues, (s->n_queues + 1) * sizeof(char *));
            s->queues[s->n_queues++] = span_dup(name);
        }
        left = span_sub(left, comma == NULL ? len : len + 1, left.len);
    }
    mem_free(text);
    if (!s->all_queues && s->n_queues == 0)
        return refuse(in, "%s=" SPAN_FMT " names no queue. It is %s", ROW(S_QUEUES),
                      RAW(value_of(in, S_QUEUES)), setting_row(S_QUEUES)->what);
    return ERR_OK;
}

/* Letters, digits, '.', '_' and '-'. */
static bool is_name(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = s.ptr[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return true;
}

static enum err read_sink_name(const struct reading *in, struct sink_settings *s)
{
    struct span value = value_of(in, S_SINK);
    if (value.len == 0)
        value = span_str(setting_row(S_SINK)->fallback_text);
    if (value.len > SINK_NAME_MAX || !is_name(value))
        return refuse(in, "%s=" SPAN_FMT " is not a sink name. It is %s", ROW(S_SINK), RAW(value),
                      setting_row(S_SINK)->what);
    s->sink = span_dup(value);
    return ERR_OK;
}

static struct span without_slashes_behind(struct span s, size_t keep)
{
    while (s.len > keep && s.ptr[s.len - 1] == '/')
        s.len--;
    return s;
}

static enum err refuse_endpoint(const struct reading *in, struct span value, const char *why)
{
    return refuse(in, "%s=" SPAN_FMT " %s. It is %s", ROW(S_ENDPOINT), RAW(value), why,
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
        if (!is_name(span_make(&c, 1)) && !(brackets && (c == ':' || c == '%')))
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
        return refuse(in, "%s carries a user name. The keys have variables of their own",
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

static enum err read_endpoint(const struct reading *in, struct sink_settings *s)
{
    static const char *const schemes[] = {"http://", "https://"};
    char *text = NULL;
    TRY(read_required(in, S_ENDPOINT, &text));
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

static enum err read_bucket(const struct reading *in, struct sink_settings *s)
{
    TRY(read_required(in, S_BUCKET, &s->bucket));
    struct span value = span_str(s->bucket);
    bool ok = memchr(value.ptr, '/', value.len) == NULL &&
              memchr(value.ptr, ' ', value.len) == NULL && !has_control(value) &&
              !span_eq(value, SPAN_LIT(".")) && !span_eq(value, SPAN_LIT("..")) &&
              (!s->is_file || value.len <= FILE_SEGMENT_MAX);
    return ok ? ERR_OK
              : refuse(in, "%s=" SPAN_FMT " is not a bucket name. It is %s", ROW(S_BUCKET),
                       RAW(value), setting_row(S_BUCKET)->what);
}

/* Without path style the bucket is the first label of the host. */
static enum err read_path_style(const struct reading *in, struct sink_settings *s)
{
    TRY(read_bool(in, S_PATH_STYLE, &s->path_style));
    if (s->is_file || s->path_style || is_name(span_str(s->bucket)))
        return ERR_OK;
    return refuse(in, "%s=%s cannot stand in front of a host. Set %s=true, or correct it",
                  ROW(S_BUCKET), s->bucket, ROW(S_PATH_STYLE));
}

static enum err refuse_prefix(const struct reading *in, struct span raw, const char *why)
{
    return refuse(in, "%s=" SPAN_FMT " %s. It is %s", ROW(S_PREFIX), RAW(raw), why,
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
            return refuse(in,
                          "%s has a segment longer than %llu bytes, the most that a key's "
                          "segment may have here",
                          ROW(S_PREFIX), (unsigned long long)s->key_segment_max);
        if (s->is_file && start == 0 && span_eq(segment, SPAN_LIT(FILE_TMP)))
            return refuse_prefix(in, raw, "is the sink's own folder for unfinished objects");
        start = i + 1;
    }
    return ERR_OK;
}

static enum err read_prefix(const struct reading *in, struct sink_settings *s)
{
    struct span raw = value_of(in, S_PREFIX);
    if (raw.len == 0)
        raw = span_str(setting_row(S_PREFIX)->fallback_text);
    struct span prefix = without_slashes_behind(raw, 0);
    while (prefix.len > 0 && prefix.ptr[0] == '/')
        prefix = span_sub(prefix, 1, prefix.len);
    if (!utf8_valid(raw))
        return refuse(in, "%s is not valid UTF-8", ROW(S_PREFIX));
    if (prefix.len == 0)
        return refuse_prefix(in, raw, "is empty");
    TRY(check_segments(in, raw, prefix, s));
    if (prefix.len > PREFIX_MAX)
        return refuse(in, "%s is longer than %d bytes", ROW(S_PREFIX), PREFIX_MAX);
    s->prefix = span_dup(prefix);
    return ERR_OK;
}

static enum err read_sse(const struct reading *in, struct sink_settings *s)
{
    int mode = -1;
    const char *name = "off";
    TRY(read_enum(in, S_SSE, &mode, &name));
    if (mode >= 0 && s->is_file)
        return refuse(in,
                      "%s=%s does not go with a file:// endpoint. Unset it: a folder has no "
                      "server-side encryption",
                      ROW(S_SSE), name);
    struct span key_id = value_of(in, S_SSE_KMS_KEY_ID);
    if (key_id.len > 0 && strcmp(name, "aws:kms") != 0)
        return refuse(in, "%s is set but %s=%s. A KMS key goes with `aws:kms`",
                      ROW(S_SSE_KMS_KEY_ID), ROW(S_SSE), name);
    if (!utf8_valid(key_id))
        return refuse(in, "%s is not valid UTF-8", ROW(S_SSE_KMS_KEY_ID));
    TRY(check_header_text(in, S_SSE_KMS_KEY_ID, key_id));
    if (mode >= 0)
        s->sse = span_dup(span_str(name));
    if (key_id.len > 0)
        s->sse_kms_key_id = span_dup(key_id);
    return ERR_OK;
}

static enum err read_enum_into(const struct reading *in, enum setting_id id,
                               struct sink_settings *s)
{
    int value = -1;
    TRY(read_enum(in, id, &value, NULL));
    if (value < 0)
        return ERR_OK; /* every default is the zero of its enum */
    if (id == S_FORMAT)
        s->format = (enum sink_format)value;
    else if (id == S_COMPRESSION)
        s->compression = (enum sink_compression)value;
    else if (id == S_LAYOUT)
        s->layout = (enum sink_layout)value;
    else if (id == S_ALIGN)
        s->align = (enum sink_align)value;
    else if (id == S_START)
        s->start = (enum sink_start)value;
    return ERR_OK; /* the Parquet codec is only checked until there is Parquet */
}

/* A file:// endpoint needs neither region nor keys, and keeps none. */
static enum err read_s3_text(const struct reading *in, enum setting_id id,
                             const struct sink_settings *s, char **out)
{
    if (s->is_file)
        return ERR_OK;
    TRY(check_header_text(in, id, value_of(in, id)));
    return read_required(in, id, out);
}

static enum err read_key_segment_max(const struct reading *in, struct sink_settings *s)
{
    TRY(read_int(in, S_KEY_SEGMENT_MAX, &s->key_segment_max));
    struct span endpoint = value_of(in, S_ENDPOINT);
    if (span_starts_with(endpoint, span_str(FILE_SCHEME)))
        s->key_segment_max = FILE_SEGMENT_MAX;
    return ERR_OK;
}

static enum err read_setting(const struct reading *in, enum setting_id id, struct sink_settings *s)
{
    switch (id) {
    case S_QUEUES:
        return read_queues(in, s);
    case S_SINK:
        return read_sink_name(in, s);
    case S_KEY_SEGMENT_MAX:
        return read_key_segment_max(in, s);
    case S_JSONL_QUOTE_UNREADABLE:
        return read_bool(in, id, &s->quote_unreadable);
    case S_PARTITIONS:
        if (!is_set(in, id))
            return ERR_OK;
        return refuse(in,
                      "%s=" SPAN_FMT " is not supported. The sink finds partitions by itself: "
                      "a window closes against discovery (POST /api/v1/partitions/changed)",
                      ROW(id), RAW(value_of(in, id)));
    case S_ENDPOINT:
        return read_endpoint(in, s);
    case S_REGION:
        return read_s3_text(in, id, s, &s->region);
    case S_BUCKET:
        return read_bucket(in, s);
    case S_PREFIX:
        return read_prefix(in, s);
    case S_ACCESS_KEY:
        return read_s3_text(in, id, s, &s->access_key);
    case S_SECRET_KEY:
        return read_s3_text(in, id, s, &s->secret_key);
    case S_PATH_STYLE:
        return read_path_style(in, s);
    case S_SSE:
        return read_sse(in, s);
    case S_FORMAT:
    case S_COMPRESSION:
    case S_PARQUET_CODEC:
    case S_LAYOUT:
    case S_ALIGN:
    case S_START:
        return read_enum_into(in, id, s);
    case S_TARGET_MB:
        return read_int(in, id, &s->target_mb);
    case S_MAX_WINDOW_MS:
        return read_int(in, id, &s->max_window_ms);
    case S_SSE_KMS_KEY_ID: /* read with S_SSE */
    case S_THREADS:        /* node-wide from here on */
    case S_SHUTDOWN_GRACE_MS:
    case S_CHECKPOINT_EVERY:
    case S_MEMORY_MB:
    case S_FETCH_CONCURRENCY:
    case S_DISCOVERY_INTERVAL_MS:
    case S_SAFE_GUARD_MS:
    case S_LEASE_TTL_MS:
    case S_MULTIPART_THRESHOLD_MB:
    case S_INSTANCE:
    case S_CRASH_AT:
    case SETTING_COUNT:
        break;
    }
    ASSERT(false); /* not per sink */
    return ERR_OK;
}

/* Accepted by the specification, refused until it is there (decisions.md 29). */
static enum err refuse_unbuilt(const struct reading *in, const struct sink_settings *s)
{
    if (s->format != SINK_JSONL)
        return refuse(in, "%s=%s is not built yet; accepted now: jsonl", ROW(S_FORMAT),
                      sink_format_name(s->format));
    if (s->layout != SINK_MERGED)
        return refuse(in, "%s=%s is not built yet; accepted now: merged", ROW(S_LAYOUT),
                      sink_layout_name(s->layout));
    return ERR_OK;
}

static void note_ignored(const struct reading *in, struct sink_boot_settings *b)
{
    static const char *const names[] = {"QUEEN_S3_LISTEN", "QUEEN_S3_LOG_FORMAT"};
    struct buf text = BUF_INIT;
    for (unsigned i = 0; i < 2; i++) {
        const char *value = in->get(in->ctx, names[i]);
        if (value != NULL && trim(span_str(value)).len > 0)
            buf_printf(&text, "%s%s", text.len > 0 ? ", " : "", names[i]);
    }
    if (text.len > 0)
        b->ignored = span_dup(buf_span(&text));
    buf_deinit(&text);
}

static enum err read_sink(const struct reading *in, struct sink_boot_settings *b)
{
    if (!is_set(in, S_QUEUES)) {
        for (const enum setting_id *id = setting_on_off_order; *id != SETTING_COUNT; id++) {
            if (is_set(in, *id))
                return refuse(in, "%s is set but %s is not: it is %s", ROW(*id), ROW(S_QUEUES),
                              setting_row(S_QUEUES)->what);
        }
        return ERR_OK;
    }
    for (const enum setting_id *id = setting_check_order; *id != SETTING_COUNT; id++)
        TRY(read_setting(in, *id, &b->sink));
    TRY(refuse_unbuilt(in, &b->sink));
    b->has_sink = true;
    note_ignored(in, b);
    return ERR_OK;
}

/* ---- Node-wide ---- */

static bool ends_with(struct span s, struct span end)
{
    return s.len >= end.len && span_eq(span_sub(s, s.len - end.len, s.len), end);
}

static enum err read_instance(const struct reading *in, uint64_t node_id, const char *host,
                              struct sink_node_settings *n)
{
    struct span value = value_of(in, S_INSTANCE);
    struct buf text = BUF_INIT;
    struct buf suffix = BUF_INIT;
    buf_printf(&suffix, "/node-%llu", (unsigned long long)node_id);
    n->instance_generated = value.len == 0;
    if (n->instance_generated) {
        const char *hostname = in->get(in->ctx, "HOSTNAME");
        struct span name = hostname != NULL ? trim(span_str(hostname)) : (struct span){0};
        if (name.len == 0 && host != NULL)
            name = trim(span_str(host));
        if (name.len == 0)
            name = SPAN_LIT("localhost");
        buf_printf(&text, "node-%llu@" SPAN_FMT, (unsigned long long)node_id, SPAN_ARG(name));
    } else {
        buf_put_span(&text, value);
        if (!ends_with(value, buf_span(&suffix)))
            buf_put_span(&text, buf_span(&suffix));
    }
    enum err err = ERR_OK;
    if (utf8_valid(buf_span(&text)))
        n->instance = span_dup(buf_span(&text));
    else
        err = refuse(in, "%s is not valid UTF-8. It is %s", ROW(S_INSTANCE),
                     setting_row(S_INSTANCE)->what);
    buf_deinit(&text);
    buf_deinit(&suffix);
    return err;
}

static enum err read_node(const struct reading *in, uint64_t node_id, const char *host,
                          unsigned cores, struct sink_node_settings *n)
{
    uint64_t threads = cores / 4 < 1 ? 1 : cores / 4 > 2 ? 2 : cores / 4;
    int crash_at = SINK_CRASH_NEVER;
    TRY(read_broker_int(in, S_THREADS, threads, &n->threads));
    TRY(read_broker_int(in, S_SHUTDOWN_GRACE_MS, setting_row(S_SHUTDOWN_GRACE_MS)->fallback,
                        &n->shutdown_grace_ms));
    TRY(read_int(in, S_CHECKPOINT_EVERY, &n->checkpoint_every));
    TRY(read_int(in, S_MEMORY_MB, &n->memory_mb));
    TRY(read_int(in, S_FETCH_CONCURRENCY, &n->fetch_concurrency));
    TRY(read_int(in, S_DISCOVERY_INTERVAL_MS, &n->discovery_interval_ms));
    TRY(read_int(in, S_SAFE_GUARD_MS, &n->safe_guard_ms));
    TRY(read_int(in, S_LEASE_TTL_MS, &n->lease_ttl_ms));
    TRY(read_int(in, S_MULTIPART_THRESHOLD_MB, &n->multipart_threshold_mb));
    TRY(read_instance(in, node_id, host, n));
    TRY(read_enum(in, S_CRASH_AT, &crash_at, NULL));
    n->crash_at = (enum sink_crash_point)crash_at;
    return ERR_OK;
}

static enum err read_embedded(const struct reading *in, bool *out)
{
    const char *value = in->get(in->ctx, EMBEDDED);
    struct span text = value == NULL ? (struct span){0} : trim(span_str(value));
    *out = false;
    if (text.len == 0 || parse_bool(text, out))
        return ERR_OK;
    return refuse(in,
                  EMBEDDED "=\"" SPAN_FMT "\" is not a boolean (expected true/false, 1/0, "
                           "yes/no, on/off)",
                  RAW(text));
}

enum err sink_settings_read(env_get_fn get, void *ctx, uint64_t node_id, const char *host,
                            unsigned cores, struct sink_boot_settings *out, struct error *error)
{
    struct reading in = {.get = get, .ctx = ctx, .error = error};
    struct sink_boot_settings b = {0};
    TRY(read_embedded(&in, &b.node.embedded));
    if (b.node.embedded) {
        enum err err = read_node(&in, node_id, host, cores, &b.node);
        if (err == ERR_OK)
            err = read_sink(&in, &b);
        if (err != ERR_OK) {
            error_wrap(error, EMBEDDED "=true");
            sink_boot_settings_deinit(&b);
            return err;
        }
    }
    *out = b;
    return ERR_OK;
}

static void free_secret(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    mem_free(text);
}

void sink_boot_settings_deinit(struct sink_boot_settings *b)
{
    if (b == NULL)
        return;
    struct sink_settings *s = &b->sink;
    for (size_t i = 0; i < s->n_queues; i++)
        mem_free(s->queues[i]);
    mem_free(s->queues);
    mem_free(s->endpoint);
    mem_free(s->region);
    mem_free(s->bucket);
    mem_free(s->prefix);
    free_secret(s->access_key);
    free_secret(s->secret_key);
    mem_free(s->sse);
    mem_free(s->sse_kms_key_id);
    mem_free(s->sink);
    mem_free(b->node.instance);
    mem_free(b->ignored);
    *b = (struct sink_boot_settings){0};
}

/* ---- Start line ---- */

static void put_field(struct buf *out, const char *name, const char *value)
{
    buf_printf(out, " %s=%s", name, value);
}

static void put_number(struct buf *out, const char *name, uint64_t value)
{
    buf_printf(out, " %s=%llu", name, (unsigned long long)value);
}

static void put_queues(struct buf *out, const struct sink_settings *s)
{
    buf_puts(out, " queues=");
    if (s->all_queues)
        buf_putc(out, '*');
    for (size_t i = 0; i < s->n_queues; i++)
        buf_printf(out, "%s%s", i > 0 ? "," : "", s->queues[i]);
}

/* Where s ends a KMS key id: its last four characters. */
static const char *last_four(const char *s)
{
    const char *at = s + strlen(s);
    for (unsigned n = 0; at > s && n < 4; n++) {
        at--;
        while (at > s && ((unsigned char)*at & 0xC0) == 0x80) /* inside a character */
            at--;
    }
    return at;
}

static void put_sse(struct buf *out, const struct sink_settings *s)
{
    put_field(out, "sse", s->sse != NULL ? s->sse : "off");
    if (s->sse_kms_key_id != NULL)
        buf_printf(out, "(\xE2\x80\xA6%s)", last_four(s->sse_kms_key_id));
}

void sink_settings_start_line(struct buf *out, const struct sink_settings *s,
                              const struct sink_node_settings *n, struct span tenant)
{
    buf_puts(out, "queen-s3 " SINK_VERSION " tenant=");
    buf_put_span(out, tenant);
    put_field(out, "sink", s->sink);
    put_number(out, "key_segment_max", s->key_segment_max);
    put_field(out, "jsonl_quote_unreadable", s->quote_unreadable ? "true" : "false");
    put_field(out, "instance", n->instance);
    buf_puts(out, n->instance_generated ? "(generated)" : "");
    put_queues(out, s);
    put_field(out, "partitions", "discovery");
    put_field(out, "s3", s->endpoint);
    put_field(out, "bucket", s->bucket);
    put_field(out, "prefix", s->prefix);
    put_field(out, "region", s->region != NULL ? s->region : "-");
    put_field(out, "addressing",
              s->is_file      ? "file"
              : s->path_style ? "path-style"
                              : "virtual-host");
    put_sse(out, s);
    put_field(out, "format", sink_format_name(s->format));
    put_field(out, "compression", sink_compression_name(s->compression));
    put_field(out, "layout", sink_layout_name(s->layout));
    put_field(out, "align", sink_align_name(s->align));
    put_number(out, "target_mb", s->target_mb);
    put_number(out, "max_window_ms", s->max_window_ms);
    put_field(out, "start", sink_start_name(s->start));
    put_number(out, "checkpoint_every", n->checkpoint_every);
    put_number(out, "memory_mb", n->memory_mb);
    put_number(out, "fetch_concurrency", n->fetch_concurrency);
    put_number(out, "discovery_interval_ms", n->discovery_interval_ms);
    put_number(out, "safe_guard_ms", n->safe_guard_ms);
    put_number(out, "lease_ttl_ms", n->lease_ttl_ms);
    put_number(out, "multipart_threshold_mb", n->multipart_threshold_mb);
    put_field(out, "crash_at", sink_crash_point_name(n->crash_at));
}
