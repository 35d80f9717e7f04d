/* Ordered map: a B+ tree. Rows hang off the leaves, inner nodes hold the smallest key each child
 * may hold (a "bound", owned by the node) and every slot carries the first eight bytes of its key
 * as a number, so most comparisons touch no memory outside the node.
 *
 * Inserts split full nodes on the way down, so a parent always has room. A node goes away when it
 * is empty, not when it is half empty: maps here fill up, are drained by a checkpoint and are
 * freed, and an underfull node costs only space. Separators need not be keys that still exist.
 *
 * Invariants: all leaves are at the same depth; no node but an only leaf is empty; keys of child i
 * of an inner node are >= bound i (for i > 0) and < bound i + 1. */
#include "base/omap.h"

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"

#define FANOUT 64      /* slots per node: a node is 1.5 to 2 KiB, six comparisons per level */
#define HEIGHT_MAX 32  /* levels; 64^32 rows cannot be reached, nor can one row per leaf */
#define MALLOC_COST 16 /* bytes an allocation costs beside its own, for omap_bytes() */

__extension__ typedef unsigned __int128 prefix;

struct row {
    uint32_t key_len;
    bool deleted;
    size_t value_len;
    uint8_t bytes[]; /* key, then value */
};

struct bound {
    uint32_t len;
    uint8_t bytes[];
};

struct node {
    unsigned count;
    bool leaf;
    prefix prefix[FANOUT]; /* of the row's key, or of the bound */
    union {
        struct row *rows[FANOUT];
        struct node *children[FANOUT];
    };
};

struct inner { /* the node first: a leaf has no bounds */
    struct node node;
    struct bound *bounds[FANOUT]; /* bounds[0] is NULL: everything below bounds[1] */
};

struct omap {
    struct node *root;
    size_t count;
    size_t bytes;
};

/* A key with its prefix: unequal prefixes order as the keys do, equal ones decide nothing. */
struct probe {
    struct span key;
    prefix prefix;
};

/* Up to eight bytes as a number that orders like them. */
static uint64_t word_of(struct span s)
{
    if (s.len >= 8)
        return be64_get(s.ptr);
    uint64_t word = 0;
    for (size_t i = 0; i < s.len; i++)
        word |= (uint64_t)s.ptr[i] << (56 - 8 * i);
    return word;
}

static prefix prefix_of(struct span key)
{
    uint64_t low = key.len > 8 ? word_of(span_sub(key, 8, key.len)) : 0;
    return (prefix)word_of(key) << 64 | low;
}

static struct inner *inner_of(const struct node *n)
{
    return (struct inner *)n;
}

static struct span row_key(const struct row *row)
{
    return (struct span){row->bytes, row->key_len};
}

static size_t row_cost(const struct row *row)
{
    return sizeof(*row) + row->key_len + row->value_len + MALLOC_COST;
}

static size_t node_cost(const struct node *n)
{
    return (n->leaf ? sizeof(struct node) : sizeof(struct inner)) + MALLOC_COST;
}

static struct node *node_new(struct omap *m, bool leaf)
{
    struct node *n = mem_new(leaf ? sizeof(struct node) : sizeof(struct inner));
    n->leaf = leaf;
    m->bytes += node_cost(n);
    return n;
}

static void node_free(struct omap *m, struct node *n)
{
    m->bytes -= node_cost(n);
    mem_free(n);
}

static struct bound *bound_new(struct omap *m, struct span key)
{
    struct bound *bound = mem_new(sizeof(*bound) + key.len);
    bound->len = (uint32_t)key.len;
    if (key.len > 0)
        memcpy(bound->bytes, key.ptr, key.len);
    m->bytes += sizeof(*bound) + key.len + MALLOC_COST;
    return bound;
}

static void bound_free(struct omap *m, struct bound *bound)
{
    if (bound == NULL)
        return;
    m->bytes -= sizeof(*bound) + bound->len + MALLOC_COST;
    mem_free(bound);
}

/* Order of slot i against the probe. */
static int slot_cmp(const struct node *n, unsigned i, const struct probe *probe)
{
    if (n->prefix[i] != probe->prefix)
        return n->prefix[i] < probe->prefix ? -1 : 1;
    if (n->leaf)
        return span_cmp(row_key(n->rows[i]), probe->key);
    const struct bound *bound = inner_of(n)->bounds[i];
    return span_cmp((struct span){bound->bytes, bound->len}, probe->key);
}

/* First slot of a leaf with key >= probe (strict: >). */
static unsigned leaf_find(const struct node *n, const struct probe *probe, bool strict)
{
    unsigned from = 0;
    unsigned to = n->count;
    while (from < to) {
        unsigned mid = (from + to) / 2;
        int order = slot_cmp(n, mid, probe);
        if (order < 0 || (strict && order == 0))
            from = mid + 1;
        else
            to = mid;
    }
    return from;
}

