/* Applying arbitrary bodies of COMMAND_KV. There is one queue, id 1, named "q", for pins. */
#include "fuzz/command_fuzz.h"
#include "kv/kv.h"

static void make_queue(struct state *s)
{
    const struct uuid uuid = {{1}};
    const struct queue_options options = {0};
    if (state_meta(s)->next_queue_id == 1)
        (void)state_queue_create(s, &TENANT_DEFAULT, SPAN_LIT("q"), &uuid, 1, &options);
}

static void read_row(const struct kv_row *row)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < row->key.len; i++)
        sum = (uint8_t)(sum + row->key.ptr[i]);
    for (size_t i = 0; i < row->value.len; i++)
        sum = (uint8_t)(sum + row->value.ptr[i]);
}

static void read_result(const struct kv_result *result)
{
    read_row(&result->failed_row);
    for (size_t i = 0; i < result->n; i++) {
        read_row(&result->ops[i].row);
        for (size_t j = 0; j < result->ops[i].n_rows; j++)
            read_row(&result->ops[i].rows[j]);
    }
}

static enum err apply(struct state *s, struct apply_context *at, struct span body, bool with_result)
{
    struct kv_result result = {0};
    make_queue(s);
    uint64_t version = state_meta(s)->kv_version;
    enum err err = kv_apply(s, at, body, with_result ? &result : NULL, NULL);
    ASSERT(err == ERR_OK || state_meta(s)->kv_version == version);
    ASSERT(!result.aborted || state_meta(s)->kv_version == version);
    read_result(&result);
    kv_result_deinit(&result);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_commands(data, size, apply);
}
