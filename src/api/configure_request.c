/* The body of POST /api/v1/configure (spec/broker-api.md 3) and the options object of its answer.
 *
 * Each option becomes "set", "reset" or "keep", so that apply merges into the state it finds. Where
 * a key stands twice the last one counts. Options whose effect is not built yet are taken at their
 * default only (spec/decisions.md 29). */
#include "api/request.h"

#define DEPTH_MAX 64u
#define HOLD_NAME_MAX 64u
#define POP_WAIT_MAX 60000

enum option_kind { KIND_I, KIND_B, KIND_S };

struct option_row {
    const char *name;
    enum option_kind kind;
    int64_t fallback, min, max;
};

static const struct option_row rows[QUEUE_OPTION_COUNT] = {
#define OPTION_ROW(field, name, kind, fallback, min, max) {name, KIND_##kind, fallback, min, max},
    QUEUE_OPTION_LIST(OPTION_ROW)
#undef OPTION_ROW
};

static void option_store(struct queue_options *o, enum queue_option option, int64_t value)
{
#define STORE_I(field) o->field = (int32_t)value
#define STORE_B(field) o->field = value != 0
#define STORE_S(field) (void)0
#define OPTION_STORE(field, name, kind, fallback, min, max)                                        \
    case QUEUE_OPTION_##field:                                                                     \
        STORE_##kind(field);                                                                       \
        break;
    switch (option) {
        QUEUE_OPTION_LIST(OPTION_STORE)
    case QUEUE_OPTION_COUNT:
        break;
    }
#undef OPTION_STORE
}

static int64_t option_load(const struct queue_options *o, enum queue_option option)
{
#define LOAD_I(field) o->field
#define LOAD_B(field) o->field ? 1 : 0
#define LOAD_S(field) o->field[0] != '\0' ? 1 : 0
#define OPTION_LOAD(field, name, kind, fallback, min, max)                                         \
    case QUEUE_OPTION_##field:                                                                     \
        return LOAD_##kind(field);
    switch (option) {
        QUEUE_OPTION_LIST(OPTION_LOAD)
    case QUEUE_OPTION_COUNT:
        break;
    }
#undef OPTION_LOAD
    return 0;
}

/* A literal format first: the prefix is part of it. */
#define bad(refusal, ...) refuse((refusal), 400, "bad_request", "" __VA_ARGS__)

static enum err bad_json(const struct json_reader *in, struct refusal *refusal)
{
    return refuse_json(refusal, "bad_request", "bad configure body: ", in);
}

struct parse {
    struct configure_request *out;
    struct arena *arena;
    struct json_raw mode, options; /* text empty: absent */
    struct span top_namespace, top_task;
    struct refusal *refusal;
};

/* --- options ------------------------------------------------------------------------------------
 */

static bool hold_name_valid(struct span name)
{
    if (name.len > HOLD_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        uint8_t c = name.ptr[i];
        bool ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-';
        if (!ok)
            return false;
    }
    return true;
}

static enum err take_hold(struct parse *p, const struct json_raw *value)
{
    struct span text = {NULL, 0};
    char *to = p->out->options.retention_sink_hold;
    if (value->type == JSON_STRING &&
        (!string_text(value, p->arena, &text) || !hold_name_valid(text)))
        return bad(p->refusal, "retentionSinkHold must match [A-Za-z0-9._-]{0,64}");
    memset(to, 0, sizeof(p->out->options.retention_sink_hold));
    if (text.len > 0)
        memcpy(to, text.ptr, text.len);
    return ERR_OK;
}

static enum err take_number(struct parse *p, enum queue_option option, const struct json_raw *value)
{
    const struct option_row *row = &rows[option];
    int64_t number;
    if (value->type != JSON_NUMBER || !json_int64(value->text, &number) || number < INT32_MIN ||
        number > INT32_MAX)
        return bad(p->refusal, "%s must be an integer", row->name);
    if (number < row->min || number > row->max)
        return bad(p->refusal, "%s must be between %lld and %lld, got %lld", row->name,
                   (long long)row->min, (long long)row->max, (long long)number);
    if (option == QUEUE_OPTION_lease_time && number < 1)
        number = 1;
    if (option == QUEUE_OPTION_min_pop_wait_time)
        number = number < 0 ? 0 : number > POP_WAIT_MAX ? POP_WAIT_MAX : number;
    option_store(&p->out->options, option, number);
    return ERR_OK;
}

