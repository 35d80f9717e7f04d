/* Allocation. mem_new() zeroes and aborts when memory is short (a broker that restarts is safer
 * than an untested path); sizes that come from outside are checked against a limit and use
 * mem_try(). */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <stddef.h>

void *mem_new(size_t size) __attribute__((malloc, returns_nonnull)); /* zeroed; mem_free() */
void *mem_try(size_t size) __attribute__((malloc));                  /* zeroed; NULL when short */
void *mem_grow(void *ptr, size_t size) __attribute__((returns_nonnull)); /* realloc that aborts */
void *mem_copy(const void *ptr, size_t size);                            /* mem_free() */
void mem_free(void *ptr);                                                /* NULL is allowed */

#define MEM_ARRAY(type, count) ((type *)mem_new_array(sizeof(type), (count)))
void *mem_new_array(size_t size, size_t count) __attribute__((malloc, returns_nonnull));

#endif
