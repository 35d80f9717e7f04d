/* POST /api/v1/configure (spec/broker-api.md 3). */
#include "api/internal.h"

#include "base/mem.h"

struct configure {
    struct api_command command; /* first: freed through it */
    struct configure_request request;
    struct arena arena;
};

static void configure_free(struct api_command *c)
{
    struct configure *p = (struct configure *)c;
    arena_deinit(&p->arena);
    mem_free(p);
}

static void configure_answer(struct api_command *c)
{
    struct configure *p = (struct configure *)c;
    const struct configure_result *result = &c->node.configure;
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"configured\":true,\"queueId\":\"");
    buf_put_uuid(&body, &result->queue_uuid);
    buf_puts(&body, "\",\"partitionId\":null,\"queue\":");
    buf_put_json_string(&body, p->request.queue);
    buf_puts(&body, ",\"namespace\":");
    buf_put_json_string(&body, buf_span(&result->namespace_));
    buf_puts(&body, ",\"task\":");
    buf_put_json_string(&body, buf_span(&result->task));
    buf_puts(&body, ",\"storage\":\"segments\",\"options\":");
    queue_options_put(&body, &result->options);
    buf_putc(&body, '}');
    answer_json(c->http, 200, &body);
}

void api_configure(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct configure *p = mem_new(sizeof(*p));
    struct refusal refusal;
    if (configure_request_parse(http_request_body(http), &p->arena, &p->request, &refusal) !=
        ERR_OK) {
        configure_free(&p->command);
        answer_refusal(http, &refusal);
        return;
    }
    p->command = (struct api_command){.api = a,
                                      .http = http,
                                      .node = {.type = COMMAND_CONFIGURE},
                                      .answer = configure_answer,
                                      .fail = answer_err,
                                      .free = configure_free};
    configure_encode(&p->command.node.body, &p->request);
    command_start(&p->command);
}
