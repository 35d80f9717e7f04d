/* Digests over OpenSSL's libcrypto, and a fast keyless hash for our own tables. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include "base/buf.h"
#include "base/span.h"

#define SHA256_SIZE 32

void sha256(struct span in, uint8_t out[SHA256_SIZE]);

struct sha256_stream; /* opaque */
struct sha256_stream *sha256_stream_new(void);
void sha256_stream_update(struct sha256_stream *s, struct span in);
void sha256_stream_final(struct sha256_stream *s, uint8_t out[SHA256_SIZE]); /* once */
void sha256_stream_free(struct sha256_stream *s);

void buf_put_hex(struct buf *b, struct span bytes); /* lowercase */

/* 64-bit hash for in-memory tables: never stored, never decides anything that is replicated.
 * (FNV-1a style with a strong finaliser, or wyhash-like; fixed function.) */
uint64_t hash64(struct span in, uint64_t seed);

#endif
