/* Requests that become commands: submitted to the node, answered when applied, or with 503 at the
 * deadline.
 *
 * Two may answer: the node's completion and the timer. The timers' lock decides: whoever takes the
 * timer out of the heap answers. The memory is always freed after the completion, which comes
 * exactly once; a completion that finds its timer gone only frees. The answer itself is written on
 * a thread of the HTTP server, not on the node's apply thread. */
#include "api/internal.h"

#include "base/mem.h"

static void release(struct api_command *c)
{
    struct api *a = c->api;
    admission_give_back(c);
    node_request_deinit(&c->node);
    c->free(c);
    atomic_fetch_sub(&a->outstanding, 1);
}

/* On a thread of the HTTP server. */
static void answer(void *ctx, struct http_request *http)
{
    struct api_command *c = ctx;
    if (c->node.err == ERR_OK)
        c->answer(c);
    else
        c->fail(http, c->node.err);
    release(c);
}

static void node_done(struct node_request *node)
{
    struct api_command *c = node->ctx;
    struct api *a = c->api;
    bool ours = timers_disarm(a->timers, &c->timer);
    admissions_wake(a); /* the node counts its bytes no more */
    if (ours)
        http_resume(c->http, answer, c);
    else
        release(c);
}

static void deadline(struct timer *t)
{
    struct api_command *c =
        (struct api_command *)(void *)((char *)t - offsetof(struct api_command, timer));
    c->fail(c->http, ERR_TIMEOUT);
}

bool command_fits(const struct api *a, const struct buf *body)
{
    return ENTRY_HEADER_SIZE + COMMAND_HEADER_SIZE + body->len <= a->options.entry_max_bytes;
}

void command_start(struct api_command *c)
{
    struct api *a = c->api;
    atomic_fetch_add(&a->outstanding, 1);
    if (!command_fits(a, &c->node.body)) {
        c->fail(c->http, ERR_TOO_LARGE);
        release(c);
        return;
    }
    c->node.done = node_done;
    c->node.ctx = c;
    c->timer.fire = deadline;
    timers_arm(a->timers, &c->timer,
               clock_mono_us(a->options.clock) + (int64_t)a->options.request_timeout_ms * 1000);
    node_submit(a->options.node, &c->node);
}
