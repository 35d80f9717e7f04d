/* Fuzz target of the parsers of fetch and partitions/changed bodies, each fed the same bytes. A cursor
 * that is taken is one that was given out. */
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

/* Given out again, it is taken again, and means the same. */
static void check_cursor(const struct changed_entry *e)
{
    struct buf body = BUF_INIT;
    struct changed_request r;
    struct refusal refusal;
    if (e->cursor != CURSOR_AFTER)
        return;
    buf_puts(&body, "{\"entries\":[{\"queue\":\"q\",\"after\":\"");
    changed_cursor_put(&body, e->cursor_queue, e->cursor_partition);
    buf_puts(&body, "\"}]}");
    ASSERT(changed_request_parse(buf_span(&body), &r, &refusal) == ERR_OK);
    ASSERT(r.n == 1 && r.entries[0].cursor == CURSOR_AFTER);
    ASSERT(r.entries[0].cursor_queue == e->cursor_queue);
    ASSERT(r.entries[0].cursor_partition == e->cursor_partition);
    changed_request_deinit(&r);
    buf_deinit(&body);
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
            check_cursor(&r.entries[i]);
        }
    } else {
        check_refusal(&refusal);
    }
    changed_request_deinit(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span body = span_make(data, size);
    check_fetch(body);
    check_changed(body);
    return 0;
}
