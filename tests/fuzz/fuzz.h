/* The entry point of every fuzz target: called by libFuzzer, or by corpus_main.c for each file. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Always 0; what must not happen aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
