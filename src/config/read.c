/* Reading the settings: one pass over the table in its order, so the first refusal is always the
 * same one; then the names in the environment that no row that binds covers. What is not built yet
 * is refused in a pass of its own, after every other check.
 *
 * A refusal is one sentence that names the variable, its value (never of a secret) and what it is.
 * What is survived (a number that is none, a setting without effect) becomes a notice, which
 * config_log() writes: nothing is logged here, so that `queen check-config` and tests can read. */
#include "config/internal.h"

#include "base/mem.h"

const char *config_env_get(void *ctx, const char *name)
{
    const struct config_env *env = ctx;
    size_t len = strlen(name);
    for (const char *const *entry = env->list; *entry != NULL; entry++) {
        if (strncmp(*entry, name, len) == 0 && (*entry)[len] == '=')
            return *entry + len + 1;
    }
    return NULL;
}

bool config_is_text(enum config_kind kind)
{
    return kind == CONFIG_TEXT || kind == CONFIG_HOST || kind == CONFIG_FOLDER ||
           kind == CONFIG_SECRET;
}

static const char *env_get(const struct config_env *env, const char *name)
{
    return config_env_get((void *)env, name);
}

/* Trimmed; empty when unset. */
static struct span env_trimmed(const struct config_env *env, const char *name)
{
    const char *value = env_get(env, name);
    return value == NULL ? (struct span){0} : span_trim(span_str(value));
}

static void notice(struct config *c, bool warning, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void notice(struct config *c, bool warning, const char *format, ...)
{
    struct buf text = BUF_INIT;
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    c->notices = mem_grow(c->notices, (c->n_notices + 1) * sizeof(*c->notices));
    c->notices[c->n_notices++] =
        (struct config_notice){.warning = warning, .text = span_dup(buf_span(&text))};
    buf_deinit(&text);
}

static bool parse_bool(struct span text, bool *out)
{
    static const char *const words[] = {"false", "true", "0", "1", "no", "yes", "off", "on"};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (span_eq_nocase(text, span_str(words[i]))) {
            *out = i % 2 == 1;
            return true;
        }
    }
    return false;
}

static enum err not_a_boolean(struct error *error, const char *name, struct span value)
{
    return error_set(error, ERR_INVALID,
                     "%s=\"" SPAN_FMT
                     "\" is not a boolean (expected true/false, 1/0, yes/no, on/off)",
                     name, SPAN_ARG(value));
}

static bool parse_percent(struct span text, double *out)
{
    char copy[32];
    if (text.len == 0 || text.len >= sizeof(copy))
        return false;
    for (size_t i = 0; i < text.len; i++) { /* no hex, no exponent, no "nan" */
        if ((text.ptr[i] < '0' || text.ptr[i] > '9') && text.ptr[i] != '.')
            return false;
    }
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = 0;
    char *end;
    *out = strtod(copy, &end);
    return *end == 0;
}

/* The variable that holds the row's value: its name, else its alias when only that is set. */
static const char *row_variable(const struct config_row *row, const struct config_env *env)
{
    bool by_alias = row->alias != NULL && env_trimmed(env, row->name).len == 0 &&
                    env_trimmed(env, row->alias).len > 0;
    return by_alias ? row->alias : row->name;
}

static uint64_t fallback_u64(const struct config_row *row)
{
    uint64_t value = 0;
    ASSERT(span_parse_u64(span_str(row->fallback), &value));
    return value;
}

/* INT and PORT. */
static uint64_t read_int(struct config *c, const struct config_row *row, const char *name,
                         struct span value)
{
    uint64_t number;
    if (value.len == 0)
        return fallback_u64(row);
    if (!span_parse_u64(value, &number) || (row->kind == CONFIG_PORT && number > row->max)) {
        notice(c, true, "%s=\"" SPAN_FMT "\" is not a %s: the default %s is used", name,
               SPAN_ARG(value), row->kind == CONFIG_PORT ? "port" : "whole number", row->fallback);
        return fallback_u64(row);
    }
    uint64_t bound = number < row->min ? row->min : number > row->max ? row->max : number;
    if (bound != number)
        notice(c, true, "%s=%llu is outside %llu..=%llu: %llu is used", name,
               (unsigned long long)number, (unsigned long long)row->min,
               (unsigned long long)row->max, (unsigned long long)bound);
    return bound;
}

