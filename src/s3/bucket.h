/* A bucket: the S3 client's operations (spec/objects.md 10) behind an interface. file_bucket.c is a
 * bucket in a local folder (decisions.md 3, docs/architecture.md); the S3 client and the
 * simulator's model implement the same calls.
 *
 * Requests are asynchronous: submit returns at once, `done` is called once, later, on any thread.
 * Inside, a request is attempted up to 6 times with full jitter (objects.md 10 Retries); `attempt`
 * is told of each. */
#ifndef S3_BUCKET_H
#define S3_BUCKET_H

#include "base/buf.h"
#include "base/err.h"
#include "io/clock.h"
#include "io/executor.h"

#include <stdatomic.h>

enum bucket_op { BUCKET_HEAD, BUCKET_PUT, BUCKET_GET, BUCKET_LIST };

const char *bucket_op_label(enum bucket_op op); /* head put get list */

enum bucket_outcome {
    BUCKET_OK,
    BUCKET_ABSENT,    /* GET, HEAD: 404 */
    BUCKET_RETRIABLE, /* transport, unreadable answer, integrity, 408, 429, >= 500; a full or
                         read-only folder */
    BUCKET_TERMINAL,  /* every other status */
    BUCKET_CANCELLED, /* bucket_cancel() while it waited */
};

/* Why an attempt got no answer. */
enum bucket_silence {
    BUCKET_ANSWERED,
    BUCKET_SILENT,          /* nothing of what follows */
    BUCKET_NO_NAME,         /* the host's name does not resolve */
    BUCKET_REFUSED,         /* nobody listens, or there is no way to the host */
    BUCKET_NO_CONNECTION,   /* no connection in time */
    BUCKET_SLOW,            /* connected, but no whole answer in time */
    BUCKET_CLOSED,          /* the connection ended before a whole answer */
    BUCKET_NOT_HTTP,        /* bytes came that are no HTTP */
    BUCKET_NOT_TLS,         /* the handshake failed before any certificate was judged */
    BUCKET_CERT_AUTHORITY,  /* the certificate is of an authority that is not trusted */
    BUCKET_CERT_NAME,       /* of another host */
    BUCKET_CERT_TIME,       /* expired, or not valid yet */
    BUCKET_CERT_UNREADABLE, /* ours: the file or folder of authorities */
};

/* What a failed attempt tells beside its text, for whoever looks for the cause. What was not told
 * is empty or 0; buckets that know nothing leave it all so. Names come from the server, but hold
 * only letters, digits, '-', '_' and '.'. */
#define BUCKET_CLUE_MAX 64u

struct bucket_clue {
    enum bucket_silence silence;
    char code[BUCKET_CLUE_MAX];   /* of S3: NoSuchBucket */
    char region[BUCKET_CLUE_MAX]; /* where the bucket is, or what the server calls its region */
    char bucket[BUCKET_CLUE_MAX]; /* the one that the server looked for */
    int64_t server_us;            /* the server's clock, from its Date header */
    bool to_https;                /* a redirection to an https:// place */
    bool lists_buckets;           /* a LIST was answered with the list of all buckets */
};

/* A body to upload: bytes in memory, or (large objects) an unlinked file read with pread. */
struct bucket_body {
    struct span bytes; /* borrowed until done */
    int fd;            /* >= 0: the file instead of bytes; borrowed until done */
    uint64_t size;
};

struct bucket_request;
typedef void (*bucket_done_fn)(struct bucket_request *r);
/* After each attempt: code is the HTTP status (200 for a success on file://) or 0 for no answer;
 * error is the text of objects.md 10 ("transport: ..", "status 503: ..") or empty. Any thread. */
typedef void (*bucket_attempt_fn)(struct bucket_request *r, unsigned code, struct span error);

struct bucket_request {
    enum bucket_op op;
    struct span
        key; /* borrowed until done. HEAD: the prefix with '/'; LIST: the prefix of the keys */
    struct span start_after;  /* LIST; may be empty */
    const char *content_type; /* PUT */
    struct bucket_body body;  /* PUT */
    size_t get_max;           /* GET: larger bodies are BUCKET_TERMINAL */
    bucket_done_fn done;
    bucket_attempt_fn attempt; /* may be NULL */
    /* PUT in parts: called once before each part but the first; may be NULL. Any thread. */
    void (*between_parts)(struct bucket_request *r);
    void *ctx;
    /* In `attempt`: the label of queen_s3_s3_requests_total{op} of this attempt: that of op, or
     * multipart_create multipart_part multipart_complete multipart_abort. A constant; NULL from
     * buckets that leave it: bucket_attempt_label(). */
    const char *attempt_label;
    struct bucket_clue clue; /* in `attempt`, when it failed */
    /* Filled before done: */
    enum bucket_outcome outcome;
    unsigned code;
    int64_t retry_after_us; /* -1 = none */
    char error[ERROR_TEXT_MAX];
    struct buf out; /* GET: the body. Owned by the request: bucket_request_deinit() */
    struct span
        *keys; /* LIST: up to 1000 keys after start_after, sorted bytewise; pointing into out */
    size_t n_keys;
    bool truncated;
    struct bucket_request *next; /* internal from here on */
    void *internal;
};

void bucket_request_deinit(struct bucket_request *r);
const char *bucket_attempt_label(const struct bucket_request *r);

struct bucket;
struct bucket_ops {
    void (*submit)(struct bucket *b, struct bucket_request *r);
    /* Ends waits between attempts and aborts transfers: outstanding requests finish as
     * BUCKET_CANCELLED soon. For the end of the grace. */
    void (*cancel)(struct bucket *b);
    void (*close)(struct bucket *b); /* nothing outstanding */
};

struct bucket {
    const struct bucket_ops *ops;
};

static inline void bucket_submit(struct bucket *b, struct bucket_request *r)
{
    b->ops->submit(b, r);
}

static inline void bucket_cancel(struct bucket *b)
{
    b->ops->cancel(b);
}

static inline void bucket_close(struct bucket *b)
{
    if (b != NULL)
        b->ops->close(b);
}

/* file:///path: the object K of bucket B is <path>/B/K. The bucket's own folder is made when it is
 * missing at first (its parent never is: RETRIABLE, the error naming it); one that was there and is
 * gone is not made again: most likely its volume was unmounted. HEAD also looks whether it can be
 * written to. An absent object is BUCKET_ABSENT with code 200: the folder answered.
 *
 * Temporary names are <path>/B/.queen-tmp/<instance>-<incarnation>-<random>; only this instance's
 * leftovers are cleaned at open. Every folder from the object up to the bucket's root is synced
 * unless this process already did. */
struct file_bucket_options {
    struct span path, bucket;  /* path absolute, without file:// */
    struct span instance;      /* sanitised for a file name by percent-encoding, shortened */
    struct executor *executor; /* blocking jobs */
    struct clock *clock;
    struct entropy *entropy;
};

ERR_CHECK enum err file_bucket_open(const struct file_bucket_options *options, struct bucket **out,
                                    struct error *error);

#endif
