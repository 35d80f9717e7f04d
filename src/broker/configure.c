/* Configuring and deleting queues.
 *
 * Body of COMMAND_CONFIGURE, version 1, integers little-endian:
 *   offset size field
 *        0   16  tenant
 *       16    4  set: bit per option of QUEUE_OPTION_LIST given with a value
 *       20    4  reset: bit per option to be put back to its default
 *       24    1  flags: 1 namespace given, 2 task given
 *        .    .  per set option, in the list's order: integer le32, bool u8, text u8 length + bytes
 *        .  4+.  queue: length, bytes; then namespace and task alike, if given
 *
 * Body of COMMAND_QUEUE_DELETE: tenant 16, queue: length le32, bytes.
 *
 * The serving thread has checked types and ranges; an option out of its range can only be damage
 * here. */
#include "broker/configure.h"

#include "base/bytes.h"
#include "broker/dedup_window.h"
#include "broker/mint.h"

enum { NAMESPACE_GIVEN = 1, TASK_GIVEN = 2 };

#define IMPLICIT_LEASE_TIME 60 /* broker-api 2.4 */

static bool has(uint32_t mask, enum queue_option option)
{
    return mask & 1u << option;
}

/* --- options, by kind --- */

#define DEFAULT_I(field, def) o->field = (int32_t)(def);
#define DEFAULT_B(field, def) o->field = (def) != 0;
#define DEFAULT_S(field, def) memset(o->field, 0, sizeof(o->field));

