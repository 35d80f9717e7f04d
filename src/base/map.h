/* Hash maps: bytes to pointer, and 64-bit integer to pointer. Iteration order is unspecified and
 * must never decide anything that is replicated or written to a lake. */
#ifndef BASE_MAP_H
#define BASE_MAP_H

#include "base/span.h"

struct map {
    struct map_slot *slots;
    size_t count, cap;
};

#define MAP_INIT ((struct map){0})

void map_deinit(struct map *m);                      /* frees the keys, not the values */
void *map_get(const struct map *m, struct span key); /* NULL when absent */
/* Copies the key; value is not NULL. Returns the value replaced, or NULL. */
void *map_put(struct map *m, struct span key, void *value);
void *map_remove(struct map *m, struct span key); /* returns the value, NULL when absent */
/* *at starts at 0; returns false at the end. The map must not change meanwhile. */
bool map_next(const struct map *m, size_t *at, struct span *key_out, void **value_out);

struct map64 {
    struct map64_slot *slots;
    size_t count, cap;
};

#define MAP64_INIT ((struct map64){0})

void map64_deinit(struct map64 *m);
void *map64_get(const struct map64 *m, uint64_t key);
void *map64_put(struct map64 *m, uint64_t key, void *value);
void *map64_remove(struct map64 *m, uint64_t key);
bool map64_next(const struct map64 *m, size_t *at, uint64_t *key_out, void **value_out);

#endif
