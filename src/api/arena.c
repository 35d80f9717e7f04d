/* Blocks of ARENA_BLOCK bytes; what does not fit well gets a block of its own behind the current
 * one. */
#include "api/arena.h"

#include "base/mem.h"

#define ARENA_BLOCK 4096u
#define ALIGN 16u

struct arena_block {
    struct arena_block *next;
    size_t used, size;
    _Alignas(ALIGN) uint8_t bytes[];
};

void *arena_alloc(struct arena *a, size_t size)
{
    size = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    struct arena_block *block = a->blocks;
    if (block == NULL || block->size - block->used < size) {
        size_t room = size > ARENA_BLOCK / 4 ? size : ARENA_BLOCK;
        struct arena_block *fresh = mem_new(sizeof(*fresh) + room);
        fresh->size = room;
        if (block != NULL && room != ARENA_BLOCK) { /* the current block stays in use */
            fresh->next = block->next;
            block->next = fresh;
        } else {
            fresh->next = block;
            a->blocks = fresh;
        }
        block = fresh;
    }
    void *out = block->bytes + block->used;
    block->used += size;
    return out;
}

struct span arena_copy(struct arena *a, struct span bytes)
{
    if (bytes.len == 0)
        return (struct span){NULL, 0};
    uint8_t *copy = arena_alloc(a, bytes.len);
    memcpy(copy, bytes.ptr, bytes.len);
    return span_make(copy, bytes.len);
}

void arena_deinit(struct arena *a)
{
    while (a->blocks != NULL) {
        struct arena_block *next = a->blocks->next;
        mem_free(a->blocks);
        a->blocks = next;
    }
}