static enum err read_strict(const struct config_row *row, struct span value, uint64_t *out,
                            struct error *error)
{
    uint64_t number;
    if (value.len == 0) {
        *out = fallback_u64(row);
        return ERR_OK;
    }
    if (!span_parse_u64(value, &number))
        return error_set(error, ERR_INVALID,
                         "%s=" SPAN_FMT " is not a whole number in %llu..=%llu: %s", row->name,
                         SPAN_ARG(value), (unsigned long long)row->min,
                         (unsigned long long)row->max, row->text);
    if (number < row->min || number > row->max)
        return error_set(error, ERR_INVALID, "%s=" SPAN_FMT " is outside %llu..=%llu: %s",
                         row->name, SPAN_ARG(value), (unsigned long long)row->min,
                         (unsigned long long)row->max, row->text);
    *out = number;
    return ERR_OK;
}

static double read_percent(struct config *c, const struct config_row *row, struct span value)
{
    double number = 0, fallback = 0;
    ASSERT(parse_percent(span_str(row->fallback), &fallback));
    if (value.len == 0)
        return fallback;
    if (parse_percent(value, &number) && number >= (double)row->min && number <= (double)row->max)
        return number;
    notice(c, true,
           "%s=\"" SPAN_FMT "\" is not a percentage in %llu..=%llu: the default %s is used",
           row->name, SPAN_ARG(value), (unsigned long long)row->min, (unsigned long long)row->max,
           row->fallback);
    return fallback;
}

/* `ordinal`: queen-0 is node 1. */
static bool ordinal_of(struct span host, uint64_t *out)
{
    size_t digits = 0;
    while (digits < host.len && host.ptr[host.len - 1 - digits] >= '0' &&
           host.ptr[host.len - 1 - digits] <= '9')
        digits++;
    uint64_t ordinal;
    if (!span_parse_u64(span_sub(host, host.len - digits, host.len), &ordinal) ||
        ordinal == UINT64_MAX)
        return false;
    *out = ordinal + 1;
    return true;
}

static enum err read_node_id(const struct config_row *row, const struct config_env *env,
                             struct span value, uint64_t *out, struct error *error)
{
    uint64_t number;
    if (value.len == 0) {
        *out = fallback_u64(row);
        return ERR_OK;
    }
    if (span_eq_nocase(value, SPAN_LIT("ordinal"))) {
        struct span host = env_trimmed(env, "HOSTNAME");
        if (ordinal_of(host, out))
            return ERR_OK;
        return error_set(error, ERR_INVALID,
                         "%s=ordinal, but HOSTNAME=\"" SPAN_FMT "\" does not end in a number",
                         row->name, SPAN_ARG(host));
    }
    if (!span_parse_u64(value, &number) || number == 0)
        return error_set(error, ERR_INVALID, "%s=" SPAN_FMT " is not a node id: %s", row->name,
                         SPAN_ARG(value), row->text);
    *out = number;
    return ERR_OK;
}

/* The brackets of an IPv6 literal go. */
static enum err read_host(const struct config_row *row, const char *raw, char **out,
                          struct error *error)
{
    struct span value = span_trim(span_str(raw));
    if (value.len == 0)
        return error_set(error, ERR_INVALID,
                         "%s is empty: it is the host or IP address to listen on", row->name);
    bool bracketed = value.ptr[0] == '[';
    size_t colons = 0, after_bracket = value.len;
    for (size_t i = 0; i < value.len; i++) {
        colons += value.ptr[i] == ':';
        if (value.ptr[i] == ']')
            after_bracket = i + 1;
    }
    if (bracketed ? after_bracket < value.len : colons == 1)
        return error_set(error, ERR_INVALID, "%s=" SPAN_FMT " carries a port: the port is PORT",
                         row->name, SPAN_ARG(value));
    if (bracketed && value.len > 2 && value.ptr[value.len - 1] == ']')
        value = span_sub(value, 1, value.len - 1);
    *out = span_dup(value);
    return ERR_OK;
}

