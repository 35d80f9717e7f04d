/* DELETE /api/v1/resources/queues/:queue (spec/broker-api.md 11, 16.1). */
#include "api/internal.h"

#include "base/mem.h"
#include "base/pct.h"
#include "base/utf8.h"

struct queue_delete {
    struct api_command command; /* first: freed through it */
    struct buf name;
};

static void delete_free(struct api_command *c)
{
    struct queue_delete *d = (struct queue_delete *)c;
    buf_deinit(&d->name);
    mem_free(d);
}

static void answer_deleted(struct http_request *http, struct span name, bool existed)
{
    struct buf body = BUF_INIT;
    struct buf valid = BUF_INIT; /* a path may spell bytes that are no UTF-8 */
    buf_put_utf8_lossy(&valid, name);
    buf_puts(&body, existed ? "{\"deleted\":true,\"existed\":true,\"queue\":"
                            : "{\"deleted\":false,\"existed\":false,\"queue\":");
    buf_put_json_string(&body, buf_span(&valid));
    if (!existed)
        buf_puts(&body, ",\"message\":\"Queue not found, nothing was deleted\"");
    buf_putc(&body, '}');
    buf_deinit(&valid);
    answer_json(http, 200, &body);
}

static void delete_answer(struct api_command *c)
{
    struct queue_delete *d = (struct queue_delete *)c;
    answer_deleted(c->http, buf_span(&d->name), c->node.existed);
}

void api_queue_delete(struct api *a, struct http_request *http, struct span rest)
{
    struct queue_delete *d = mem_new(sizeof(*d));
    /* Names may hold raw '/': decoding the whole rest equals decoding its segments one by one. */
    buf_put_pct_decoded(&d->name, rest, false);
    if (d->name.len > NAME_BYTES_MAX || !utf8_valid(buf_span(&d->name))) {
        answer_deleted(http, buf_span(&d->name), false); /* no queue has such a name */
        delete_free(&d->command);
        return;
    }
    d->command = (struct api_command){.api = a,
                                      .http = http,
                                      .node = {.type = COMMAND_QUEUE_DELETE},
                                      .answer = delete_answer,
                                      .fail = answer_err,
                                      .free = delete_free};
    queue_delete_encode(&d->command.node.body, &TENANT_DEFAULT, buf_span(&d->name));
    command_start(&d->command);
}
