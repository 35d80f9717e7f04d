/* Hash maps: open addressing with linear probing, at most three quarters full.
 *
 * A slot is free when its value is NULL. Removal shifts the following slots of the run back, so
 * there are no tombstones and a lookup ends at the first free slot. Capacities are powers of two.
 */
#include "base/map.h"

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"

#define CAP_MIN 16

struct map_slot {
    uint64_t hash;
    uint8_t *key; /* owned */
    size_t len;
    void *value; /* NULL: free */
};

struct map64_slot {
    uint64_t key;
    void *value; /* NULL: free */
};

static bool too_full(size_t count, size_t cap)
{
    return count >= cap - cap / 4;
}

void map_deinit(struct map *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->cap; i++)
        mem_free(m->slots[i].key);
    mem_free(m->slots);
    *m = MAP_INIT;
}

/* The slot that holds the key, else the free one where it would go. cap > 0. */
static struct map_slot *find(const struct map *m, struct span key, uint64_t hash)
{
    for (size_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *slot = &m->slots[i];
        if (slot->value == NULL)
            return slot;
        if (slot->hash == hash && span_eq((struct span){slot->key, slot->len}, key))
            return slot;
    }
}

static void grow(struct map *m)
{
    struct map bigger = {.count = m->count, .cap = m->cap > 0 ? 2 * m->cap : CAP_MIN};
    bigger.slots = MEM_ARRAY(struct map_slot, bigger.cap);
    for (size_t i = 0; i < m->cap; i++) {
        struct map_slot *slot = &m->slots[i];
        if (slot->value == NULL)
            continue;
        size_t at = slot->hash & (bigger.cap - 1);
        while (bigger.slots[at].value != NULL)
            at = (at + 1) & (bigger.cap - 1);
        bigger.slots[at] = *slot;
    }
    mem_free(m->slots);
    *m = bigger;
}

void *map_get(const struct map *m, struct span key)
{
    return m->cap > 0 ? find(m, key, hash64(key, 0))->value : NULL;
}

void *map_put(struct map *m, struct span key, void *value)
{
    ASSERT(value != NULL);
    if (too_full(m->count, m->cap))
        grow(m);
    uint64_t hash = hash64(key, 0);
    struct map_slot *slot = find(m, key, hash);
    void *old = slot->value;
    if (old == NULL) {
        *slot = (struct map_slot){hash, mem_copy(key.ptr, key.len), key.len, NULL};
        m->count++;
    }
    slot->value = value;
    return old;
}

void *map_remove(struct map *m, struct span key)
{
    if (m->cap == 0)
        return NULL;
    struct map_slot *slot = find(m, key, hash64(key, 0));
    void *value = slot->value;
    if (value == NULL)
        return NULL;
    mem_free(slot->key);
    m->count--;

    size_t mask = m->cap - 1;
    size_t hole = (size_t)(slot - m->slots);
    for (size_t i = (hole + 1) & mask; m->slots[i].value != NULL; i = (i + 1) & mask) {
        /* A slot may move back to the hole unless its home lies behind the hole. */
        size_t home = m->slots[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct map_slot){0};
    return value;
}

bool map_next(const struct map *m, size_t *at, struct span *key_out, void **value_out)
{
    while (*at < m->cap) {
        const struct map_slot *slot = &m->slots[(*at)++];
        if (slot->value == NULL)
            continue;
        *key_out = (struct span){slot->key, slot->len};
        *value_out = slot->value;
        return true;
    }
    return false;
}

/* MurmurHash3's 64-bit finaliser: a bijection, so equal hashes are equal keys. */
static uint64_t mix64(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xFF51AFD7ED558CCDu;
    key ^= key >> 33;
    key *= 0xC4CEB9FE1A85EC53u;
    key ^= key >> 33;
    return key;
}

void map64_deinit(struct map64 *m)
{
    if (m == NULL)
        return;
    mem_free(m->slots);
    *m = MAP64_INIT;
}

static struct map64_slot *find64(const struct map64 *m, uint64_t key)
{
    for (size_t i = mix64(key) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map64_slot *slot = &m->slots[i];
        if (slot->value == NULL || slot->key == key)
            return slot;
    }
}

static void grow64(struct map64 *m)
{
    struct map64 bigger = {.count = m->count, .cap = m->cap > 0 ? 2 * m->cap : CAP_MIN};
    bigger.slots = MEM_ARRAY(struct map64_slot, bigger.cap);
    for (size_t i = 0; i < m->cap; i++) {
        if (m->slots[i].value != NULL)
            *find64(&bigger, m->slots[i].key) = m->slots[i];
    }
    mem_free(m->slots);
    *m = bigger;
}

void *map64_get(const struct map64 *m, uint64_t key)
{
    return m->cap > 0 ? find64(m, key)->value : NULL;
}

void *map64_put(struct map64 *m, uint64_t key, void *value)
{
    ASSERT(value != NULL);
    if (too_full(m->count, m->cap))
        grow64(m);
    struct map64_slot *slot = find64(m, key);
    void *old = slot->value;
    if (old == NULL)
        m->count++;
    *slot = (struct map64_slot){key, value};
    return old;
}

void *map64_remove(struct map64 *m, uint64_t key)
{
    if (m->cap == 0)
        return NULL;
    struct map64_slot *slot = find64(m, key);
    void *value = slot->value;
    if (value == NULL)
        return NULL;
    m->count--;

    size_t mask = m->cap - 1;
    size_t hole = (size_t)(slot - m->slots);
    for (size_t i = (hole + 1) & mask; m->slots[i].value != NULL; i = (i + 1) & mask) {
        size_t home = mix64(m->slots[i].key) & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct map64_slot){0};
    return value;
}

bool map64_next(const struct map64 *m, size_t *at, uint64_t *key_out, void **value_out)
{
    while (*at < m->cap) {
        const struct map64_slot *slot = &m->slots[(*at)++];
        if (slot->value == NULL)
            continue;
        *key_out = slot->key;
        *value_out = slot->value;
        return true;
    }
    return false;
}