/* The child of an inner node whose range holds the probe. */
static unsigned child_find(const struct node *n, const struct probe *probe)
{
    unsigned from = 1; /* child 0 has no lower bound */
    unsigned to = n->count;
    while (from < to) {
        unsigned mid = (from + to) / 2;
        if (slot_cmp(n, mid, probe) <= 0)
            from = mid + 1;
        else
            to = mid;
    }
    return from - 1;
}

struct omap *omap_new(void)
{
    struct omap *m = mem_new(sizeof(*m));
    m->root = node_new(m, true);
    return m;
}

/* Depth is bounded by HEIGHT_MAX. */
static void tree_free(struct node *n)
{
    for (unsigned i = 0; i < n->count; i++) {
        if (n->leaf) {
            mem_free(n->rows[i]);
        } else {
            tree_free(n->children[i]);
            mem_free(inner_of(n)->bounds[i]);
        }
    }
    mem_free(n);
}

void omap_free(struct omap *m)
{
    if (m == NULL)
        return;
    tree_free(m->root);
    mem_free(m);
}

size_t omap_count(const struct omap *m)
{
    return m->count;
}

size_t omap_bytes(const struct omap *m)
{
    return m->bytes;
}

/* Moves slots [at, count) by one to the right. */
static void open_slot(struct node *n, unsigned at)
{
    unsigned tail = n->count - at;
    memmove(&n->prefix[at + 1], &n->prefix[at], tail * sizeof(n->prefix[0]));
    memmove(&n->rows[at + 1], &n->rows[at], tail * sizeof(n->rows[0]));
    if (!n->leaf) {
        struct bound **bounds = inner_of(n)->bounds;
        memmove(&bounds[at + 1], &bounds[at], tail * sizeof(bounds[0]));
    }
    n->count++;
}

static void close_slot(struct node *n, unsigned at)
{
    unsigned tail = n->count - at - 1;
    memmove(&n->prefix[at], &n->prefix[at + 1], tail * sizeof(n->prefix[0]));
    memmove(&n->rows[at], &n->rows[at + 1], tail * sizeof(n->rows[0]));
    if (!n->leaf) {
        struct bound **bounds = inner_of(n)->bounds;
        memmove(&bounds[at], &bounds[at + 1], tail * sizeof(bounds[0]));
    }
    n->count--;
}

/* Where to cut a full node. A leaf that fills in key order is cut at its end, so that rows put in
 * order leave full leaves behind. */
static unsigned cut_of(const struct node *n, const struct probe *probe)
{
    return slot_cmp(n, n->count - 1, probe) < 0 ? n->count - 1 : n->count / 2;
}

/* Splits the full child `at` of a parent that has room: the upper part becomes child at + 1. */
static void split_child(struct omap *m, struct node *parent, unsigned at, const struct probe *probe)
{
    struct node *left = parent->children[at];
    struct node *right = node_new(m, left->leaf);
    unsigned cut = cut_of(left, probe);
    unsigned moved = left->count - cut;

    memcpy(right->prefix, &left->prefix[cut], moved * sizeof(left->prefix[0]));
    memcpy(right->rows, &left->rows[cut], moved * sizeof(left->rows[0]));
    struct bound *bound;
    if (left->leaf) {
        bound = bound_new(m, row_key(left->rows[cut]));
    } else {
        struct inner *to = inner_of(right);
        memcpy(to->bounds, &inner_of(left)->bounds[cut], moved * sizeof(to->bounds[0]));
        bound = to->bounds[0]; /* moves up */
        to->bounds[0] = NULL;
    }
    prefix first = left->prefix[cut];
    left->count = cut;
    right->count = moved;

    open_slot(parent, at + 1);
    parent->prefix[at + 1] = first;
    parent->children[at + 1] = right;
    inner_of(parent)->bounds[at + 1] = bound;
}

/* The leaf where the key is or belongs, with room for one more row. */
static struct node *descend_to_put(struct omap *m, const struct probe *probe)
{
    if (m->root->count == FANOUT) {
        struct node *root = node_new(m, false);
        root->count = 1;
        root->children[0] = m->root;
        m->root = root;
        split_child(m, root, 0, probe);
    }
    struct node *n = m->root;
    while (!n->leaf) {
        unsigned at = child_find(n, probe);
        if (n->children[at]->count == FANOUT) {
            split_child(m, n, at, probe);
            at = child_find(n, probe);
        }
        n = n->children[at];
    }
    return n;
}

static struct row *row_new(struct span key, struct span value, bool deleted)
{
    struct row *row = mem_new(sizeof(*row) + key.len + value.len);
    row->key_len = (uint32_t)key.len;
    row->value_len = value.len;
    row->deleted = deleted;
    if (key.len > 0)
        memcpy(row->bytes, key.ptr, key.len);
    if (value.len > 0)
        memcpy(row->bytes + key.len, value.ptr, value.len);
    return row;
}

