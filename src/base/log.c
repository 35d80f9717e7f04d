/* Log lines, as text or JSON, and their filter.
 *
 * A line is built in a buffer of its own and handed to the writer whole, so threads do not mix;
 * what is shared (writer, clock, filter) is set by main before it starts a thread and only read
 * after.
 *
 * Filter: comma-separated directives, each a level (for every target), target=level, or a target
 * alone (all its levels). A directive holds for the targets that start with its name; the longest
 * wins. Levels: error warn info debug trace off, any case, or 5..0. With no directive for every
 * target, those not named log errors only: a typed-in filter must not hide why a boot failed. */
#include "base/log.h"

#include "base/timefmt.h"
#include "base/utf8.h"

#define DIRECTIVES_MAX 32 /* of a hand-written setting */
#define TARGET_MAX 64     /* bytes; our longest is a tenth of it */
#define LEVEL_OFF (-1)

struct directive {
    char target[TARGET_MAX];
    size_t target_len; /* 0: every target */
    int level;         /* highest enum log_level shown, or LEVEL_OFF */
};

struct filter {
    struct directive list[DIRECTIVES_MAX];
    size_t count;
};

static struct {
    log_write_fn write;
    log_clock_fn clock;
    void *ctx;
    bool json;
    struct filter filter;
} state = {.filter = {.list = {{.level = LOG_INFO}}, .count = 1}};

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG", "TRACE"};

void log_install(log_write_fn write, log_clock_fn clock, void *ctx, bool json)
{
    state.write = write;
    state.clock = clock;
    state.ctx = ctx;
    state.json = json;
}

static bool parse_level(struct span text, int *level_out)
{
    if (text.len == 1 && text.ptr[0] >= '0' && text.ptr[0] <= '5') {
        *level_out = text.ptr[0] - '1';
        return true;
    }
    if (span_eq_nocase(text, SPAN_LIT("off"))) {
        *level_out = LEVEL_OFF;
        return true;
    }
    for (int level = LOG_ERROR; level <= LOG_TRACE; level++) {
        if (span_eq_nocase(text, span_str(level_names[level]))) {
            *level_out = level;
            return true;
        }
    }
    return false;
}

static bool valid_target(struct span text)
{
    if (text.len == 0 || text.len > TARGET_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && c != '_' && c != '-' && c != '.' && c != ':')
            return false;
    }
    return true;
}

static bool parse_directive(struct span text, struct directive *out)
{
    const uint8_t *equals = memchr(text.ptr, '=', text.len);
    struct span target = {text.ptr, equals != NULL ? (size_t)(equals - text.ptr) : text.len};
    *out = (struct directive){.level = LOG_TRACE};
    if (equals == NULL && parse_level(text, &out->level))
        return true;
    if (equals != NULL) {
        struct span level = span_sub(text, target.len + 1, text.len);
        target = span_trim(target);
        if (!parse_level(span_trim(level), &out->level))
            return false;
    }
    if (!valid_target(target))
        return false;
    memcpy(out->target, target.ptr, target.len);
    out->target_len = target.len;
    return true;
}

static bool parse_filter(struct span text, struct filter *out)
{
    *out = (struct filter){.list = {{.level = LOG_ERROR}}, .count = 1};
    bool any = false;
    while (text.len > 0) {
        const uint8_t *comma = memchr(text.ptr, ',', text.len);
        size_t len = comma != NULL ? (size_t)(comma - text.ptr) : text.len;
        struct span item = span_trim(span_sub(text, 0, len));
        text = span_sub(text, comma != NULL ? len + 1 : len, text.len);
        if (item.len == 0)
            continue;
        if (out->count == DIRECTIVES_MAX || !parse_directive(item, &out->list[out->count]))
            return false;
        out->count++;
        any = true;
    }
    if (!any) /* a blank setting is an unset one */
        out->list[0].level = LOG_INFO;
    return true;
}

bool log_set_filter(struct span directives)
{
    struct filter filter;
    bool good = parse_filter(directives, &filter);
    if (!good)
        filter = (struct filter){.list = {{.level = LOG_INFO}}, .count = 1};
    state.filter = filter;
    return good;
}

bool log_enabled(enum log_level level, const char *target)
{
    struct span name = span_str(target);
    const struct directive *best = &state.filter.list[0];
    for (size_t i = 1; i < state.filter.count; i++) {
        const struct directive *d = &state.filter.list[i];
        if (d->target_len >= best->target_len &&
            span_starts_with(name, span_make(d->target, d->target_len)))
            best = d;
    }
    return (int)level <= best->level;
}

/* Must the value stand in quotes? Empty, or with a blank, a quote or a control byte. */
static bool needs_quotes(struct span value)
{
    for (size_t i = 0; i < value.len; i++) {
        uint8_t c = value.ptr[i];
        if (c <= ' ' || c == '"' || c == 0x7F)
            return true;
    }
    return value.len == 0;
}

