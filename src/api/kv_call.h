/* What the routes of the key-value store share: a call on its way, and how results are written. */
#ifndef API_KV_CALL_H
#define API_KV_CALL_H

#include "api/internal.h"

struct kv_call {
    struct api_command command; /* first. Used by calls with a write */
    struct waiter waiter;       /* used by calls with reads only */
    struct http_request *http;
    struct kv_request request;
    int64_t started_us, deadline_us, estimate;
    void (*answer)(struct kv_call *k, const struct kv_result *result); /* must http_respond() */
};

struct kv_call *kv_call_new(struct api *a, struct http_request *http,
                            void (*answer)(struct kv_call *k, const struct kv_result *result));
void kv_call_free(struct kv_call *k);
/* Whatever parsed k->request said: refuses, or starts the call within the tenant's rates. Takes k.
 */
void kv_call_start(struct kv_call *k, enum err parsed, const struct refusal *refusal);
/* Takes room for that many operations from the tenant's rates, or answers 429. */
bool kv_rates_take(struct api *a, struct http_request *http, uint64_t reads, uint64_t writes);

/* kv_answer.c: the elements of kv.md 3.2 and the body of an undone call. */
void kv_put_result(struct buf *out, size_t index, const struct kv_op *op,
                   const struct kv_op_result *r);
void kv_put_abort(struct buf *out, const struct kv_result *result);
void kv_put_value(struct buf *out, struct span value); /* empty: null */
void kv_put_next(struct buf *out,
                 const struct kv_op_result *r); /* ,"truncated":..,"nextAfter":.. */

#endif
