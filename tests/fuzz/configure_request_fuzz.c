/* Fuzz target of the parser of configure bodies: options that are taken are within their limits, make
 * a command, and are shown as valid JSON. */
#include "fuzz/fuzz.h"

#include "api/request.h"

#include "base/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span body = span_make(data, size);
    struct configure_request r;
    struct refusal refusal = {0};
    struct arena arena = ARENA_INIT;
    if (configure_request_parse(body, &arena, &r, &refusal) == ERR_OK) {
        struct buf out = BUF_INIT;
        ASSERT(r.queue.len > 0 && utf8_valid(r.queue));
        ASSERT((r.set & r.reset) == 0);
        ASSERT(r.options.lease_time >= 1);
        ASSERT(r.options.retention_seconds == 0);
        configure_encode(&out, &r);
        buf_reset(&out);
        struct json_writer w;
        json_writer_init(&w, &out);
        queue_options_put(&w, &r.options);
        ASSERT(json_valid(buf_span(&out), 1, NULL));
        buf_deinit(&out);
    } else {
        ASSERT(refusal.status == 400 || refusal.status == 413);
        ASSERT(refusal.text[0] != '\0');
    }
    arena_deinit(&arena);
    return 0;
}
