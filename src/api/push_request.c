/* The body of POST /api/v1/push (spec/broker-api.md 2.1): one pass, the items' texts borrowed from
 * it.
 *
 * The reader may go deeper than a payload is allowed to, so that a refusal can tell how deep it
 * was. */
#include "api/request.h"

#include "base/mem.h"

#define ITEMS_FIRST 16u

/* A literal format first: the prefix is part of it. */
#define bad(refusal, ...) refuse((refusal), 400, "bad_body", "bad push body: " __VA_ARGS__)

static enum err bad_json(const struct json_reader *in, struct refusal *refusal)
{
    return refuse_json(refusal, "bad_body", "bad push body: ", in);
}

static struct push_item *add_item(struct push_request *r)
{
    if (r->n == r->cap) {
        r->cap = r->cap == 0 ? ITEMS_FIRST : 2 * r->cap;
        r->items = mem_grow(r->items, r->cap * sizeof(r->items[0]));
    }
    struct push_item *item = &r->items[r->n++];
    *item = (struct push_item){.partition = SPAN_LIT("Default"), .minted = true};
    return item;
}

/* A string field of item `index`; null only where it is optional (out then stays). */
static enum err text_field(struct push_request *r, size_t index, const char *name,
                           const struct json_raw *raw, bool optional, struct span *out, bool *given,
                           struct refusal *refusal)
{
    *given = false;
    if (optional && raw->type == JSON_NULL)
        return ERR_OK;
    if (raw->type != JSON_STRING)
        return bad(refusal, "item %zu: %s must be a string", index, name);
    if (!string_text(raw, &r->arena, out))
        return bad(refusal, "item %zu: %s has an unpaired surrogate escape, which no UTF-8 spells",
                   index, name);
    *given = true;
    return ERR_OK;
}

static enum err take_payload(struct push_item *item, size_t index, const struct json_raw *raw,
                             unsigned depth_max, struct refusal *refusal)
{
    if (raw->depth > depth_max)
        return bad(refusal,
                   "item %zu: the payload is nested %u deep; QUEEN_MAX_JSON_DEPTH allows %u", index,
                   raw->depth, depth_max);
    item->payload = raw->text;
    return ERR_OK;
}

static enum err take_field(struct push_request *r, size_t index, const struct json_raw *key,
                           const struct json_raw *raw, unsigned depth_max, struct refusal *refusal)
{
    struct push_item *item = &r->items[index];
    bool given;
    if (json_string_is(key->text, SPAN_LIT("payload")))
        return take_payload(item, index, raw, depth_max, refusal);
    if (json_string_is(key->text, SPAN_LIT("queue")))
        return text_field(r, index, "queue", raw, false, &item->queue, &given, refusal);
    if (json_string_is(key->text, SPAN_LIT("partition"))) {
        TRY(text_field(r, index, "partition", raw, true, &item->partition, &given, refusal));
        if (!given || item->partition.len == 0)
            item->partition = SPAN_LIT("Default");
        return ERR_OK;
    }
    if (json_string_is(key->text, SPAN_LIT("transactionId"))) {
        TRY(text_field(r, index, "transactionId", raw, true, &item->transaction_id, &given,
                       refusal));
        item->minted = !given;
    }
    return ERR_OK; /* unknown fields, traceId among them */
}

static enum err check_item(const struct push_item *item, size_t index, struct refusal *refusal)
{
    if (item->queue.ptr == NULL)
        return bad(refusal, "item %zu: queue is missing", index);
    if (item->queue.len == 0)
        return bad(refusal, "item %zu: queue is empty", index);
    if (item->payload.ptr == NULL)
        return bad(refusal, "item %zu: payload is missing", index);
    if (!item->minted && item->transaction_id.len > PUSH_TRANSACTION_ID_MAX)
        return bad(refusal, "item %zu: transactionId is %zu bytes; the most is %u", index,
                   item->transaction_id.len, PUSH_TRANSACTION_ID_MAX);
    return names_check(item->queue, item->partition, "partition", refusal);
}

static enum err parse_item(struct push_request *r, struct json_reader *in, unsigned depth_max,
                           struct refusal *refusal)
{
    size_t index = r->n;
    enum json_type type;
    if (json_peek(in, &type) != ERR_OK)
        return bad_json(in, refusal);
    if (type != JSON_OBJECT)
        return bad(refusal, "item %zu is not an object", index);
    if (json_enter_object(in) != ERR_OK)
        return bad_json(in, refusal);
    (void)add_item(r);
    for (;;) {
        struct json_raw key, value;
        bool more;
        if (json_next_key(in, &key, &more) != ERR_OK)
            return bad_json(in, refusal);
        if (!more)
            return check_item(&r->items[index], index, refusal);
        if (json_take(in, &value) != ERR_OK) {
            if (in->err == ERR_TOO_DEEP)
                return bad(refusal,
                           "item %zu: nested more than %u deep; QUEEN_MAX_JSON_DEPTH allows %u",
                           index, in->depth_max, depth_max);
            return bad_json(in, refusal);
        }
        TRY(take_field(r, index, &key, &value, depth_max, refusal));
    }
}

static enum err parse_items(struct push_request *r, struct json_reader *in, unsigned depth_max,
                            struct refusal *refusal)
{
    enum json_type type;
    if (json_peek(in, &type) != ERR_OK)
        return bad_json(in, refusal);
    if (type != JSON_ARRAY)
        return bad(refusal, "items must be an array");
    if (json_enter_array(in) != ERR_OK)
        return bad_json(in, refusal);
    r->n = 0; /* of equal keys the last counts */
    for (;;) {
        bool more;
        if (json_next_element(in, &more) != ERR_OK)
            return bad_json(in, refusal);
        if (!more)
            return ERR_OK;
        TRY(parse_item(r, in, depth_max, refusal));
    }
}

enum err push_request_parse(struct span body, unsigned depth_max, struct push_request *out,
                            struct refusal *refusal)
{
    *out = (struct push_request){0};
    struct json_reader in;
    json_reader_init(&in, body, JSON_DEPTH_MAX);
    bool seen = false;
    enum json_type type;
    if (json_peek(&in, &type) != ERR_OK)
        return bad_json(&in, refusal);
    if (type != JSON_OBJECT)
        return bad(refusal, "not an object");
    if (json_enter_object(&in) != ERR_OK)
        return bad_json(&in, refusal);
    for (;;) {
        struct json_raw key, skipped;
        bool more;
        if (json_next_key(&in, &key, &more) != ERR_OK)
            return bad_json(&in, refusal);
        if (!more)
            break;
        if (json_string_is(key.text, SPAN_LIT("items"))) {
            TRY(parse_items(out, &in, depth_max, refusal));
            seen = true;
        } else if (json_take(&in, &skipped) != ERR_OK) {
            return bad_json(&in, refusal);
        }
    }
    if (json_end(&in) != ERR_OK)
        return bad_json(&in, refusal);
    return seen ? ERR_OK : bad(refusal, "items is missing");
}

void push_request_deinit(struct push_request *r)
{
    mem_free(r->items);
    arena_deinit(&r->arena);
}
