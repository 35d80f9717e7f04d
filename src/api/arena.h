/* Memory that dies with one request: allocated in blocks, freed at once. */
#ifndef API_ARENA_H
#define API_ARENA_H

#include "base/span.h"

struct arena {
    struct arena_block *blocks; /* newest first */
};

#define ARENA_INIT ((struct arena){NULL})

void *arena_alloc(struct arena *a, size_t size); /* zeroed, aligned for any object */
struct span arena_copy(struct arena *a, struct span bytes);
void arena_deinit(struct arena *a);

#endif
