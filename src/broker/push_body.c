/* The body of COMMAND_PUSH, version 1, integers little-endian:
 *   offset size field
 *        0   16  tenant
 *       16    4  item count
 *       20    .  items
 * item:
 *        0    1  flags: 1 names follow (else those of the item before), 2 minted
 *        .  2+.  queue: length, bytes   (with names)
 *        .  2+.  partition: length, bytes   (with names)
 *        .   16  message id
 *        .  2+.  transaction id: length, bytes   (not when minted: it is the message id's text)
 *        .  4+.  payload: length, bytes
 *
 * Decoding checks every length and finds the groups on the way, so that what it yields is safe to
 * walk without further checks. A group is looked up only where names stand. */
#include "broker/push_internal.h"

#include "base/bytes.h"
#include "base/hash.h"
#include "base/mem.h"

enum { FLAG_NAMES = 1, FLAG_MINTED = 2 };
enum { HEAD_SIZE = 16 + 4, ITEM_SIZE_MIN = 1 + 16 + 4 };

#define MINTED_BIT 0x80000000u
#define SLOTS_KEPT 4096u
#define KEEP_BYTES ((size_t)8 * 1024 * 1024)

/* --- encoding --- */

static void short_put(struct buf *out, struct span s)
{
    ASSERT(s.len <= UINT16_MAX);
    buf_put_le16(out, (uint16_t)s.len);
    buf_put_span(out, s);
}

/* At most what the items take. */
static size_t encoded_max(const struct push_item *items, size_t n)
{
    size_t size = HEAD_SIZE + n * (ITEM_SIZE_MIN + 3 * sizeof(uint16_t));
    for (size_t i = 0; i < n; i++)
        size += items[i].payload.len + (items[i].minted ? 0 : items[i].transaction_id.len) +
                items[i].queue.len + items[i].partition.len;
    return size;
}

void push_encode(struct buf *out, const struct tenant_id *tenant, const struct push_item *items,
                 size_t n)
{
    buf_reserve(out, encoded_max(items, n)); /* payloads are large: copied once, here */
    buf_append(out, tenant->bytes, sizeof(tenant->bytes));
    buf_put_le32(out, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        const struct push_item *item = &items[i];
        bool names = i == 0 || !span_eq(item->queue, items[i - 1].queue) ||
                     !span_eq(item->partition, items[i - 1].partition);
        buf_putc(out, (uint8_t)((names ? FLAG_NAMES : 0) | (item->minted ? FLAG_MINTED : 0)));
        if (names) {
            short_put(out, item->queue);
            short_put(out, item->partition);
        }
        buf_append(out, item->message_id.bytes, sizeof(item->message_id.bytes));
        if (!item->minted)
            short_put(out, item->transaction_id);
        buf_put_le32(out, (uint32_t)item->payload.len);
        buf_put_span(out, item->payload);
    }
}

/* --- groups --- */

static uint64_t group_hash(struct span queue, struct span partition)
{
    return hash64(partition, hash64(queue, 0));
}

static void slots_grow(struct push_groups *g)
{
    g->slot_cap = g->slot_cap == 0 ? 64 : g->slot_cap * 2;
    mem_free(g->slots);
    g->slots = MEM_ARRAY(uint32_t, g->slot_cap);
    for (size_t i = 0; i < g->group_count; i++) {
        size_t at = g->groups[i].hash & (g->slot_cap - 1);
        while (g->slots[at] != 0)
            at = (at + 1) & (g->slot_cap - 1);
        g->slots[at] = (uint32_t)i + 1;
    }
}

static uint32_t group_find_or_add(struct push_groups *g, struct span queue, struct span partition)
{
    if (2 * (g->group_count + 1) > g->slot_cap)
        slots_grow(g);
    uint64_t hash = group_hash(queue, partition);
    size_t at = hash & (g->slot_cap - 1);
    for (; g->slots[at] != 0; at = (at + 1) & (g->slot_cap - 1)) {
        const struct push_group *group = &g->groups[g->slots[at] - 1];
        if (group->hash == hash && span_eq(group->queue, queue) &&
            span_eq(group->partition, partition))
            return g->slots[at] - 1;
    }
    if (g->group_count == g->group_cap) {
        g->group_cap = g->group_cap == 0 ? 64 : g->group_cap * 2;
        g->groups = mem_grow(g->groups, g->group_cap * sizeof(*g->groups));
    }
    g->groups[g->group_count++] =
        (struct push_group){.queue = queue, .partition = partition, .hash = hash};
    g->slots[at] = (uint32_t)g->group_count;
    return (uint32_t)g->group_count - 1;
}

/* --- decoding --- */