static enum err take_option(struct parse *p, enum queue_option option, const struct json_raw *value)
{
    uint32_t bit = UINT32_C(1) << option;
    p->out->set &= ~bit;
    p->out->reset &= ~bit;
    if (value->type == JSON_NULL) {
        option_store(&p->out->options, option, rows[option].fallback);
        if (rows[option].kind == KIND_S)
            TRY(take_hold(p, value));
        p->out->reset |= bit;
        return ERR_OK;
    }
    p->out->set |= bit;
    switch (rows[option].kind) {
    case KIND_I:
        return take_number(p, option, value);
    case KIND_B:
        if (value->type != JSON_TRUE && value->type != JSON_FALSE)
            return bad(p->refusal, "%s must be a boolean", rows[option].name);
        option_store(&p->out->options, option, value->type == JSON_TRUE);
        return ERR_OK;
    case KIND_S:
        return take_hold(p, value);
    }
    return ERR_OK;
}

/* Null is an empty one. */
static enum err take_label(struct parse *p, const char *name, const struct json_raw *value,
                           struct span *out)
{
    *out = SPAN_LIT("");
    if (value->type == JSON_NULL)
        return ERR_OK;
    if (value->type != JSON_STRING)
        return bad(p->refusal, "%s must be a string", name);
    if (!string_text(value, p->arena, out))
        return bad(p->refusal, "%s has an unpaired surrogate escape, which no UTF-8 spells", name);
    if (out->len > LABEL_BYTES_MAX)
        return refuse(p->refusal, 413, "name_too_long", "%s is %zu bytes; it may be %u at most",
                      name, out->len, (unsigned)LABEL_BYTES_MAX);
    return ERR_OK;
}

static enum err take_namespace(struct parse *p, const struct json_raw *value)
{
    p->out->namespace_set = true;
    return take_label(p, "namespace", value, &p->out->namespace_);
}

static enum err take_task(struct parse *p, const struct json_raw *value)
{
    p->out->task_set = true;
    return take_label(p, "task", value, &p->out->task);
}

static enum err take_member(struct parse *p, const struct json_raw *key,
                            const struct json_raw *value)
{
    if (json_string_is(key->text, SPAN_LIT("namespace")))
        return take_namespace(p, value);
    if (json_string_is(key->text, SPAN_LIT("task")))
        return take_task(p, value);
    for (enum queue_option i = 0; i < QUEUE_OPTION_COUNT; i++) {
        if (json_string_is(key->text, span_str(rows[i].name)))
            return take_option(p, i, value);
    }
    return ERR_OK; /* unknown options */
}

/* The members of one object; `top` skips what is no option there. */
static enum err take_members(struct parse *p, struct span object, bool top)
{
    struct json_reader in;
    json_reader_init(&in, object, DEPTH_MAX);
    if (json_enter_object(&in) != ERR_OK)
        return bad_json(&in, p->refusal);
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(&in, &key, &more) != ERR_OK)
            return bad_json(&in, p->refusal);
        if (!more)
            return ERR_OK;
        if (json_take(&in, &value) != ERR_OK)
            return bad_json(&in, p->refusal);
        if (top && (json_string_is(key.text, SPAN_LIT("queue")) ||
                    json_string_is(key.text, SPAN_LIT("options")) ||
                    json_string_is(key.text, SPAN_LIT("mode"))))
            continue;
        TRY(take_member(p, &key, &value));
    }
}

/* An option whose effect is not built may only stand at its default. */
static enum err check_built(const struct parse *p)
{
    static const enum queue_option unbuilt[] = {
        QUEUE_OPTION_retention_seconds,
        QUEUE_OPTION_completed_retention_seconds,
        QUEUE_OPTION_retention_enabled,
        QUEUE_OPTION_encryption_enabled,
        QUEUE_OPTION_max_wait_time_seconds,
        QUEUE_OPTION_retention_sink_hold,
        QUEUE_OPTION_retention_sink_hold_max_seconds,
    };
    for (size_t i = 0; i < sizeof(unbuilt) / sizeof(unbuilt[0]); i++) {
        enum queue_option option = unbuilt[i];
        if ((p->out->set & UINT32_C(1) << option) != 0 &&
            option_load(&p->out->options, option) != rows[option].fallback)
            return bad(p->refusal, "%s is not built yet: only its default is accepted",
                       rows[option].name);
    }
    return ERR_OK;
}

/* --- the body -----------------------------------------------------------------------------------
 */

static enum err take_queue(struct parse *p, const struct json_raw *value)
{
    if (value->type != JSON_STRING)
        return bad(p->refusal, "queue is required");
    if (!string_text(value, p->arena, &p->out->queue))
        return bad(p->refusal, "queue has an unpaired surrogate escape, which no UTF-8 spells");
    return ERR_OK;
}

