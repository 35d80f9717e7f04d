/* POST /api/v1/configure (spec/broker-api.md 3). */
#include "api/resources.h"

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
    struct json_writer w;
    json_writer_init(&w, &body);
    json_begin_object(&w);
    json_key(&w, "configured");
    json_bool(&w, true);
    put_uuid(&w, "queueId", &result->queue_uuid);
    json_key(&w, "partitionId");
    json_null(&w);
    json_key(&w, "queue");
    json_str(&w, p->request.queue);
    json_key(&w, "namespace");
    json_str(&w, buf_span(&result->namespace_));
    json_key(&w, "task");
    json_str(&w, buf_span(&result->task));
    json_key(&w, "storage");
    json_cstr(&w, "segments");
    json_key(&w, "options");
    queue_options_put(&w, &result->options);
    json_end_object(&w);
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
