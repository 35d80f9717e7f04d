/* The model bucket. A request is decided when it is submitted (what will become of it, when it
 * takes effect and when it is answered) and carried out by the pump; a crash in between leaves it
 * done, not done or on its way, by the seed. */
#include "sim/sim_bucket_internal.h"

#include "base/mem.h"

#include <stdio.h>
#include <unistd.h>

#define LATE_MAX_US 200000000 /* bytes without a client land within this */

#define RANDOM_FATES 4u /* REFUSED_503 .. LATE: what a store that is up may do */
#define WILD_FATES 6u   /* .. DAMAGED, when it is wild; FORGOTTEN too in the middle of an upload */

struct sim_late_put {
    struct buf key, bytes;
    int64_t due;
};

const char *sim_outage_name(enum sim_outage outage)
{
    static const char *const names[OUTAGES] = {"none", "no-answer", "hang", "503",
                                               "429",  "401",       "403",  "no-bucket"};
    return names[outage];
}

/* --- the store --- */

void sim_bucket_store_init(struct sim_bucket_store *s)
{
    *s = (struct sim_bucket_store){.objects = omap_new()};
}

void sim_bucket_store_deinit(struct sim_bucket_store *s)
{
    for (size_t i = 0; i < s->n_late; i++) {
        buf_deinit(&s->late[i].key);
        buf_deinit(&s->late[i].bytes);
    }
    mem_free(s->late);
    sim_uploads_free(s);
    omap_free(s->objects);
    *s = (struct sim_bucket_store){0};
}

static bool is_data_key(struct span key)
{
    return memmem(key.ptr, key.len, "/_queen/", 8) == NULL;
}

void sim_bucket_violate(struct sim_bucket_store *s, const char *what, struct span key)
{
    if (s->violated)
        return;
    s->violated = true;
    snprintf(s->violation, sizeof(s->violation), "%s " SPAN_FMT, what, SPAN_ARG(key));
}

void sim_bucket_store_bytes(struct sim_bucket_store *s, struct span key, struct span bytes)
{
    struct omap_row old;
    s->puts++;
    if (is_data_key(key) && s->accounted != NULL && !s->accounted(s->ctx, key))
        sim_bucket_violate(s, "no durable intent accounts for", key);
    if (omap_get(s->objects, key, &old)) {
        s->rewrites++;
        s->redone += is_data_key(key);
        if (is_data_key(key) && !span_eq(old.value, bytes))
            sim_bucket_violate(s, "other bytes under", key);
    }
    omap_put(s->objects, key, bytes);
}

void sim_bucket_read_body(const struct bucket_request *r, struct buf *bytes)
{
    if (r->body.fd < 0) {
        buf_put_span(bytes, r->body.bytes);
        return;
    }
    uint8_t *to = buf_extend(bytes, r->body.size);
    ssize_t got = pread(r->body.fd, to, r->body.size, 0);
    ASSERT(got == (ssize_t)r->body.size);
}

static void store_put(struct sim_bucket_store *s, const struct bucket_request *r)
{
    struct buf bytes = BUF_INIT;
    sim_bucket_read_body(r, &bytes);
    sim_bucket_store_bytes(s, r->key, buf_span(&bytes));
    buf_deinit(&bytes);
}

void sim_bucket_put_later(struct sim_bucket *b, const struct bucket_request *r)
{
    struct sim_bucket_store *s = b->store;
    if (s->n_late == s->cap_late) {
        s->cap_late = s->cap_late == 0 ? 8 : 2 * s->cap_late;
        s->late = mem_grow(s->late, s->cap_late * sizeof(*s->late));
    }
    struct sim_late_put *late = &s->late[s->n_late++];
    *late =
        (struct sim_late_put){.due = b->clock->mono + (int64_t)prng_below(b->prng, LATE_MAX_US)};
    buf_put_span(&late->key, r->key);
    sim_bucket_read_body(r, &late->bytes);
}

void sim_bucket_store_pump(struct sim_bucket_store *s, int64_t now_us, int64_t *next_due_out)
{
    *next_due_out = INT64_MAX;
    for (size_t i = 0; i < s->n_late;) {
        struct sim_late_put *late = &s->late[i];
        if (late->due > now_us) {
            if (late->due < *next_due_out)
                *next_due_out = late->due;
            i++;
            continue;
        }
        sim_bucket_store_bytes(s, buf_span(&late->key), buf_span(&late->bytes));
        s->landed_late++;
        buf_deinit(&late->key);
        buf_deinit(&late->bytes);
        *late = s->late[--s->n_late];
    }
}

