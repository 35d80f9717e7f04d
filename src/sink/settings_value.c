/* One value of the sink's settings; see settings_read.h. */
#include "sink/settings_read.h"

#include "base/utf8.h"

enum err settings_refuse(const struct reading *in, const char *format, ...)
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

struct span settings_trim(struct span s)
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
struct span settings_value(const struct reading *in, enum setting_id id)
{
    const char *value = in->get(in->ctx, ROW(id));
    return value == NULL ? (struct span){0} : settings_trim(span_str(value));
}

bool settings_is_set(const struct reading *in, enum setting_id id)
{
    return settings_value(in, id).len > 0;
}

bool settings_parse_bool(struct span value, bool *out)
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

enum err settings_bool(const struct reading *in, enum setting_id id, bool *out)
{
    struct span value = settings_value(in, id);
    *out = setting_row(id)->fallback != 0;
    if (value.len == 0 || settings_parse_bool(value, out))
        return ERR_OK;
    return settings_refuse(in, "%s=" SPAN_FMT " is not a boolean. It is `true` or `false`", ROW(id),
                           RAW(value));
}

enum err settings_int(const struct reading *in, enum setting_id id, uint64_t *out)
{
    const struct setting *row = setting_row(id);
    struct span value = settings_value(in, id);
    unsigned long long min = row->min;
    unsigned long long max = row->max;
    uint64_t n = row->fallback;
    if (value.len > 0 && !span_parse_u64(value, &n))
        return settings_refuse(in,
                               "%s=" SPAN_FMT " is not a whole number. It is %s, in %llu..=%llu",
                               row->variable, RAW(value), row->what, min, max);
    if (value.len > 0 && (n < row->min || n > row->max))
        return settings_refuse(in, "%s=%llu is outside %llu..=%llu. It is %s", row->variable,
                               (unsigned long long)n, min, max, row->what);
    *out = n;
    return ERR_OK;
}

/* The two that the broker reads itself have a sentence of their own. */
enum err settings_broker_int(const struct reading *in, enum setting_id id, uint64_t fallback,
                             uint64_t *out)
{
    const struct setting *row = setting_row(id);
    struct span value = settings_value(in, id);
    uint64_t n = fallback;
    if (value.len > 0 && (!span_parse_u64(value, &n) || n < row->min || n > row->max))
        return settings_refuse(in, "%s=" SPAN_FMT " is not an integer in %llu..=%llu",
                               row->variable, RAW(value), (unsigned long long)row->min,
                               (unsigned long long)row->max);
    *out = n;
    return ERR_OK;
}

/* *out is left alone when unset. spelling_out (may be NULL): the canonical one. */
enum err settings_enum(const struct reading *in, enum setting_id id, int *out,
                       const char **spelling_out)
{
    const struct setting *row = setting_row(id);
    struct span value = settings_value(in, id);
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
    enum err err = settings_refuse(in, SPAN_FMT, SPAN_ARG(buf_span(&text)));
    buf_deinit(&text);
    return err;
}

/* A text that must be there; *out owned. */
enum err settings_required(const struct reading *in, enum setting_id id, char **out)
{
    struct span value = settings_value(in, id);
    if (value.len == 0)
        return settings_refuse(in, "%s is not set: it is %s", ROW(id), setting_row(id)->what);
    if (!utf8_valid(value))
        return settings_refuse(in, "%s is not valid UTF-8. It is %s", ROW(id),
                               setting_row(id)->what);
    *out = span_dup(value);
    return ERR_OK;
}

bool settings_has_control(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] < ' ' || s.ptr[i] == 0x7F)
            return true;
    }
    return false;
}

/* A text that goes into the head of a request. It may be a key: not repeated. */
enum err settings_header_text(const struct reading *in, enum setting_id id, struct span value)
{
    if (settings_has_control(value))
        return settings_refuse(in, "%s holds a line break or another control character. It is %s",
                               ROW(id), setting_row(id)->what);
    return ERR_OK;
}

/* Letters, digits, '.', '_' and '-'. */
bool settings_is_name(struct span s)
{
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = s.ptr[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-'))
            return false;
    }
    return true;
}
