/* The client's insides, shared by s3_client.c (thread, transfers, interface) and s3_op.c (what one
 * request goes through). Everything but `shared` belongs to the client's thread. */
#ifndef S3_S3_CLIENT_INTERNAL_H
#define S3_S3_CLIENT_INTERNAL_H

#include "io/pool.h"
#include "s3/attempts.h"
#include "s3/digest.h"
#include "s3/multipart.h"
#include "s3/s3_client.h"
#include "s3/s3_transfer.h"

#define S3_HASH_PIECE (1u << 20)

enum op_state { OP_HASHING, OP_READY, OP_TRANSFER, OP_WAITING };

struct s3_op {
    struct wait wait; /* first */
    struct bucket_request *r;
    struct s3_op *prev, *next; /* in s3_client.ops */
    enum op_state state;
    enum s3_call call;
    unsigned attempts; /* of this call */
    bool in_parts, cancelled;
    struct multipart parts;
    struct buf completion;
    struct s3_body body; /* of this call */
    struct digest *digest;
    uint64_t digested;
    char sha256[DIGEST_SHA256_HEX]; /* empty: not hashed yet */
    char md5_hex[DIGEST_MD5_HEX];
    char md5_base64[DIGEST_MD5_BASE64];
    struct s3_transfer transfer;
    struct s3_verdict verdict;
};

struct s3_client {
    struct bucket bucket; /* first: what the interface hands out */
    struct s3_place place;
    struct buf strings; /* what place points into */
    char *ca_file, *ca_dir;
    uint64_t threshold;
    struct s3_limits limits;
    struct clock *clock;
    struct entropy *entropy;
    CURLM *multi;
    struct thread *thread;
    atomic_bool cancel;
    /* thread */
    struct s3_op *ops, *last_op; /* all, in the order of their turns */
    struct wait *waiting;
    struct s3_sockets sockets;
    unsigned transfers;
    bool cancelled;
    int64_t aborts_end_us; /* when cancelled: none begins after that */
    uint8_t *scratch;      /* S3_HASH_PIECE */
    pthread_mutex_t lock;
    struct {
        struct bucket_request *first, **end; /* submitted, not taken yet */
        size_t outstanding;
        bool closing;
    } shared;
};

static inline void s3_client_lock(struct s3_client *c)
{
    ASSERT(pthread_mutex_lock(&c->lock) == 0);
}

static inline void s3_client_unlock(struct s3_client *c)
{
    ASSERT(pthread_mutex_unlock(&c->lock) == 0);
}

/* s3_op.c */
/* Puts it behind the others; to_end: it had a turn. */
void s3_op_append(struct s3_client *c, struct s3_op *op);
void s3_op_to_end(struct s3_client *c, struct s3_op *op);
/* Its next HTTP call. */
void s3_op_call(struct s3_op *op, enum s3_call call);
bool s3_op_needs_hash(const struct s3_op *op);
/* Hashes up to S3_HASH_PIECE bytes; may end the operation. */
void s3_op_hash_piece(struct s3_client *c, struct s3_op *op);
/* An attempt was made, op->verdict says how it went: another one, the next call, or the end. code: the
 * HTTP status, 0 = no answer. */
void s3_op_judged(struct s3_client *c, struct s3_op *op, unsigned code, int64_t retry_after_us);
/* Frees it and tells its request. */
void s3_op_finish(struct s3_client *c, struct s3_op *op);
uint64_t s3_request_size(const struct bucket_request *r);
void s3_request_cancelled(struct s3_client *c, struct bucket_request *r);

#endif
