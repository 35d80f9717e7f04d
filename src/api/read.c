/* Reads of the applied state that are answered at once, on a reader thread: never on one of the
 * HTTP server's, which other requests wait for, and never with the state's read lock held for as
 * long as there are rows.
 *
 * The deadline is kept by a timer while the read waits for a thread: whoever takes the timer out of
 * the heap answers. From then on the build itself looks at the clock. */
#include "api/internal.h"

bool read_is_late(const struct api_read *r)
{
    return clock_mono_us(r->api->options.clock) >= r->deadline_us;
}

static void answer_failed(const struct api_read *r, enum err err)
{
    (r->fail == NULL ? answer_err : r->fail)(r->http, err);
}

static void answer_built(struct api_read *r, enum err err, struct buf *body)
{
    if (err == ERR_OK && answer_has_room(r->http, body)) {
        answer_json(r->http, 200, body);
        return;
    }
    buf_deinit(body);
    if (err == ERR_OK)
        answer_overloaded(r->api, r->http);
    else if (err == ERR_NOT_FOUND)
        answer_error(r->http, 404, NULL, "Queue not found");
    else
        answer_failed(r, err);
}

static void late(struct timer *t)
{
    struct api_read *r = (struct api_read *)(void *)((char *)t - offsetof(struct api_read, timer));
    answer_timeout(r->http);
}

static void run(void *ctx)
{
    struct api_read *r = ctx;
    struct api *a = r->api;
    if (timers_disarm(a->timers, &r->timer)) {
        struct buf body = BUF_INIT;
        enum err err = r->build(r, &body);
        answer_built(r, err, &body);
    }
    r->free(r);
    atomic_fetch_sub(&a->outstanding, 1);
}

void read_start(struct api_read *r)
{
    struct api *a = r->api;
    if (node_is_behind(a->options.node)) {
        answer_failed(r, ERR_AGAIN);
        r->free(r);
        return;
    }
    r->deadline_us =
        clock_mono_us(a->options.clock) + (int64_t)a->options.request_timeout_ms * 1000;
    r->timer.fire = late;
    atomic_fetch_add(&a->outstanding, 1);
    timers_arm(a->timers, &r->timer, r->deadline_us);
    pool_submit(a->readers, run, r);
}
