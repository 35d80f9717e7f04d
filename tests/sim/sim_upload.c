/* Uploads in parts, in the course that the S3 client gives them (s3/multipart.h). Each call may fail
 * in every way a request can, and the client may be gone between any two: an upload that nobody
 * completes or aborts stays in the store, stranded, and never becomes an object. */
#include "sim/sim_bucket_internal.h"

#include "base/mem.h"

bool sim_upload_wanted(const struct sim_bucket *b, const struct bucket_request *r)
{
    uint64_t size = r->body.fd >= 0 ? r->body.size : r->body.bytes.len;
    return r->op == BUCKET_PUT && b->part_bytes != 0 && size > b->part_bytes;
}

void sim_upload_begin(struct sim_bucket *b, struct sim_bucket_job *job)
{
    const struct bucket_request *r = job->request;
    job->in_parts = true;
    job->call = S3_MULTIPART_CREATE;
    b->store->multiparts++;
    multipart_init(&job->parts, r->body.fd >= 0 ? r->body.size : r->body.bytes.len, b->part_bytes);
}

/* --- the store's side --- */

static void create(struct sim_bucket *b, struct sim_bucket_job *job)
{
    struct sim_upload *u = mem_new(sizeof(*u));
    buf_put_span(&u->key, job->request->key);
    u->owned = true;
    u->next = b->store->uploads;
    b->store->uploads = u;
    if (job->upload != NULL) /* its answer was lost */
        job->upload->owned = false;
    job->upload = u;
}

static void drop(struct sim_bucket_store *s, struct sim_upload *u)
{
    struct sim_upload **at = &s->uploads;
    while (*at != u)
        at = &(*at)->next;
    *at = u->next;
    buf_deinit(&u->key);
    buf_deinit(&u->bytes);
    mem_free(u);
}

static void land_part(struct sim_bucket_job *job)
{
    struct buf body = BUF_INIT;
    size_t from = (size_t)multipart_part_from(&job->parts);
    struct sim_upload *u = job->upload;
    sim_bucket_read_body(job->request, &body);
    if (u->bytes.len == from) /* else they will not add up */
        buf_append(&u->bytes, body.ptr + from, (size_t)multipart_part_size(&job->parts));
    u->parts = job->parts.part;
    buf_deinit(&body);
}

static void complete(struct sim_bucket *b, struct sim_bucket_job *job)
{
    struct buf body = BUF_INIT;
    sim_bucket_read_body(job->request, &body);
    if (!span_eq(buf_span(&body), buf_span(&job->upload->bytes)) ||
        job->upload->parts != job->parts.parts)
        sim_bucket_violate(b->store, "parts do not add up to", job->request->key);
    buf_deinit(&body);
    sim_bucket_store_bytes(b->store, buf_span(&job->upload->key), buf_span(&job->upload->bytes));
    drop(b->store, job->upload);
    job->upload = NULL;
}

/* False when there is no such upload any more. */
static bool carry_out(struct sim_bucket *b, struct sim_bucket_job *job)
{
    if (job->call == S3_MULTIPART_CREATE) {
        create(b, job);
        return true;
    }
    if (job->upload == NULL)
        return false;
    if (job->call == S3_MULTIPART_PART) {
        land_part(job);
    } else if (job->call == S3_MULTIPART_COMPLETE) {
        complete(b, job);
    } else {
        drop(b->store, job->upload);
        job->upload = NULL;
    }
    return true;
}

/* --- a call --- */

static void gone(struct sim_bucket_job *job, struct s3_verdict *v)
{
    v->upload_gone = true;
    sim_bucket_fail(job->request, BUCKET_RETRIABLE, 404, "status 404: NoSuchUpload");
}

static void succeed(struct sim_bucket *b, struct sim_bucket_job *job, struct s3_verdict *v)
{
    if (!carry_out(b, job)) {
        gone(job, v);
        return;
    }
    job->request->outcome = BUCKET_OK;
    job->request->code = 200;
    if (job->call == S3_MULTIPART_CREATE || job->call == S3_MULTIPART_PART)
        buf_printf(&v->value, "x%u", job->parts.part);
}

static void answer(struct sim_bucket *b, struct sim_bucket_job *job, struct s3_verdict *v)
{
    struct bucket_request *r = job->request;
    switch (job->fate) {
    case FATE_OK:
        succeed(b, job, v);
        return;
    case FATE_LOST_ANSWER:
    case FATE_DAMAGED:
        (void)carry_out(b, job);
        sim_bucket_fail(r, BUCKET_RETRIABLE, 0, "transport: the answer was lost");
        return;
    case FATE_STATUS:
        if (sim_status_answer(b, r, job->call, &v->upload_gone))
            (void)carry_out(b, job);
        return;
    case FATE_FORGOTTEN:
        if (job->upload != NULL)
            drop(b->store, job->upload);
        job->upload = NULL;
        gone(job, v);
        return;
    case FATE_LATE:
        if (job->call == S3_MULTIPART_COMPLETE)
            sim_bucket_put_later(b, r);
        sim_bucket_fail(r, BUCKET_RETRIABLE, 0, "transport: timed out");
        return;
    case FATE_NO_ANSWER:
        sim_bucket_fail(r, BUCKET_RETRIABLE, 0, "transport: no answer");
        return;
    case FATE_REFUSED_503:
        sim_bucket_refuse(r, OUTAGE_503);
        return;
    case FATE_REFUSED:
        sim_bucket_refuse(r, job->outage);
        return;
    }
}

/* What an ABORT comes to is nobody's business: the failure before it is what counts. */
static void abort_upload(struct sim_bucket *b, struct sim_bucket_job *job)
{
    if (job->fate == FATE_OK || job->fate == FATE_LOST_ANSWER)
        (void)carry_out(b, job);
    sim_upload_leave(job);
}

static void next_call(struct sim_bucket *b, struct sim_bucket_job *job, enum s3_call call)
{
    struct bucket_request *r = job->request;
    job->call = call;
    if (call == S3_MULTIPART_PART && job->parts.part > 1 && r->between_parts != NULL)
        r->between_parts(r);
    sim_bucket_decide(b, job);
}

bool sim_upload_call(struct sim_bucket *b, struct sim_bucket_job *job)
{
    struct s3_verdict v = {0};
    enum s3_call call = S3_MULTIPART_CREATE;
    if (job->call == S3_MULTIPART_ABORT) {
        abort_upload(b, job);
        return true;
    }
    job->request->retry_after_us = -1;
    answer(b, job, &v);
    v.outcome = job->request->outcome;
    enum multipart_next next = multipart_step(&job->parts, job->call, &v, &call);
    buf_deinit(&v.value);
    if (next == MULTIPART_END || (job->cancelled && v.outcome != BUCKET_OK)) {
        sim_upload_leave(job);
        return true;
    }
    next_call(b, job, next == MULTIPART_RESTART ? S3_MULTIPART_CREATE : call);
    return false;
}

/* --- ends --- */

void sim_upload_leave(struct sim_bucket_job *job)
{
    if (job->upload != NULL)
        job->upload->owned = false;
    job->upload = NULL;
    multipart_deinit(&job->parts);
    job->parts = (struct multipart){0};
}

uint64_t sim_bucket_store_stranded(const struct sim_bucket_store *s)
{
    uint64_t n = 0;
    for (const struct sim_upload *u = s->uploads; u != NULL; u = u->next)
        n += !u->owned;
    return n;
}

void sim_uploads_free(struct sim_bucket_store *s)
{
    while (s->uploads != NULL)
        drop(s, s->uploads);
}
