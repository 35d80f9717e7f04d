/* Showing the settings: boot log lines, --help, the generated document. */
#include "config/internal.h"

#include "base/log.h"

static const char *env_get(const struct config_env *env, const char *name)
{
    return config_env_get((void *)env, name);
}

/* Characters, not bytes, of a secret. */
static size_t characters(struct span text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += (text.ptr[i] & 0xC0) != 0x80;
    return n;
}

static void log_secret(struct log_line *l, const struct config_row *row,
                       const struct config_env *env)
{
    const char *value = env_get(env, row->name);
    struct span text = value == NULL ? (struct span){0} : span_trim(span_str(value));
    struct buf shown = BUF_INIT;
    if (text.len == 0)
        buf_puts(&shown, "<unset>");
    else
        buf_printf(&shown, "<set:%zu chars>", characters(text));
    log_str(l, row->name, buf_span(&shown));
    buf_deinit(&shown);
}

static void log_binding(struct log_line *l, const struct config_row *row, const struct config *c)
{
    const void *field = (const char *)c + row->at;
    switch (row->kind) {
    case CONFIG_BOOL:
        log_bool(l, row->name, *(const bool *)field);
        break;
    case CONFIG_INT:
    case CONFIG_STRICT:
    case CONFIG_PORT:
    case CONFIG_NODE_ID:
        log_u64(l, row->name, *(const uint64_t *)field);
        break;
    case CONFIG_PERCENT:
        log_f64(l, row->name, *(const double *)field);
        break;
    case CONFIG_TEXT:
    case CONFIG_HOST:
    case CONFIG_FOLDER:
        log_str(l, row->name, span_str(*(char *const *)field));
        break;
    case CONFIG_SECRET: /* log_secret() */
        break;
    }
}

/* Settings that bind, the switches of what is not built (with their only value), secrets. */
static void log_group(const struct config *c, const struct config_env *env, enum config_group group)
{
    char message[64];
    snprintf(message, sizeof(message), "config: %s", config_group_names[group]);
    struct log_line l;
    log_begin(&l, LOG_INFO, "boot", message);
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->group != group || row->name[strlen(row->name) - 1] == '*')
            continue;
        if (row->kind == CONFIG_SECRET)
            log_secret(&l, row, env);
        else if (row->effect == CONFIG_BINDS)
            log_binding(&l, row, c);
        else if (row->effect == CONFIG_NOT_BUILT && row->kind == CONFIG_BOOL)
            log_bool(&l, row->name, false);
        else if (row->effect == CONFIG_NOT_BUILT && row->fallback[0] != 0)
            log_str(&l, row->name, span_str(row->fallback));
    }
    log_end(&l);
}

void config_log(const struct config *c, const struct config_env *env)
{
    for (enum config_group group = 0; group < CONFIG_GROUP_COUNT; group++)
        log_group(c, env, group);
    for (size_t i = 0; i < c->n_notices; i++)
        log_msg(c->notices[i].warning ? LOG_WARN : LOG_INFO, "boot", "%s", c->notices[i].text);
}

void config_help_put(struct buf *out)
{
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->effect != CONFIG_BINDS)
            continue;
        buf_printf(out, "  %-32s %s", row->name, row->text);
        if (row->fallback[0] != 0)
            buf_printf(out, " [%s]", row->fallback);
        buf_putc(out, '\n');
    }
}

static const char *kind_text(enum config_kind kind)
{
    switch (kind) {
    case CONFIG_BOOL:
        return "boolean";
    case CONFIG_INT:
    case CONFIG_PORT:
        return "integer";
    case CONFIG_STRICT:
        return "integer, strict";
    case CONFIG_PERCENT:
        return "percentage";
    case CONFIG_TEXT:
    case CONFIG_HOST:
    case CONFIG_FOLDER:
        return "text";
    case CONFIG_SECRET:
        return "secret";
    case CONFIG_NODE_ID:
        return "integer or `ordinal`";
    }
    return "";
}

static void put_range(struct buf *out, const struct config_row *row)
{
    bool numeric = row->kind == CONFIG_INT || row->kind == CONFIG_STRICT ||
                   row->kind == CONFIG_PORT || row->kind == CONFIG_PERCENT;
    if (numeric)
        buf_printf(out, "%llu..%llu", (unsigned long long)row->min, (unsigned long long)row->max);
}

static void put_doc_row(struct buf *out, const struct config_row *row)
{
    buf_printf(out, "| `%s`", row->name);
    if (row->alias != NULL)
        buf_printf(out, ", else `%s`", row->alias);
    buf_printf(out, " | %s | ", kind_text(row->kind));
    if (row->fallback[0] != 0)
        buf_printf(out, "`%s`", row->fallback);
    buf_puts(out, " | ");
    put_range(out, row);
    buf_printf(out, " | %s |\n", row->text);
}

static void put_doc_group(struct buf *out, enum config_group group)
{
    bool begun = false;
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->group != group || row->effect != CONFIG_BINDS)
            continue;
        if (!begun)
            buf_printf(out,
                       "\n### %s\n\n| Variable | Type | Default | Range | Effect |\n"
                       "|---|---|---|---|---|\n",
                       config_group_names[group]);
        begun = true;
        put_doc_row(out, row);
    }
}

static void put_doc_effect(struct buf *out, enum config_effect effect)
{
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->effect != effect)
            continue;
        buf_printf(out, "| `%s` | %s |", row->name, row->text);
        if (effect == CONFIG_NOT_BUILT) {
            if (row->fallback[0] != 0)
                buf_printf(out, " `%s`", row->fallback);
            buf_puts(out, " |");
        }
        buf_putc(out, '\n');
    }
}

void config_doc_put(struct buf *out)
{
    buf_puts(out,
             "## The broker\n\n"
             "Booleans are `true`/`false`, `1`/`0`, `yes`/`no`, `on`/`off` in any case; another "
             "spelling stops the boot.\n"
             "Integers are lenient: text that is no number gives the default, a number outside the "
             "range the nearer end of it, both with a warning.\n"
             "A strict integer stops the boot instead. A blank value counts as unset; of "
             "`QUEEN_BIND_ADDR` and `QUEEN_RAFT_DIR` it\nstops the boot.\n\n"
             "A setting that is refused stops the boot before anything is touched, in one line: "
             "`ERROR boot: FATAL: <sentence>`, exit\ncode 1. The broker's are checked first, in "
             "the order of the tables here, then the sink's; the first wrong one is named.\n");
    for (enum config_group group = 0; group < CONFIG_GROUP_COUNT; group++)
        put_doc_group(out, group);
    buf_puts(out, "\n### Not built yet\n\n"
                  "Setting one of these stops the boot with a line that names it, unless its value "
                  "asks for nothing. This is checked after\nevery other rule, the sink's included: "
                  "a wrong value is told of in its own words.\n\n"
                  "| Variable | Asks for | Accepted value |\n|---|---|---|\n");
    put_doc_effect(out, CONFIG_NOT_BUILT);
    buf_puts(out, "\n### Without effect\n\n"
                  "Accepted, and named in one line of the boot log.\n\n"
                  "| Variable | Of |\n|---|---|\n");
    put_doc_effect(out, CONFIG_IGNORED);
}
