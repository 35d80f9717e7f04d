/* Allocation over malloc. Zero bytes are a valid size and give a pointer of their own, so callers
 * need no special case. Only mem_try() reports shortage; the others end the process. */
#include "base/mem.h"

#include "base/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *mem_new(size_t size)
{
    void *ptr = mem_try(size);
    ASSERT(ptr != NULL);
    return ptr;
}

void *mem_try(size_t size)
{
    return calloc(1, size > 0 ? size : 1);
}

void *mem_grow(void *ptr, size_t size)
{
    void *grown = realloc(ptr, size > 0 ? size : 1);
    ASSERT(grown != NULL);
    return grown;
}

void *mem_copy(const void *ptr, size_t size)
{
    void *copy = malloc(size > 0 ? size : 1);
    ASSERT(copy != NULL);
    if (size > 0)
        memcpy(copy, ptr, size);
    return copy;
}

void mem_free(void *ptr)
{
    free(ptr);
}

void *mem_new_array(size_t size, size_t count)
{
    ASSERT(size == 0 || count <= SIZE_MAX / size);
    return mem_new(size * count);
}