static struct span short_get(struct cursor *c)
{
    uint16_t len = cursor_le16(c);
    return cursor_bytes(c, len);
}

static size_t position(const struct push_groups *g, const struct cursor *c)
{
    return g->body.len - c->in.len;
}

/* group: of the item before on entry, of this one afterwards. */
static bool item_get(struct push_groups *g, struct cursor *c, struct push_wire_item *item,
                     uint32_t *group)
{
    uint8_t flags = cursor_u8(c);
    if (flags > (FLAG_NAMES | FLAG_MINTED))
        return false;
    if (flags & FLAG_NAMES) {
        struct span queue = short_get(c), partition = short_get(c);
        if (c->bad)
            return false;
        *group = group_find_or_add(g, queue, partition);
    }
    if (*group == UINT32_MAX) /* the first item has no names */
        return false;
    item->group = *group;
    item->at = (uint32_t)position(g, c) | (flags & FLAG_MINTED ? MINTED_BIT : 0);
    (void)cursor_bytes(c, sizeof(struct uuid));
    if (!(flags & FLAG_MINTED)) {
        (void)short_get(c);
        g->explicit_count++;
    }
    uint32_t payload_len = cursor_le32(c);
    (void)cursor_bytes(c, payload_len);
    g->groups[*group].count++;
    return !c->bad;
}

static void room(void **array, size_t *cap, size_t n, size_t size)
{
    if (*cap >= n)
        return;
    mem_free(*array);
    *array = mem_new_array(size, n);
    *cap = n;
}

/* Counting sort by group; stable. */
static void order_items(struct push_groups *g)
{
    uint32_t first = 0;
    for (size_t i = 0; i < g->group_count; i++) {
        g->groups[i].first = first;
        first += g->groups[i].count;
        g->groups[i].count = 0;
    }
    for (size_t i = 0; i < g->item_count; i++) {
        struct push_group *group = &g->groups[g->items[i].group];
        g->order[group->first + group->count++] = (uint32_t)i;
    }
}

enum err push_groups_decode(struct push_groups *g, struct span body, struct tenant_id *tenant_out)
{
    struct cursor c = {body, false};
    struct span tenant = cursor_bytes(&c, sizeof(tenant_out->bytes));
    uint32_t count = cursor_le32(&c);
    g->body = body;
    g->item_count = g->group_count = g->explicit_count = 0;
    if (g->slot_cap > SLOTS_KEPT) { /* small pushes must not pay for clearing it */
        mem_free(g->slots);
        g->slots = NULL;
        g->slot_cap = 0;
    }
    if (g->slots != NULL)
        memset(g->slots, 0, g->slot_cap * sizeof(*g->slots));
    if (c.bad || body.len >= MINTED_BIT || count > c.in.len / ITEM_SIZE_MIN)
        return ERR_CORRUPT;

    room((void **)&g->items, &g->item_cap, count, sizeof(*g->items));
    room((void **)&g->order, &g->order_cap, count, sizeof(*g->order));
    uint32_t group = UINT32_MAX;
    for (; g->item_count < count; g->item_count++) {
        if (!item_get(g, &c, &g->items[g->item_count], &group))
            return ERR_CORRUPT;
    }
    if (c.in.len != 0)
        return ERR_CORRUPT;
    order_items(g);
    memcpy(tenant_out->bytes, tenant.ptr, sizeof(tenant_out->bytes));
    return ERR_OK;
}

struct push_parts push_item_parts(const struct push_groups *g, uint32_t item)
{
    uint32_t at = g->items[item].at;
    struct cursor c = {span_sub(g->body, at & ~MINTED_BIT, g->body.len), false};
    struct push_parts parts = {.minted = at & MINTED_BIT};
    struct span id = cursor_bytes(&c, sizeof(parts.message_id.bytes));
    memcpy(parts.message_id.bytes, id.ptr, sizeof(parts.message_id.bytes));
    if (!parts.minted)
        parts.transaction_id = short_get(&c);
    uint32_t payload_len = cursor_le32(&c);
    parts.payload = cursor_bytes(&c, payload_len);
    return parts;
}

void push_groups_reset(struct push_groups *g)
{
    size_t bytes = g->item_cap * sizeof(*g->items) + g->order_cap * sizeof(*g->order) +
                   g->group_cap * sizeof(*g->groups) + g->slot_cap * sizeof(*g->slots);
    if (bytes > KEEP_BYTES)
        push_groups_deinit(g);
}

void push_groups_deinit(struct push_groups *g)
{
    mem_free(g->items);
    mem_free(g->order);
    mem_free(g->groups);
    mem_free(g->slots);
    *g = (struct push_groups){0};
}