static void put(struct omap *m, struct span key, struct span value, bool deleted)
{
    ASSERT(key.len <= UINT32_MAX);
    struct probe probe = {key, prefix_of(key)};
    struct row *row =
        row_new(key, value, deleted); /* before the old one goes: may borrow from it */
    struct node *leaf = descend_to_put(m, &probe);
    unsigned at = leaf_find(leaf, &probe, false);
    if (at < leaf->count && slot_cmp(leaf, at, &probe) == 0) {
        m->bytes -= row_cost(leaf->rows[at]);
        mem_free(leaf->rows[at]);
    } else {
        open_slot(leaf, at);
        leaf->prefix[at] = probe.prefix;
        m->count++;
    }
    leaf->rows[at] = row;
    m->bytes += row_cost(row);
}

void omap_put(struct omap *m, struct span key, struct span value)
{
    put(m, key, value, false);
}

void omap_put_tombstone(struct omap *m, struct span key)
{
    put(m, key, (struct span){NULL, 0}, true);
}

/* Takes the empty child `at` out of its parent. */
static void drop_child(struct omap *m, struct node *parent, unsigned at)
{
    struct inner *inner = inner_of(parent);
    node_free(m, parent->children[at]);
    bound_free(m, inner->bounds[at]);
    close_slot(parent, at);
    if (at == 0 && parent->count > 0) { /* the next child takes over everything below it */
        bound_free(m, inner->bounds[0]);
        inner->bounds[0] = NULL;
    }
}

void omap_erase(struct omap *m, struct span key)
{
    struct probe probe = {key, prefix_of(key)};
    struct node *path[HEIGHT_MAX];
    unsigned slots[HEIGHT_MAX];
    unsigned depth = 0;
    struct node *n = m->root;
    while (!n->leaf) {
        ASSERT(depth < HEIGHT_MAX);
        path[depth] = n;
        slots[depth] = child_find(n, &probe);
        n = n->children[slots[depth++]];
    }
    unsigned at = leaf_find(n, &probe, false);
    if (at == n->count || slot_cmp(n, at, &probe) != 0)
        return;
    struct row *row = n->rows[at]; /* freed last: the key may be the row's own */
    m->bytes -= row_cost(row);
    close_slot(n, at);
    m->count--;

    while (depth > 0 && n->count == 0) {
        n = path[--depth];
        drop_child(m, n, slots[depth]);
    }
    while (!m->root->leaf && m->root->count <= 1) {
        struct node *root = m->root;
        m->root = root->count == 1 ? root->children[0] : node_new(m, true);
        node_free(m, root);
    }
    mem_free(row);
}

static struct omap_row row_out_of(const struct row *row)
{
    return (struct omap_row){
        .key = row_key(row),
        .value = {row->bytes + row->key_len, row->value_len},
        .deleted = row->deleted,
    };
}

bool omap_get(const struct omap *m, struct span key, struct omap_row *row_out)
{
    struct probe probe = {key, prefix_of(key)};
    const struct node *n = m->root;
    while (!n->leaf)
        n = n->children[child_find(n, &probe)];
    unsigned at = leaf_find(n, &probe, false);
    if (at == n->count || slot_cmp(n, at, &probe) != 0)
        return false;
    *row_out = row_out_of(n->rows[at]);
    return true;
}

bool omap_seek(const struct omap *m, struct span from, bool strict, struct omap_row *row_out)
{
    struct probe probe = {from, prefix_of(from)};
    const struct node *n = m->root;
    const struct node *next = NULL; /* the nearest subtree to the right of the path */
    while (!n->leaf) {
        unsigned at = child_find(n, &probe);
        if (at + 1 < n->count)
            next = n->children[at + 1];
        n = n->children[at];
    }
    unsigned at = leaf_find(n, &probe, strict);
    if (at == n->count) { /* the answer, if any, is the first row of that subtree */
        if (next == NULL)
            return false;
        for (n = next; !n->leaf;)
            n = n->children[0];
        at = 0;
    }
    *row_out = row_out_of(n->rows[at]);
    return true;
}

/* Depth is bounded by HEIGHT_MAX. */
static void node_each(const struct node *n, void (*visit)(void *ctx, const struct omap_row *row),
                      void *ctx)
{
    for (unsigned i = 0; i < n->count; i++) {
        if (n->leaf) {
            struct omap_row row = row_out_of(n->rows[i]);
            visit(ctx, &row);
        } else {
            node_each(n->children[i], visit, ctx);
        }
    }
}

void omap_each(const struct omap *m, void (*visit)(void *ctx, const struct omap_row *row),
               void *ctx)
{
    node_each(m->root, visit, ctx);
}