/* --- submit --- */

static enum fate draw_fate(struct sim_bucket *b, const struct sim_bucket_job *job)
{
    bool open = job->in_parts && job->upload != NULL;
    if (b->wild && prng_chance(b->prng, 20))
        return FATE_STATUS;
    unsigned n = b->wild ? WILD_FATES + open : RANDOM_FATES;
    return (enum fate)(1 + prng_below(b->prng, n));
}

void sim_bucket_decide(struct sim_bucket *b, struct sim_bucket_job *job)
{
    job->fate = FATE_OK;
    job->outage = b->store->outage;
    job->due = b->clock->mono + (int64_t)prng_below(b->prng, job->in_parts ? 50000 : 200000);
    switch (job->outage) {
    case OUTAGE_NONE:
        if (prng_chance(b->prng, b->fault_percent))
            job->fate = draw_fate(b, job);
        if (!b->store->prompt && prng_chance(b->prng, 2))
            job->due += (int64_t)prng_below(b->prng, SIM_BUCKET_HICCUP_US);
        break;
    case OUTAGE_NO_ANSWER:
        job->fate = FATE_NO_ANSWER;
        break;
    case OUTAGE_HANG:
        job->fate = prng_chance(b->prng, 25) ? FATE_LATE : FATE_NO_ANSWER;
        job->due += SIM_BUCKET_HANG_US;
        break;
    case OUTAGE_503:
    case OUTAGE_429:
    case OUTAGE_401:
    case OUTAGE_403:
    case OUTAGE_NO_BUCKET:
        job->fate = FATE_REFUSED;
        break;
    case OUTAGES:
        break;
    }
}

static void add_job(struct sim_bucket *b, const struct sim_bucket_job *job)
{
    if (b->n == b->cap) {
        b->cap = b->cap == 0 ? 16 : 2 * b->cap;
        b->jobs = mem_grow(b->jobs, b->cap * sizeof(*b->jobs));
    }
    b->jobs[b->n++] = *job;
}

static void bucket_model_submit(struct bucket *base, struct bucket_request *r)
{
    struct sim_bucket *b = (struct sim_bucket *)base;
    struct sim_bucket_job job = {.request = r, .fate = FATE_OK};
    if (sim_upload_wanted(b, r))
        sim_upload_begin(b, &job);
    sim_bucket_decide(b, &job);
    add_job(b, &job);
}

/* --- pump --- */

