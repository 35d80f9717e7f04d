/* One HTTP request of the S3 API, built and signed, as bytes (objects.md 10 Requests used). Pure.
 */
#ifndef S3_S3_REQUEST_H
#define S3_S3_REQUEST_H

#include "s3/s3_client.h"
#include "s3/sigv4.h"

enum s3_call {
    S3_HEAD,
    S3_PUT,
    S3_GET,
    S3_LIST,
    S3_MULTIPART_CREATE,
    S3_MULTIPART_PART,
    S3_MULTIPART_COMPLETE,
    S3_MULTIPART_ABORT,
};
#define S3_CALLS 8

const char *s3_call_label(enum s3_call call); /* head put get list multipart_create ... */
bool s3_call_has_body(enum s3_call call);     /* one is sent, even if it is empty */

/* Where and as whom. Spans are borrowed. */
struct s3_place {
    bool https, path_style;
    struct span authority; /* host[:port] */
    struct span bucket;
    struct sigv4_key key;
    enum s3_sse sse;
    struct span kms_key_id;
};

/* Splits http[s]://host[:port][/]; the default port is left out. Borrows from the endpoint.
 * ERR_INVALID. */
ERR_CHECK enum err s3_place_set_endpoint(struct s3_place *place, struct span endpoint);

struct s3_call_spec {
    enum s3_call call;
    struct span key;          /* LIST: the prefix of the keys */
    struct span start_after;  /* LIST; may be empty */
    struct span content_type; /* PUT, CREATE; may be empty */
    struct span upload_id;    /* PART, COMPLETE, ABORT */
    unsigned part;            /* PART: from 1 */
    struct span sha256;       /* hex digest of the body; empty: of no bytes */
    struct span md5;          /* PUT: base64 digest of the body */
    int64_t wall_us;
};

struct s3_wire {
    const char *method;
    struct buf url;     /* scheme://host[:port]/, NUL-terminated */
    struct buf target;  /* the request target, NUL-terminated */
    struct buf headers; /* "name: value" lines, each NUL-terminated; Host is one of them */
    char signature[SIGV4_SIGNATURE_SIZE];
};

/* Fills *wire, a zeroed or an earlier one. */
void s3_request_build(const struct s3_place *place, const struct s3_call_spec *spec,
                      struct s3_wire *wire);
void s3_wire_deinit(struct s3_wire *wire);

/* Appends the body of COMPLETE: parts 1..n with their ETags (without quotes). */
void s3_request_put_completion(struct buf *b, const struct span *etags, unsigned n);

#endif