static void options_reset(struct queue_options *o, uint32_t mask)
{
#define RESET(field, name, kind, def, min, max)                                                    \
    if (has(mask, QUEUE_OPTION_##field)) {                                                         \
        DEFAULT_##kind(field, def)                                                                 \
    }
    QUEUE_OPTION_LIST(RESET)
#undef RESET
}

void queue_options_default(struct queue_options *o)
{
    *o = (struct queue_options){0};
    options_reset(o, UINT32_MAX);
}

void queue_options_implicit(struct queue_options *o)
{
    queue_options_default(o);
    o->lease_time = IMPLICIT_LEASE_TIME;
    o->retention_sink_hold_max_seconds = 0;
}

static void int_put(struct buf *out, int32_t value, int64_t min, int64_t max)
{
    ASSERT(value >= min); /* here and not at apply: a bad body in the log would stop every node */
    ASSERT(value <= max);
    buf_put_le32(out, (uint32_t)value);
}

static void text_put(struct buf *out, const char *text, size_t size, size_t max)
{
    size_t len = strnlen(text, size);
    ASSERT(len <= max);
    buf_putc(out, (uint8_t)len);
    buf_append(out, text, len);
}

#define PUT_I(field, min, max) int_put(out, o->field, min, max);
#define PUT_B(field, min, max) buf_putc(out, o->field);
#define PUT_S(field, min, max) text_put(out, o->field, sizeof(o->field), max);

static void options_put(struct buf *out, const struct queue_options *o, uint32_t set)
{
#define PUT(field, name, kind, def, min, max)                                                      \
    if (has(set, QUEUE_OPTION_##field)) {                                                          \
        PUT_##kind(field, min, max)                                                                \
    }
    QUEUE_OPTION_LIST(PUT)
#undef PUT
}

static int32_t int_get(struct cursor *c, int64_t min, int64_t max)
{
    int32_t value = (int32_t)cursor_le32(c);
    if (value < min || value > max)
        c->bad = true;
    return value;
}

static bool bool_get(struct cursor *c)
{
    uint8_t value = cursor_u8(c);
    if (value > 1)
        c->bad = true;
    return value != 0;
}

static void text_get(struct cursor *c, char *text, size_t size, size_t max)
{
    uint8_t len = cursor_u8(c);
    struct span bytes = cursor_bytes(c, len);
    memset(text, 0, size);
    if (bytes.len > max || (bytes.len != 0 && memchr(bytes.ptr, 0, bytes.len) != NULL))
        c->bad = true;
    else if (bytes.len != 0)
        memcpy(text, bytes.ptr, bytes.len);
}

#define GET_I(field, min, max) o->field = int_get(c, min, max);
#define GET_B(field, min, max) o->field = bool_get(c);
#define GET_S(field, min, max) text_get(c, o->field, sizeof(o->field), max);

static void options_get(struct cursor *c, struct queue_options *o, uint32_t set)
{
#define GET(field, name, kind, def, min, max)                                                      \
    if (has(set, QUEUE_OPTION_##field)) {                                                          \
        GET_##kind(field, min, max)                                                                \
    }
    QUEUE_OPTION_LIST(GET)
#undef GET
}

#define COPY_I(field) to->field = from->field;
#define COPY_B(field) to->field = from->field;
#define COPY_S(field) memcpy(to->field, from->field, sizeof(to->field));

static void options_copy(struct queue_options *to, const struct queue_options *from, uint32_t set)
{
#define COPY(field, name, kind, def, min, max)                                                     \
    if (has(set, QUEUE_OPTION_##field)) {                                                          \
        COPY_##kind(field)                                                                         \
    }
    QUEUE_OPTION_LIST(COPY)
#undef COPY
}

/* --- labels --- */

static struct span until_dot(struct span *rest)
{
    const uint8_t *dot = rest->len == 0 ? NULL : memchr(rest->ptr, '.', rest->len);
    size_t len = dot == NULL ? rest->len : (size_t)(dot - rest->ptr);
    struct span part = span_sub(*rest, 0, len);
    *rest = span_sub(*rest, dot == NULL ? len : len + 1, rest->len);
    return part;
}

void queue_labels_from_name(struct span name, struct span *namespace_out, struct span *task_out)
{
    struct span rest = name;
    struct span first = until_dot(&rest);
    *namespace_out = first;
    *task_out = until_dot(&rest);
}

/* --- encoding --- */

static void name_put(struct buf *out, struct span name)
{
    buf_put_le32(out, (uint32_t)name.len);
    buf_put_span(out, name);
}

static struct span name_get(struct cursor *c)
{
    uint32_t len = cursor_le32(c);
    return cursor_bytes(c, len);
}

void configure_encode(struct buf *out, const struct configure_request *r)
{
    ASSERT((r->set & r->reset) == 0);
    buf_append(out, r->tenant.bytes, sizeof(r->tenant.bytes));
    buf_put_le32(out, r->set);
    buf_put_le32(out, r->reset);
    buf_putc(out,
             (uint8_t)((r->namespace_set ? NAMESPACE_GIVEN : 0) | (r->task_set ? TASK_GIVEN : 0)));
    options_put(out, &r->options, r->set);
    name_put(out, r->queue);
    if (r->namespace_set)
        name_put(out, r->namespace_);
    if (r->task_set)
        name_put(out, r->task);
}

static bool tenant_get(struct cursor *c, struct tenant_id *out)
{
    struct span bytes = cursor_bytes(c, sizeof(out->bytes));
    if (bytes.len != sizeof(out->bytes))
        return false;
    memcpy(out->bytes, bytes.ptr, sizeof(out->bytes));
    return true;
}

static enum err configure_decode(struct span body, struct configure_request *r)
{
    struct cursor c = {body, false};
    *r = (struct configure_request){0};
    if (!tenant_get(&c, &r->tenant))
        return ERR_CORRUPT;
    r->set = cursor_le32(&c);
    r->reset = cursor_le32(&c);
    uint8_t flags = cursor_u8(&c);
    if ((r->set & r->reset) != 0 || (r->set | r->reset) >> QUEUE_OPTION_COUNT != 0 ||
        flags > (NAMESPACE_GIVEN | TASK_GIVEN))
        return ERR_CORRUPT;
    options_get(&c, &r->options, r->set);
    r->queue = name_get(&c);
    r->namespace_set = flags & NAMESPACE_GIVEN;
    r->task_set = flags & TASK_GIVEN;
    if (r->namespace_set)
        r->namespace_ = name_get(&c);
    if (r->task_set)
        r->task = name_get(&c);
    return c.bad || c.in.len != 0 ? ERR_CORRUPT : ERR_OK;
}

void queue_delete_encode(struct buf *out, const struct tenant_id *tenant, struct span queue)
{
    buf_append(out, tenant->bytes, sizeof(tenant->bytes));
    name_put(out, queue);
}

/* --- applying --- */

void configure_result_deinit(struct configure_result *r)
{
    if (r == NULL)
        return;
    buf_deinit(&r->namespace_);
    buf_deinit(&r->task);
}

/* A queue made here has empty labels; one made by a push has them from its name. */
static struct queue *queue_find_or_create(struct state *s, struct apply_context *at,
                                          const struct configure_request *r)
{
    struct queue *q = state_queue_find(s, &r->tenant, r->queue);
    if (q != NULL)
        return q;
    struct queue_options options;
    struct uuid uuid = mint_uuid(s, at);
    queue_options_default(&options);
    return state_queue_create(s, &r->tenant, r->queue, &uuid, at->now, &options);
}

enum err configure_apply(struct state *s, struct apply_context *at, struct span body,
                         struct configure_result *result, struct error *error)
{
    struct configure_request r;
    if (configure_decode(body, &r) != ERR_OK)
        return error_set(error, ERR_CORRUPT, "a configure command does not decode");

    struct queue *q = queue_find_or_create(s, at, &r);
    struct queue_options options = q->options;
    options_copy(&options, &r.options, r.set);
    options_reset(&options, r.reset);
    state_queue_touch(s, q);
    dedup_window_set(s, q, options.dedup_window_seconds, at->now);
    q->options = options;
    if (r.namespace_set || r.task_set)
        state_queue_set_labels(s, q, r.namespace_set ? r.namespace_ : q->namespace_,
                               r.task_set ? r.task : q->task);
    if (result != NULL) {
        *result = (struct configure_result){.queue_uuid = q->uuid, .options = q->options};
        buf_put_span(&result->namespace_, q->namespace_);
        buf_put_span(&result->task, q->task);
    }
    return ERR_OK;
}

enum err queue_delete_apply(struct state *s, struct apply_context *at, struct span body,
                            bool *existed_out, struct error *error)
{
    (void)at; /* deletion mints nothing and stamps nothing */
    struct cursor c = {body, false};
    struct tenant_id tenant;
    bool known = tenant_get(&c, &tenant);
    struct span name = name_get(&c);
    if (!known || c.bad || c.in.len != 0)
        return error_set(error, ERR_CORRUPT, "a queue delete command does not decode");

    struct queue *q = state_queue_find(s, &tenant, name);
    if (q != NULL)
        state_queue_delete(s, q);
    if (existed_out != NULL)
        *existed_out = q != NULL;
    return ERR_OK;
}
