/* Uploads in parts: what follows on what. An upload is open from the answer to CREATE on; whatever
 * fails then is followed by one ABORT, unless the store has forgotten the upload by itself. */
#include "s3/multipart.h"

#include "base/mem.h"

void multipart_init(struct multipart *m, uint64_t size, uint64_t part_bytes)
{
    ASSERT(size > 0);
    *m = (struct multipart){.size = size, .part_bytes = part_bytes};
    m->parts = (unsigned)((size + part_bytes - 1) / part_bytes);
}

void multipart_deinit(struct multipart *m)
{
    buf_deinit(&m->upload_id);
    buf_deinit(&m->etags);
    buf_deinit(&m->ends);
}

static void forget(struct multipart *m)
{
    buf_reset(&m->upload_id);
    buf_reset(&m->etags);
    buf_reset(&m->ends);
    m->part = 0;
}

static enum multipart_next created(struct multipart *m, struct span upload_id,
                                   enum s3_call *call_out)
{
    forget(m);
    buf_put_span(&m->upload_id, upload_id);
    m->part = 1;
    *call_out = S3_MULTIPART_PART;
    return MULTIPART_CALL;
}

static enum multipart_next landed(struct multipart *m, struct span etag, enum s3_call *call_out)
{
    buf_put_span(&m->etags, etag);
    buf_append(&m->ends, &m->etags.len, sizeof(m->etags.len));
    *call_out = m->part < m->parts ? S3_MULTIPART_PART : S3_MULTIPART_COMPLETE;
    m->part += m->part < m->parts;
    return MULTIPART_CALL;
}

static enum multipart_next failed(struct multipart *m, const struct s3_verdict *v,
                                  enum s3_call *call_out)
{
    if (v->upload_gone) {
        forget(m);
        return m->restarts++ < MULTIPART_RESTARTS_MAX ? MULTIPART_RESTART : MULTIPART_END;
    }
    *call_out = S3_MULTIPART_ABORT;
    return m->upload_id.len > 0 ? MULTIPART_CALL : MULTIPART_END;
}

enum multipart_next multipart_step(struct multipart *m, enum s3_call done,
                                   const struct s3_verdict *v, enum s3_call *call_out)
{
    if (done == S3_MULTIPART_ABORT)
        return MULTIPART_END; /* best effort */
    if (v->outcome != BUCKET_OK)
        return failed(m, v, call_out);
    if (done == S3_MULTIPART_CREATE)
        return created(m, buf_span(&v->value), call_out);
    if (done == S3_MULTIPART_PART)
        return landed(m, buf_span(&v->value), call_out);
    ASSERT(done == S3_MULTIPART_COMPLETE);
    return MULTIPART_END;
}

uint64_t multipart_part_from(const struct multipart *m)
{
    return (uint64_t)(m->part - 1) * m->part_bytes;
}

uint64_t multipart_part_size(const struct multipart *m)
{
    uint64_t left = m->size - multipart_part_from(m);
    return left < m->part_bytes ? left : m->part_bytes;
}

void multipart_put_completion(const struct multipart *m, struct buf *b)
{
    unsigned n = (unsigned)(m->ends.len / sizeof(size_t));
    struct span *etags = MEM_ARRAY(struct span, n);
    size_t from = 0;
    for (unsigned i = 0; i < n; i++) {
        size_t end;
        memcpy(&end, m->ends.ptr + i * sizeof(end), sizeof(end));
        etags[i] = span_sub(buf_span(&m->etags), from, end);
        from = end;
    }
    s3_request_put_completion(b, etags, n);
    mem_free(etags);
}
