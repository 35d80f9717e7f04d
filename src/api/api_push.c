/* POST /api/v1/push (spec/broker-api.md 2): parse, mint ids, one command, answer in request order.
 *
 * The items borrow from the request's body, which stays until the answer: the encoded command is
 * the only copy. */
#include "api/internal.h"

#include "base/mem.h"

#define MINT_BATCH 64u        /* ids whose random part is fetched at once */
#define ANSWER_ITEM_SIZE 160u /* bytes an item takes in the answer, about */
/* And altogether: two million of the smallest in a body of 64 MiB take many times its size. */
#define ITEM_SIZE                                                                                  \
    (sizeof(struct push_item) + sizeof(struct push_item_result) + ANSWER_ITEM_SIZE + 64u)

struct push {
    struct api_command command; /* first: freed through it */
    struct push_request request;
};

static void push_free(struct api_command *c)
{
    struct push *p = (struct push *)c;
    push_request_deinit(&p->request);
    mem_free(p);
}

/* One reading of the clock and one turn of the minter for a whole push: its ids are in item order.
 */
static void mint(struct api *a, struct push_item *items, size_t n)
{
    uint8_t random[MINT_BATCH][8];
    int64_t now = clock_wall_us(a->options.clock);
    pthread_mutex_lock(&a->minter.lock);
    for (size_t i = 0; i < n; i++) {
        size_t at = i % MINT_BATCH;
        if (at == 0)
            entropy_fill(a->options.entropy, random,
                         (n - i < MINT_BATCH ? n - i : MINT_BATCH) * sizeof(random[0]));
        items[i].message_id = uuid_mint(&a->minter.state, now, random[at]);
    }
    pthread_mutex_unlock(&a->minter.lock);
}

static void put_item(struct buf *out, size_t index, const struct push_item *item,
                     const struct push_item_result *result)
{
    static const char *const statuses[] = {"queued", "duplicate", "error"};
    buf_puts(out, "{\"index\":");
    buf_put_u64(out, index);
    buf_puts(out, ",\"message_id\":\"");
    buf_put_uuid(out, &result->message_id);
    buf_puts(out, "\",\"transaction_id\":");
    if (item->minted) {
        buf_putc(out, '"');
        buf_put_uuid(out, &item->message_id);
        buf_putc(out, '"');
    } else {
        buf_put_json_string(out, item->transaction_id);
    }
    buf_puts(out, ",\"queueName\":");
    buf_put_json_string(out, item->queue);
    buf_puts(out, ",\"status\":\"");
    buf_puts(out, statuses[result->status]);
    buf_putc(out, '"');
    if (result->status != PUSH_ERROR) {
        buf_puts(out, ",\"offset\":");
        buf_put_u64(out, result->offset);
    }
    buf_putc(out, '}');
}

static void push_answer(struct api_command *c)
{
    struct push *p = (struct push *)c;
    const struct push_result *result = &c->node.push;
    struct buf body = BUF_INIT;
    ASSERT(result->n == p->request.n);
    buf_reserve(&body, 2 + result->n * ANSWER_ITEM_SIZE);
    buf_putc(&body, '[');
    for (size_t i = 0; i < result->n; i++) {
        if (i > 0)
            buf_putc(&body, ',');
        put_item(&body, i, &p->request.items[i], &result->items[i]);
    }
    buf_putc(&body, ']');
    atomic_fetch_add(&c->api->counters.push_messages, result->n);
    answer_json(c->http, 201, &body);
}

void api_push(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    atomic_fetch_add(&a->counters.push_requests, 1);
    if (span_starts_with(http_request_header(http, "Content-Type"),
                         SPAN_LIT("application/x-queen-push"))) {
        answer_error(http, 400, "bad_body",
                     "bad push body: application/x-queen-push is not supported, send JSON");
        return;
    }
    struct push *p = mem_new(sizeof(*p));
    struct refusal refusal;
    if (push_request_parse(http_request_body(http), a->options.json_depth_max, &p->request,
                           &refusal) != ERR_OK) {
        push_free(&p->command);
        answer_refusal(http, &refusal);
        return;
    }
    if (p->request.n == 0) {
        struct buf body = BUF_INIT;
        buf_puts(&body, "[]");
        push_free(&p->command);
        answer_json(http, 201, &body);
        return;
    }
    p->command = (struct api_command){.api = a,
                                      .http = http,
                                      .node = {.type = COMMAND_PUSH, .grows_storage = true},
                                      .answer = push_answer,
                                      .fail = answer_err,
                                      .free = push_free};
    if (!admission_take(&p->command, p->request.n * ITEM_SIZE)) {
        push_free(&p->command);
        answer_overloaded(a, http);
        return;
    }
    mint(a, p->request.items, p->request.n);
    push_encode(&p->command.node.body, &TENANT_DEFAULT, p->request.items, p->request.n);
    command_start(&p->command);
}
