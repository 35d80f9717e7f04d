/* Fuzz target of the parsers of fetch, partitions/changed and configure bodies, each fed the same
 * bytes. */
#include "fuzz/fuzz.h"

#include "api/request.h"

#include "base/utf8.h"

static void check_refusal(const struct refusal *refusal)
{
    ASSERT(refusal->status == 400 || refusal->status == 413);
    ASSERT(refusal->text[0] != '\0');
}

static void check_fetch(struct span body)
{
    struct fetch_request r;
    struct refusal refusal = {0};
    if (fetch_request_parse(body, &r, &refusal) == ERR_OK) {
        ASSERT(json_valid(body, JSON_DEPTH_MAX, NULL));
        ASSERT(r.n <= FETCH_ENTRIES_MAX);
        ASSERT(r.max_wait_ms >= 0 && r.max_wait_ms <= FETCH_WAIT_MS_MAX);
        ASSERT(r.total_max >= 1 && r.total_max <= FETCH_TOTAL_BYTES_MAX);
        for (size_t i = 0; i < r.n; i++) {
            ASSERT(utf8_valid(r.entries[i].queue));
            ASSERT(utf8_valid(r.entries[i].partition) && r.entries[i].partition.len > 0);
            ASSERT(r.entries[i].offset <= INT64_MAX);
            ASSERT(r.entries[i].max_bytes >= 1 && r.entries[i].max_bytes <= FETCH_BYTES_MAX);
        }
    } else {
        check_refusal(&refusal);
    }
    fetch_request_deinit(&r);
}

static void check_changed(struct span body)
{
    struct changed_request r;
    struct refusal refusal = {0};
    if (changed_request_parse(body, &r, &refusal) == ERR_OK) {
        ASSERT(r.n <= FETCH_ENTRIES_MAX);
        for (size_t i = 0; i < r.n; i++) {
            ASSERT(utf8_valid(r.entries[i].queue));
            ASSERT(r.entries[i].limit >= 1 && r.entries[i].limit <= CHANGED_LIMIT_MAX);
        }
    } else {
        check_refusal(&refusal);
    }
    changed_request_deinit(&r);
}

static void check_configure(struct span body)
{
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
        check_refusal(&refusal);
    }
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span body = span_make(data, size);
    check_fetch(body);
    check_changed(body);
    check_configure(body);
    return 0;
}
