/* The bucket behind an S3 endpoint (objects.md 10): HTTP/1.1 over libcurl, signed here.
 *
 * One thread of its own drives every transfer; `done`, `attempt` and `between_parts` are called on
 * it and may submit further requests, but not close the bucket. After cancel() uploads in parts
 * are aborted with a last short request each. */
#ifndef S3_S3_CLIENT_H
#define S3_S3_CLIENT_H

#include "s3/bucket.h"

enum s3_sse { S3_SSE_OFF, S3_SSE_AES256, S3_SSE_KMS };

#define S3_PART_BYTES (UINT64_C(16) << 20)

/* 0 = the default. For tests; production changes none. */
struct s3_limits {
    unsigned connect_timeout_ms; /* 5,000 */
    unsigned request_timeout_ms; /* 120,000: a whole request */
    unsigned stall_s;            /* 60: not a byte of a body goes out. When it is out, a store may
                                    think about it for long */
    unsigned abort_ms;           /* 250: the abort of an upload after cancel() */
    unsigned transfers_max;      /* 64 at once; what is beyond waits */
    int64_t retry_step_us;       /* ATTEMPTS_STEP_US */
    uint64_t part_bytes;         /* S3_PART_BYTES */
};

/* Spans are copied. */
struct s3_client_options {
    struct span endpoint; /* http[s]://host[:port] */
    struct span region, bucket, access_key, secret_key;
    bool path_style; /* else the bucket is the first label of the host */
    enum s3_sse sse;
    struct span kms_key_id;       /* with S3_SSE_KMS; may be empty */
    uint64_t multipart_threshold; /* bytes: larger objects go up in parts; > 0 */
    /* PEM file and folder of hashed names, each instead of the system's own; empty = the latter */
    struct span ca_file, ca_dir;
    struct clock *clock;
    struct entropy *entropy;
    struct s3_limits limits;
};

/* ERR_INVALID: the endpoint; ERR_NOMEM: libcurl does not start. Sends nothing yet. */
ERR_CHECK enum err s3_client_open(const struct s3_client_options *options, struct bucket **out,
                                  struct error *error);

#endif
