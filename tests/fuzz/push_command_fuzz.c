/* Applying arbitrary bodies of COMMAND_PUSH. What an effect points to is read whole. */
#include "broker/push.h"
#include "fuzz/command_fuzz.h"

static void read_effects(const struct push_effects *e)
{
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < e->n; i++) {
        const struct qlog_run *run = &e->runs[i].run;
        ASSERT(run->count > 0 && run->count <= QLOG_RUN_RECORDS_MAX);
        for (uint32_t j = 0; j < run->count; j++) {
            const struct qlog_record *record = &run->records[j];
            for (size_t k = 0; k < record->payload.len; k++)
                sum = (uint8_t)(sum + record->payload.ptr[k]);
            for (size_t k = 0; k < record->transaction_id.len; k++)
                sum = (uint8_t)(sum + record->transaction_id.ptr[k]);
        }
    }
}

static enum err apply(struct state *s, struct apply_context *at, struct span body, bool with_result)
{
    struct push_effects effects = {0};
    struct push_result result = {0};
    enum err err = push_apply(s, at, body, &effects, with_result ? &result : NULL, NULL);
    read_effects(&effects);
    push_effects_deinit(&effects);
    push_result_deinit(&result);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_commands(data, size, apply);
}
