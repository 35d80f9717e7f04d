/* GET, PUT and DELETE /api/v1/kv/:ns/ and a key (spec/kv.md 4): calls of one operation, answered by
 * its element. The method is the operation. */
#include "api/kv_call.h"

#include <stdio.h>

static void answer_element(struct kv_call *k, const struct kv_result *result)
{
    struct buf body = BUF_INIT;
    char tag[24];
    struct http_answer answer = {.status = 200};
    if (result->aborted) {
        kv_put_abort(&body, result);
        http_respond(k->http, &answer, &body);
        return;
    }
    const struct kv_op_result *r = &result->ops[0];
    if (r->type == KV_GET && r->found) {
        (void)snprintf(tag, sizeof(tag), "\"%llu\"", (unsigned long long)r->row.version); /* fits */
        answer.extra_name = "ETag";
        answer.extra_value = tag;
    }
    kv_put_result(&body, 0, &k->request.ops[0], r);
    http_respond(k->http, &answer, &body);
}

static enum kv_op_type type_of(enum http_method method)
{
    switch (method) {
    case HTTP_PUT:
        return KV_PUT;
    case HTTP_DELETE:
        return KV_DELETE;
    case HTTP_GET:
    case HTTP_HEAD:
    case HTTP_POST:
    case HTTP_OTHER:
        break;
    }
    return KV_GET;
}

void api_kv_key(struct api *a, struct http_request *http, struct span rest)
{
    struct kv_call *k = kv_call_new(a, http, answer_element);
    struct refusal refusal;
    const struct kv_key_source from = {.type = type_of(http_request_method(http)),
                                       .path = rest,
                                       .query = http_request_query(http),
                                       .body = http_request_body(http)};
    enum err err = kv_key_request_parse(&from, &a->kv_limits, &k->request, &refusal);
    kv_call_start(k, err, &refusal);
}
