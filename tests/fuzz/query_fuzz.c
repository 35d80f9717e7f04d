/* Fuzz target of query strings: the first half of the input is looked for in the second. */
#include "fuzz/fuzz.h"

#include "api/request.h"

#include "base/mem.h"

#define MIN INT64_C(-5)
#define MAX INT64_C(1000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *name = span_dup(span_make(data, size / 2)); /* it ends at its first NUL, as names do */
    struct span query = span_make(data + size / 2, size - size / 2);
    struct buf text = BUF_INIT;
    struct refusal refusal = {0};
    int64_t number = 7;
    bool found = query_text(query, name, &text);
    ASSERT(found || text.len == 0);
    ASSERT(text.len <= query.len);
    if (query_integer(query, name, MIN, MAX, &number, &refusal) == ERR_OK)
        ASSERT((!found && number == 7) || (found && number >= MIN && number <= MAX));
    else
        ASSERT(found && refusal.status == 400 && refusal.text[0] != 0);
    buf_deinit(&text);
    mem_free(name);
    return 0;
}