/* Control bytes as \n and \xNN; with `quoted` also \" and \\. */
static void put_escaped(struct buf *b, struct span text, bool quoted)
{
    for (size_t i = 0; i < text.len; i++) {
        uint8_t c = text.ptr[i];
        if (c == '\n')
            buf_puts(b, "\\n");
        else if (c < ' ' || c == 0x7F)
            buf_printf(b, "\\x%02x", c);
        else if (quoted && (c == '"' || c == '\\'))
            buf_printf(b, "\\%c", c);
        else
            buf_putc(b, c);
    }
}

/* Text from anywhere as a JSON string. */
static void put_json(struct buf *b, struct span text)
{
    if (utf8_valid(text)) {
        buf_put_json_string(b, text);
        return;
    }
    struct buf repaired = BUF_INIT;
    buf_put_utf8_lossy(&repaired, text);
    buf_put_json_string(b, buf_span(&repaired));
    buf_deinit(&repaired);
}

static void put_json_member(struct buf *b, const char *key, struct span value)
{
    buf_putc(b, ',');
    put_json(b, span_str(key));
    buf_putc(b, ':');
    put_json(b, value);
}

/* Starts a line of the installed form, without asking the filter. */
static void begin(struct log_line *l, enum log_level level, const char *target, struct span message)
{
    struct buf *b = &l->text;
    int64_t now_us = state.clock != NULL ? state.clock(state.ctx) : 0;
    if (state.json) {
        buf_puts(b, "{\"timestamp\":\"");
        buf_put_iso_us(b, now_us);
        buf_putc(b, '"');
        put_json_member(b, "level", span_str(level_names[level]));
        put_json_member(b, "target", span_str(target));
        put_json_member(b, "message", message);
        return;
    }
    buf_put_iso_us(b, now_us);
    buf_printf(b, " %s %s: ", level_names[level], target);
    put_escaped(b, message, false);
}

static bool line_init(struct log_line *l, enum log_level level, const char *target)
{
    bool enabled = state.write != NULL && log_enabled(level, target);
    *l = (struct log_line){.text = BUF_INIT, .level = level, .enabled = enabled};
    return enabled;
}

void log_begin(struct log_line *l, enum log_level level, const char *target, const char *message)
{
    if (line_init(l, level, target))
        begin(l, level, target, span_str(message));
}

static void put_text(struct log_line *l, const char *key, struct span value, bool quoted)
{
    if (!l->enabled)
        return;
    if (state.json) {
        put_json_member(&l->text, key, value);
        return;
    }
    buf_printf(&l->text, " %s=", key);
    if (!quoted) {
        buf_put_span(&l->text, value);
        return;
    }
    buf_putc(&l->text, '"');
    put_escaped(&l->text, value, true);
    buf_putc(&l->text, '"');
}

void log_str(struct log_line *l, const char *key, struct span value)
{
    put_text(l, key, value, needs_quotes(value));
}

void log_quoted(struct log_line *l, const char *key, struct span value)
{
    put_text(l, key, value, true);
}

/* Key and separator of a value that is a bare word in both forms. */
static struct buf *put_bare_key(struct log_line *l, const char *key)
{
    if (state.json) {
        buf_putc(&l->text, ',');
        put_json(&l->text, span_str(key));
        buf_putc(&l->text, ':');
    } else {
        buf_printf(&l->text, " %s=", key);
    }
    return &l->text;
}

void log_u64(struct log_line *l, const char *key, uint64_t value)
{
    if (l->enabled)
        buf_put_u64(put_bare_key(l, key), value);
}

void log_i64(struct log_line *l, const char *key, int64_t value)
{
    if (l->enabled)
        buf_put_i64(put_bare_key(l, key), value);
}

void log_f64(struct log_line *l, const char *key, double value)
{
    if (!l->enabled)
        return;
    struct buf *b = put_bare_key(l, key);
    if (state.json && !(value - value == 0)) /* JSON has no word for infinities and NaN */
        buf_puts(b, "null");
    else
        buf_put_double(b, value);
}

void log_bool(struct log_line *l, const char *key, bool value)
{
    if (l->enabled)
        buf_puts(put_bare_key(l, key), value ? "true" : "false");
}

void log_end(struct log_line *l)
{
    if (l->enabled) {
        buf_puts(&l->text, state.json ? "}\n" : "\n");
        state.write(state.ctx, buf_span(&l->text));
    }
    l->enabled = false;
    buf_deinit(&l->text);
}

void log_event(enum log_level level, const char *target, const char *message,
               const struct log_field *fields, size_t n)
{
    struct log_line l;
    log_begin(&l, level, target, message);
    for (size_t i = 0; i < n; i++) {
        if (fields[i].always_quoted)
            log_quoted(&l, fields[i].key, fields[i].value);
        else
            log_str(&l, fields[i].key, fields[i].value);
    }
    log_end(&l);
}

void log_msg(enum log_level level, const char *target, const char *format, ...)
{
    struct log_line l;
    if (!line_init(&l, level, target))
        return;
    struct buf message = BUF_INIT;
    va_list args;
    va_start(args, format);
    buf_vprintf(&message, format, args);
    va_end(args);
    begin(&l, level, target, buf_span(&message));
    buf_deinit(&message);
    log_end(&l);
}