static enum err read_folder(const struct config_row *row, const char *raw, char **out,
                            struct error *error)
{
    struct span value = span_trim(span_str(raw)); /* a line end behind it is nobody's wish */
    if (value.len == 0)
        return error_set(error, ERR_INVALID,
                         "%s is empty: it is the folder of everything this node keeps", row->name);
    *out = span_dup(value);
    return ERR_OK;
}

static enum err read_binding(struct config *c, const struct config_row *row,
                             const struct config_env *env, struct error *error)
{
    void *field = (char *)c + row->at;
    const char *name = row_variable(row, env);
    const char *raw = env_get(env, name);
    struct span value = env_trimmed(env, name);
    switch (row->kind) {
    case CONFIG_BOOL:
        if (!parse_bool(value.len == 0 ? span_str(row->fallback) : value, field))
            return not_a_boolean(error, name, value);
        return ERR_OK;
    case CONFIG_INT:
    case CONFIG_PORT:
        *(uint64_t *)field = read_int(c, row, name, value);
        return ERR_OK;
    case CONFIG_STRICT:
        return read_strict(row, value, field, error);
    case CONFIG_PERCENT:
        *(double *)field = read_percent(c, row, value);
        return ERR_OK;
    case CONFIG_NODE_ID:
        return read_node_id(row, env, value, field, error);
    case CONFIG_HOST:
        return read_host(row, raw == NULL ? row->fallback : raw, field, error);
    case CONFIG_FOLDER:
        return read_folder(row, raw == NULL ? row->fallback : raw, field, error);
    case CONFIG_TEXT:
    case CONFIG_SECRET:
        *(char **)field = span_dup(span_str(raw == NULL ? row->fallback : raw));
        return ERR_OK;
    }
    return error_set(error, ERR_INVALID, "%s has no reader", name); /* every kind returned above */
}

/* Of what is not built, spellings alone are looked at with the rest. */
static enum err check_spelling(const struct config_row *row, const struct config_env *env,
                               struct error *error)
{
    struct span value = env_trimmed(env, row->name);
    bool unused;
    if (row->kind != CONFIG_BOOL || value.len == 0 || parse_bool(value, &unused))
        return ERR_OK;
    return not_a_boolean(error, row->name, value);
}

/* Does this value ask for the feature that is not there? */
static enum err check_not_built(const struct config_row *row, const char *name, struct span value,
                                struct error *error)
{
    bool on = true, is_bool = parse_bool(value, &on);
    bool by_prefix = row->name[strlen(row->name) - 1] == '*';
    if (value.len == 0 || span_eq_nocase(value, span_str(row->fallback)))
        return ERR_OK;
    if ((row->kind == CONFIG_BOOL || by_prefix) && is_bool && !on)
        return ERR_OK;
    if (row->kind == CONFIG_SECRET)
        return error_set(error, ERR_INVALID, "%s is set and asks for %s: not built yet", name,
                         row->text);
    return error_set(error, ERR_INVALID, "%s=" SPAN_FMT " asks for %s: not built yet", name,
                     SPAN_ARG(value), row->text);
}

static enum err check_row_not_built(const struct config_row *row, const struct config_env *env,
                                    struct error *error)
{
    for (const char *const *entry = env->list; *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals == NULL)
            continue;
        struct span name = span_make(*entry, (size_t)(equals - *entry));
        if (config_row_find(name) != row)
            continue;
        char *text = span_dup(name);
        enum err err = check_not_built(row, text, span_trim(span_str(equals + 1)), error);
        mem_free(text);
        TRY(err);
    }
    return ERR_OK;
}

/* Ours by the look of its name. Variables that Kubernetes makes for a service called "queen", and
 * the sink's own, which are read elsewhere, are not. */
static bool looks_like_a_setting(struct span name)
{
    static const char *const others[] = {"QUEEN_S3_", "QUEEN_SERVICE_", "QUEEN_PORT", "QUEEN_BIN"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (span_starts_with(name, span_str(others[i])))
            return false;
    }
    return span_starts_with(name, SPAN_LIT("QUEEN_"));
}