static void run_list(struct sim_bucket *b, struct bucket_request *r)
{
    struct omap_row row;
    struct buf from = BUF_INIT;
    buf_put_span(&from, span_cmp(r->start_after, r->key) > 0 ? r->start_after : r->key);
    bool strict = r->start_after.len > 0;
    size_t offsets[1000][2];
    /* A store may tell less than it was asked for, but one. */
    size_t most = b->wild && prng_chance(b->prng, 30) ? 1 + prng_below(b->prng, 3) : 1000;
    while (omap_seek(b->store->objects, buf_span(&from), strict, &row) &&
           span_starts_with(row.key, r->key)) {
        if (r->n_keys == most) {
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

void sim_bucket_fail(struct bucket_request *r, enum bucket_outcome outcome, unsigned code,
                     const char *text)
{
    r->outcome = outcome;
    r->code = code;
    snprintf(r->error, sizeof(r->error), "%s", text);
}

/* A HEAD's answer has no body that could name the error. */
static void fail_with(struct bucket_request *r, unsigned code, const char *name)
{
    char text[64];
    bool bare = r->op == BUCKET_HEAD;
    if (bare)
        snprintf(text, sizeof(text), "status %u", code);
    else
        snprintf(text, sizeof(text), "status %u: %s", code, name);
    sim_bucket_fail(r, BUCKET_TERMINAL, code, text);
    if (!bare)
        snprintf(r->clue.code, sizeof(r->clue.code), "%s", name);
}

void sim_bucket_refuse(struct bucket_request *r, enum sim_outage outage)
{
    switch (outage) {
    case OUTAGE_429:
        sim_bucket_fail(r, BUCKET_RETRIABLE, 429, "status 429: TooManyRequests");
        break;
    case OUTAGE_401:
        fail_with(r, 401, "Unauthorized");
        break;
    case OUTAGE_403:
        fail_with(r, 403, "AccessDenied");
        break;
    case OUTAGE_NO_BUCKET:
        if (r->op == BUCKET_HEAD) { /* as for a prefix that is not there */
            r->outcome = BUCKET_ABSENT;
            r->code = 404;
        } else {
            fail_with(r, 404, "NoSuchBucket");
        }
        break;
    case OUTAGE_NONE:
    case OUTAGE_NO_ANSWER:
    case OUTAGE_HANG:
    case OUTAGE_503:
    case OUTAGES:
        sim_bucket_fail(r, BUCKET_RETRIABLE, 503, "status 503: SlowDown");
        break;
    }
}

static void answered(struct bucket_request *r)
{
    if (r->attempt != NULL)
        r->attempt(r, r->code, span_str(r->error));
    r->done(r);
}

static void run_status(struct sim_bucket *b, struct bucket_request *r)
{
    static const enum s3_call calls[] = {[BUCKET_HEAD] = S3_HEAD,
                                         [BUCKET_PUT] = S3_PUT,
                                         [BUCKET_GET] = S3_GET,
                                         [BUCKET_LIST] = S3_LIST};
    bool gone;
    if (sim_status_answer(b, r, calls[r->op], &gone) && r->op == BUCKET_PUT)
        store_put(b->store, r);
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
        sim_bucket_fail(r, BUCKET_RETRIABLE, 503, "status 503: SlowDown");
        break;
    case FATE_LOST_ANSWER:
        if (r->op == BUCKET_PUT)
            store_put(b->store, r);
        sim_bucket_fail(r, BUCKET_RETRIABLE, 0, "transport: the answer was lost");
        break;
    case FATE_STATUS:
        run_status(b, r);
        break;
    case FATE_DAMAGED:
        if (r->op == BUCKET_PUT)
            store_put(b->store, r);
        sim_bucket_fail(r, BUCKET_RETRIABLE, 200,
                        r->op == BUCKET_PUT ? "integrity: the ETag is of other bytes"
                                            : "body: the answer is not whole");
        break;
    case FATE_LATE:
    case FATE_FORGOTTEN: /* of an upload in parts */
        if (r->op == BUCKET_PUT)
            sim_bucket_put_later(b, r);
        sim_bucket_fail(r, BUCKET_RETRIABLE, 0, "transport: timed out");
        break;
    case FATE_NO_ANSWER:
        sim_bucket_fail(r, BUCKET_RETRIABLE, 0, "transport: no answer");
        break;
    case FATE_REFUSED:
        sim_bucket_refuse(r, job->outage);
        break;
    }
    answered(r);
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
    if (!job.in_parts)
        run(b, &job);
    else if (sim_upload_call(b, &job))
        answered(job.request);
    else
        add_job(b, &job);
    return true;
}

/* --- ends --- */

static bool will_be_done(const struct sim_bucket_job *job)
{
    return job->request->op == BUCKET_PUT &&
           (!job->in_parts || (job->call == S3_MULTIPART_COMPLETE && job->upload != NULL)) &&
           (job->fate == FATE_OK || job->fate == FATE_LOST_ANSWER || job->fate == FATE_LATE);
}

void sim_bucket_kill(struct sim_bucket *b)
{
    for (size_t i = 0; i < b->n; i++) {
        uint64_t roll = will_be_done(&b->jobs[i]) ? prng_below(b->prng, 3) : 2;
        if (roll == 0)
            store_put(b->store, b->jobs[i].request);
        else if (roll == 1)
            sim_bucket_put_later(b, b->jobs[i].request);
        sim_upload_leave(&b->jobs[i]);
    }
    b->n = 0;
}

void sim_bucket_freeze(struct sim_bucket *b)
{
    for (size_t i = 0; i < b->n; i++) {
        if (will_be_done(&b->jobs[i]) && prng_chance(b->prng, 50))
            sim_bucket_put_later(b, b->jobs[i].request);
    }
}

/* What waits or is being sent ends at once; bytes that were on their way may land later. */
static void bucket_model_cancel(struct bucket *base)
{
    struct sim_bucket *b = (struct sim_bucket *)base;
    for (size_t i = 0; i < b->n; i++) {
        b->jobs[i].due = b->clock->mono;
        b->jobs[i].cancelled = true;
        b->jobs[i].fate =
            will_be_done(&b->jobs[i]) && prng_chance(b->prng, 50) ? FATE_LATE : FATE_NO_ANSWER;
    }
}

static void bucket_model_close(struct bucket *base)
{
    struct sim_bucket *b = (struct sim_bucket *)base;
    sim_bucket_kill(b);
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
