/* The model bucket. A request is decided when it is submitted (what will become of it, when it
 * takes effect and when it is answered) and carried out by the pump; a crash in between leaves it
 * done or not done, by the seed. */
#include "sim/sim_bucket.h"

#include "base/mem.h"

#include <stdio.h>
#include <unistd.h>

enum fate { FATE_OK, FATE_REFUSED_503, FATE_NO_ANSWER, FATE_LOST_ANSWER };

struct sim_bucket_job {
    struct bucket_request *request;
    enum fate fate;
    int64_t due;
};

void sim_bucket_store_init(struct sim_bucket_store *s)
{
    *s = (struct sim_bucket_store){.objects = omap_new()};
}

void sim_bucket_store_deinit(struct sim_bucket_store *s)
{
    omap_free(s->objects);
    *s = (struct sim_bucket_store){0};
}

static bool is_data_key(struct span key)
{
    return memmem(key.ptr, key.len, "/_queen/", 8) == NULL;
}

static void store_put(struct sim_bucket_store *s, const struct bucket_request *r)
{
    struct buf bytes = BUF_INIT;
    if (r->body.fd >= 0) {
        uint8_t *to = buf_extend(&bytes, r->body.size);
        ssize_t got = pread(r->body.fd, to, r->body.size, 0);
        ASSERT(got == (ssize_t)r->body.size);
    } else {
        buf_put_span(&bytes, r->body.bytes);
    }
    struct omap_row old;
    s->puts++;
    if (omap_get(s->objects, r->key, &old)) {
        s->rewrites++;
        if (is_data_key(r->key) && !span_eq(old.value, buf_span(&bytes))) {
            s->violated = true;
            snprintf(s->violation, sizeof(s->violation), "other bytes under " SPAN_FMT,
                     SPAN_ARG(r->key));
        }
    }
    omap_put(s->objects, r->key, buf_span(&bytes));
    buf_deinit(&bytes);
}

static void bucket_model_submit(struct bucket *base, struct bucket_request *r)
{
    struct sim_bucket *b = (struct sim_bucket *)base;
    struct sim_bucket_job job = {.request = r, .fate = FATE_OK};
    if (b->down)
        job.fate = FATE_NO_ANSWER;
    else if (prng_chance(b->prng, b->fault_percent))
        job.fate = (enum fate)(1 + prng_below(b->prng, 3));
    job.due = b->clock->mono + (int64_t)prng_below(b->prng, 200000);
    if (prng_chance(b->prng, 2))
        job.due += (int64_t)prng_below(b->prng, 60000000); /* hangs for up to a minute */
    if (b->n == b->cap) {
        b->cap = b->cap == 0 ? 16 : 2 * b->cap;
        b->jobs = mem_grow(b->jobs, b->cap * sizeof(*b->jobs));
    }
    b->jobs[b->n++] = job;
}

static void run_list(struct sim_bucket *b, struct bucket_request *r)
{
    struct omap_row row;
    struct buf from = BUF_INIT;
    buf_put_span(&from, span_cmp(r->start_after, r->key) > 0 ? r->start_after : r->key);
    bool strict = r->start_after.len > 0;
    size_t offsets[1000][2];
    while (omap_seek(b->store->objects, buf_span(&from), strict, &row) &&
           span_starts_with(row.key, r->key)) {
        if (r->n_keys == 1000) {
            r->truncated = true;
            break;
        }
        offsets[r->n_keys][0] = r->out.len;
        offsets[r->n_keys][1] = row.key.len;
        r->n_keys++;
        buf_put_span(&r->out, row.key);
        buf_reset(&from);
        buf_put_span(&from, row.key);
        strict = true;
    }
    buf_deinit(&from);
    r->keys = MEM_ARRAY(struct span, r->n_keys + 1);
    for (size_t i = 0; i < r->n_keys; i++)
        r->keys[i] = span_make(r->out.ptr + offsets[i][0], offsets[i][1]);
}

static void run_ok(struct sim_bucket *b, struct bucket_request *r)
{
    struct omap_row row;
    r->outcome = BUCKET_OK;
    r->code = 200;
    switch (r->op) {
    case BUCKET_HEAD:
        break;
    case BUCKET_PUT:
        store_put(b->store, r);
        break;
    case BUCKET_GET:
        if (omap_get(b->store->objects, r->key, &row)) {
            buf_put_span(&r->out, row.value);
        } else {
            r->outcome = BUCKET_ABSENT;
            r->code = 404;
        }
        break;
    case BUCKET_LIST:
        run_list(b, r);
        break;
    }
}

static void fail(struct bucket_request *r, unsigned code, const char *text)
{
    r->outcome = BUCKET_RETRIABLE;
    r->code = code;
    snprintf(r->error, sizeof(r->error), "%s", text);
}

static void run(struct sim_bucket *b, const struct sim_bucket_job *job)
{
    struct bucket_request *r = job->request;
    r->retry_after_us = -1;
    switch (job->fate) {
    case FATE_OK:
        run_ok(b, r);
        break;
    case FATE_REFUSED_503:
        fail(r, 503, "status 503: SlowDown");
        break;
    case FATE_LOST_ANSWER:
        if (r->op == BUCKET_PUT)
            store_put(b->store, r);
        fail(r, 0, "transport: the answer was lost");
        break;
    case FATE_NO_ANSWER:
        fail(r, 0, "transport: no answer");
        break;
    }
    if (r->attempt != NULL)
        r->attempt(r, r->code, span_str(r->error));
    r->done(r);
}

bool sim_bucket_pump(struct sim_bucket *b, int64_t *next_due_out)
{
    size_t due = SIZE_MAX;
    *next_due_out = INT64_MAX;
    for (size_t i = 0; i < b->n; i++) {
        if (b->jobs[i].due <= b->clock->mono)
            due = due == SIZE_MAX || b->jobs[i].due < b->jobs[due].due ? i : due;
        else if (b->jobs[i].due < *next_due_out)
            *next_due_out = b->jobs[i].due;
    }
    if (due == SIZE_MAX)
        return false;
    struct sim_bucket_job job = b->jobs[due];
    b->jobs[due] = b->jobs[--b->n];
    run(b, &job);
    return true;
}

static void bucket_model_cancel(struct bucket *base)
{
    struct sim_bucket *b = (struct sim_bucket *)base;
    for (size_t i = 0; i < b->n; i++)
        b->jobs[i].due = b->clock->mono;
}

static void bucket_model_close(struct bucket *base)
{
    struct sim_bucket *b = (struct sim_bucket *)base;
    for (size_t i = 0; i < b->n; i++) { /* a crash: what was under way may have happened */
        struct bucket_request *r = b->jobs[i].request;
        if (r->op == BUCKET_PUT && b->jobs[i].fate == FATE_OK && prng_chance(b->prng, 50))
            store_put(b->store, r);
    }
    mem_free(b->jobs);
    mem_free(b);
}

static const struct bucket_ops MODEL_OPS = {
    .submit = bucket_model_submit,
    .cancel = bucket_model_cancel,
    .close = bucket_model_close,
};

struct sim_bucket *sim_bucket_new(struct sim_bucket_store *store, struct sim_clock *clock,
                                  struct prng *prng)
{
    struct sim_bucket *b = mem_new(sizeof(*b));
    b->base.ops = &MODEL_OPS;
    b->store = store;
    b->clock = clock;
    b->prng = prng;
    return b;
}