static enum err take_top(struct parse *p, const struct json_raw *key, const struct json_raw *value)
{
    if (json_string_is(key->text, SPAN_LIT("queue")))
        return take_queue(p, value);
    if (json_string_is(key->text, SPAN_LIT("namespace")))
        return take_label(p, "namespace", value, &p->top_namespace);
    if (json_string_is(key->text, SPAN_LIT("task")))
        return take_label(p, "task", value, &p->top_task);
    if (json_string_is(key->text, SPAN_LIT("mode")))
        p->mode = *value;
    else if (json_string_is(key->text, SPAN_LIT("options")))
        p->options = *value;
    return ERR_OK;
}

static enum err parse_top(struct parse *p, struct span body)
{
    struct json_reader in;
    json_reader_init(&in, body, DEPTH_MAX);
    enum json_type type;
    if (json_peek(&in, &type) != ERR_OK)
        return bad_json(&in, p->refusal);
    if (type != JSON_OBJECT)
        return bad(p->refusal, "bad configure body: not an object");
    if (json_enter_object(&in) != ERR_OK)
        return bad_json(&in, p->refusal);
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(&in, &key, &more) != ERR_OK)
            return bad_json(&in, p->refusal);
        if (!more)
            break;
        if (json_take(&in, &value) != ERR_OK)
            return bad_json(&in, p->refusal);
        TRY(take_top(p, &key, &value));
    }
    return json_end(&in) == ERR_OK ? ERR_OK : bad_json(&in, p->refusal);
}

static enum err parse_mode(struct parse *p, bool *replace)
{
    struct span text = SPAN_LIT("merge");
    *replace = false;
    if (p->mode.text.len == 0 || p->mode.type == JSON_NULL)
        return ERR_OK;
    if (p->mode.type == JSON_STRING && string_text(&p->mode, p->arena, &text)) {
        *replace = span_eq(text, SPAN_LIT("replace"));
        if (*replace || span_eq(text, SPAN_LIT("merge")))
            return ERR_OK;
    }
    return refuse(p->refusal, 400, "bad_request", "mode must be \"merge\" or \"replace\", got %.*s",
                  p->mode.text.len > 100 ? 100 : (int)p->mode.text.len,
                  (const char *)p->mode.text.ptr);
}

/* mode replace: what was left out is reset. */
static void reset_the_rest(struct configure_request *out)
{
    uint32_t all = (UINT32_C(1) << QUEUE_OPTION_COUNT) - 1;
    out->reset |= all & ~out->set;
    if (!out->namespace_set)
        out->namespace_ = SPAN_LIT("");
    if (!out->task_set)
        out->task = SPAN_LIT("");
    out->namespace_set = out->task_set = true;
}

enum err configure_request_parse(struct span body, struct arena *arena,
                                 struct configure_request *out, struct refusal *refusal)
{
    *out = (struct configure_request){.tenant = TENANT_DEFAULT};
    queue_options_default(&out->options);
    struct parse p = {.out = out, .arena = arena, .refusal = refusal};
    bool replace;
    TRY(parse_top(&p, body));
    if (out->queue.len == 0)
        return bad(refusal, "queue is required");
    TRY(names_check(out->queue, (struct span){NULL, 0}, "partition", refusal));
    TRY(parse_mode(&p, &replace));
    bool nested = p.options.text.len > 0 && p.options.type == JSON_OBJECT;
    if (nested)
        TRY(take_members(&p, p.options.text, false));
    else
        TRY(take_members(&p, body, true));
    if (nested && !out->namespace_set && p.top_namespace.len > 0) {
        out->namespace_ = p.top_namespace;
        out->namespace_set = true;
    }
    if (nested && !out->task_set && p.top_task.len > 0) {
        out->task = p.top_task;
        out->task_set = true;
    }
    TRY(check_built(&p));
    if (replace)
        reset_the_rest(out);
    return ERR_OK;
}

void queue_options_put(struct json_writer *w, const struct queue_options *o)
{
    json_begin_object(w);
    for (enum queue_option i = 0; i < QUEUE_OPTION_COUNT; i++) {
        int64_t value = option_load(o, i);
        if (i == QUEUE_OPTION_retention_sink_hold_max_seconds && value == 0)
            value = rows[i].fallback; /* of a queue created by a push */
        json_key(w, rows[i].name);
        switch (rows[i].kind) {
        case KIND_I:
            json_i64(w, value);
            break;
        case KIND_B:
            json_bool(w, value != 0);
            break;
        case KIND_S:
            json_cstr(w, o->retention_sink_hold);
            break;
        }
        if (i == QUEUE_OPTION_max_size) {
            json_key(w, "maxQueueSize");
            json_i64(w, value);
        }
    }
    json_end_object(w);
}
