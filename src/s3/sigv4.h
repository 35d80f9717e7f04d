/* AWS Signature Version 4 for service s3, static keys (objects.md 10 Addressing and signing; AWS,
 * "Authenticating Requests: Using the Authorization Header"). Pure, any thread.
 *
 * The encoded path and query that are signed are the bytes that go on the wire: callers encode with
 * the functions here and send the result. */
#ifndef S3_SIGV4_H
#define S3_SIGV4_H

#include "base/buf.h"

#define SIGV4_DATE_SIZE 17      /* YYYYMMDDTHHMMSSZ and a NUL */
#define SIGV4_SIGNATURE_SIZE 65 /* 64 lowercase hex digits and a NUL */

/* A query parameter or a header; values are raw. Header names are lowercase. */
struct sigv4_pair {
    struct span name, value;
};

struct sigv4_key {
    struct span access, secret, region; /* borrowed */
};

struct sigv4_request {
    const char *method;
    struct span path;  /* encoded, begins with '/' */
    struct span query; /* encoded and sorted, without '?'; may be empty */
    const struct sigv4_pair *headers;
    size_t n_headers;    /* exactly those signed; sorted by name */
    struct span payload; /* hex SHA-256 of the body */
    const char *date;    /* as sigv4_date() */
};

/* Percent-encodes once: keeps A-Z a-z 0-9 - . _ ~, and '/' when keep_slash. */
void sigv4_put_encoded(struct buf *b, struct span raw, bool keep_slash);
/* name=value pairs, encoded, sorted by encoded name, then value, joined with '&'. n <= 16. */
void sigv4_put_query(struct buf *b, const struct sigv4_pair *params, size_t n);
void sigv4_date(int64_t wall_us, char out[SIGV4_DATE_SIZE]);

void sigv4_put_canonical(struct buf *b, const struct sigv4_request *r);
/* Appends the value of the Authorization header; signature_out also gets the signature alone, so
 * that it can be kept out of texts. */
void sigv4_put_authorization(struct buf *b, const struct sigv4_key *key,
                             const struct sigv4_request *r,
                             char signature_out[SIGV4_SIGNATURE_SIZE]);

#endif
