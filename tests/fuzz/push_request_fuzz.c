/* Fuzz target of the parser of push bodies: what it takes is valid JSON, its items are whole and
 * within their limits, their payloads are values of their own, and the command they make is no
 * larger than it should be. */
#include "fuzz/fuzz.h"

#include "api/request.h"

#include "base/utf8.h"

#define DEPTH_MAX 64u

static void check_item(const struct push_item *item, struct span body)
{
    struct json_raw raw;
    ASSERT(item->queue.len > 0);
    ASSERT(item->partition.len > 0);
    ASSERT(item->queue.len + item->partition.len <= NAME_BYTES_MAX - TENANT_TEXT_LEN);
    ASSERT(utf8_valid(item->queue));
    ASSERT(utf8_valid(item->partition));
    ASSERT(item->minted || utf8_valid(item->transaction_id));
    ASSERT(item->minted || item->transaction_id.len <= PUSH_TRANSACTION_ID_MAX);
    ASSERT(item->payload.ptr >= body.ptr);
    ASSERT(item->payload.ptr + item->payload.len <= body.ptr + body.len);
    ASSERT(json_valid(item->payload, DEPTH_MAX, &raw));
    ASSERT(span_eq(raw.text, item->payload)); /* no white space around it */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct span body = span_make(data, size);
    struct push_request r;
    struct refusal refusal = {0};
    if (push_request_parse(body, DEPTH_MAX, &r, &refusal) == ERR_OK) {
        struct buf command = BUF_INIT;
        ASSERT(json_valid(body, JSON_DEPTH_MAX, NULL));
        for (size_t i = 0; i < r.n; i++)
            check_item(&r.items[i], body);
        if (r.n > 0)
            push_encode(&command, &TENANT_DEFAULT, r.items, r.n);
        buf_deinit(&command);
    } else {
        ASSERT(refusal.status == 400 || refusal.status == 413);
        ASSERT(refusal.code != NULL);
        ASSERT(refusal.text[0] != '\0');
    }
    push_request_deinit(&r);
    return 0;
}
