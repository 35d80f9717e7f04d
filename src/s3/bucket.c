/* What every kind of bucket shares. */
#include "s3/bucket.h"

#include "base/mem.h"

const char *bucket_op_label(enum bucket_op op)
{
    switch (op) {
    case BUCKET_HEAD:
        return "head";
    case BUCKET_PUT:
        return "put";
    case BUCKET_GET:
        return "get";
    case BUCKET_LIST:
        return "list";
    }
    return "?"; /* not reached: the switch is complete */
}

const char *bucket_attempt_label(const struct bucket_request *r)
{
    return r->attempt_label != NULL ? r->attempt_label : bucket_op_label(r->op);
}

void bucket_request_deinit(struct bucket_request *r)
{
    if (r == NULL)
        return;
    buf_deinit(&r->out);
    mem_free(r->keys);
    r->keys = NULL;
    r->n_keys = 0;
}
