/* What the files of the model bucket share: sim_bucket.c (requests and the store), sim_status.c
 * (statuses, judged as the S3 client judges them), sim_upload.c (uploads in parts, in the course
 * that the S3 client gives them). */
#ifndef TESTS_SIM_BUCKET_INTERNAL_H
#define TESTS_SIM_BUCKET_INTERNAL_H

#include "s3/multipart.h"
#include "sim/sim_bucket.h"

enum fate {
    FATE_OK,
    FATE_REFUSED_503,
    FATE_NO_ANSWER,
    FATE_LOST_ANSWER, /* done, but the answer is lost */
    FATE_LATE,        /* no answer, and done after the client gave up */
    FATE_STATUS,      /* any status, done or not */
    FATE_DAMAGED,     /* done, but the answer is not what belongs to it */
    FATE_FORGOTTEN,   /* of an upload in parts: the store knows it no more */
    FATE_REFUSED,     /* as the outage says */
};

struct sim_bucket_job {
    struct bucket_request *request;
    enum fate fate;
    enum sim_outage outage; /* of FATE_REFUSED */
    int64_t due;
    /* In parts: */
    bool in_parts, cancelled;
    enum s3_call call; /* the one on its way */
    struct multipart parts;
    struct sim_upload *upload; /* the store's; NULL: none, or forgotten */
};

struct sim_upload {
    struct sim_upload *next;
    struct buf key, bytes; /* of the parts that landed */
    unsigned parts;
    bool owned; /* a client still knows it; else it is stranded */
};

/* sim_bucket.c */
void sim_bucket_decide(struct sim_bucket *b, struct sim_bucket_job *job);
void sim_bucket_fail(struct bucket_request *r, enum bucket_outcome outcome, unsigned code,
                     const char *text);
void sim_bucket_refuse(struct bucket_request *r, enum sim_outage outage);
void sim_bucket_store_bytes(struct sim_bucket_store *s, struct span key, struct span bytes);
void sim_bucket_read_body(const struct bucket_request *r, struct buf *bytes);
void sim_bucket_put_later(struct sim_bucket *b, const struct bucket_request *r);
void sim_bucket_violate(struct sim_bucket_store *s, const char *what, struct span key);

/* sim_status.c: answers with a random status; true when the call took effect all the same. */
bool sim_status_answer(struct sim_bucket *b, struct bucket_request *r, enum s3_call call,
                       bool *upload_gone_out);

/* sim_upload.c */
bool sim_upload_wanted(const struct sim_bucket *b, const struct bucket_request *r);
void sim_upload_begin(struct sim_bucket *b, struct sim_bucket_job *job);
/* Carries out the call on its way; true when the request is over, its outcome filled in. Else the
 * job goes on with the next call. */
bool sim_upload_call(struct sim_bucket *b, struct sim_bucket_job *job);
void sim_upload_leave(struct sim_bucket_job *job); /* its client is gone */
void sim_uploads_free(struct sim_bucket_store *s);

#endif