static void add_name(struct buf *list, struct span name)
{
    if (list->len > 0)
        buf_puts(list, ", ");
    buf_put_span(list, name);
}

/* Names that are set and read by nothing; secrets. */
static void look_over_names(struct config *c, const struct config_env *env)
{
    struct buf ignored = BUF_INIT, unknown = BUF_INIT;
    for (const char *const *entry = env->list; *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals == NULL || span_trim(span_str(equals + 1)).len == 0)
            continue;
        struct span name = span_make(*entry, (size_t)(equals - *entry));
        const struct config_row *row = config_row_find(name);
        if (row != NULL && row->kind == CONFIG_SECRET)
            c->has_secrets = true;
        if (row != NULL && row->effect == CONFIG_IGNORED)
            add_name(&ignored, name);
        if (row == NULL && looks_like_a_setting(name))
            add_name(&unknown, name);
    }
    if (ignored.len > 0)
        notice(c, false, "settings without effect in this version: " SPAN_FMT,
               SPAN_ARG(buf_span(&ignored)));
    if (unknown.len > 0)
        notice(c, true, "unknown settings, ignored: " SPAN_FMT, SPAN_ARG(buf_span(&unknown)));
    buf_deinit(&ignored);
    buf_deinit(&unknown);
}

static void set_server_id(struct config *c, const struct config_env *env)
{
    struct buf id = BUF_INIT;
    if (span_trim(span_str(c->server_id)).len > 0)
        return;
    buf_put_span(&id, env_trimmed(env, "HOSTNAME"));
    if (id.len == 0)
        buf_printf(&id, "queen-%08x", env->random);
    mem_free(c->server_id);
    c->server_id = span_dup(buf_span(&id));
    buf_deinit(&id);
}

/* By default room for ten entries: the pipeline of eight that the setting's meaning comes from,
 * + 2. */
static void set_admission(struct config *c, const struct config_env *env)
{
    uint64_t mib = 1024 * 1024, entries = (10 * c->batch_max_bytes + mib - 1) / mib;
    if (env_trimmed(env, "QUEEN_RAFT_ADMIT_MAX_MB").len == 0 && c->admit_max_mb < entries)
        c->admit_max_mb = entries;
}

/* Rules over several settings. */
static void finish(struct config *c, const struct config_env *env)
{
    set_server_id(c, env);
    set_admission(c, env);
    if (c->disk_low_pct > c->disk_high_pct) {
        notice(c, true,
               "QUEEN_RAFT_DISK_LOW_PCT=%g is above QUEEN_RAFT_DISK_HIGH_PCT=%g: %g is used",
               c->disk_low_pct, c->disk_high_pct, c->disk_high_pct);
        c->disk_low_pct = c->disk_high_pct;
    }
    look_over_names(c, env);
}

enum err config_read(const struct config_env *env, struct config *out, struct error *error)
{
    struct config c = {0};
    enum err err = ERR_OK;
    for (size_t i = 0; err == ERR_OK && i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->effect == CONFIG_BINDS)
            err = read_binding(&c, row, env, error);
        else if (row->effect == CONFIG_NOT_BUILT)
            err = check_spelling(row, env, error);
    }
    if (err != ERR_OK) {
        config_deinit(&c);
        return err;
    }
    finish(&c, env);
    *out = c;
    return ERR_OK;
}

enum err config_check_built(const struct config_env *env, struct error *error)
{
    for (size_t i = 0; i < config_row_count; i++) {
        if (config_rows[i].effect == CONFIG_NOT_BUILT)
            TRY(check_row_not_built(&config_rows[i], env, error));
    }
    return ERR_OK;
}

void config_deinit(struct config *c)
{
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        if (row->effect == CONFIG_BINDS && config_is_text(row->kind))
            mem_free(*(char **)((char *)c + row->at));
    }
    for (size_t i = 0; i < c->n_notices; i++)
        mem_free(c->notices[i].text);
    mem_free(c->notices);
    *c = (struct config){0};
}

bool config_peek_log_json(const struct config_env *env)
{
    bool json = false;
    return parse_bool(env_trimmed(env, "QUEEN_LOG_JSON"), &json) && json;
}
