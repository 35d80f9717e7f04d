/* SHA-256 and MD5 of a body, in one pass, as they stand in headers. */
#ifndef S3_DIGEST_H
#define S3_DIGEST_H

#include "base/span.h"

#define DIGEST_SHA256_HEX 65 /* with the NUL */
#define DIGEST_MD5_HEX 33
#define DIGEST_MD5_BASE64 25

struct digest; /* opaque */

struct digest *digest_new(bool with_md5);
void digest_update(struct digest *d, struct span in);
/* Once. md5 outputs may be NULL without with_md5. */
void digest_final(struct digest *d, char sha256_out[DIGEST_SHA256_HEX],
                  char md5_hex_out[DIGEST_MD5_HEX], char md5_base64_out[DIGEST_MD5_BASE64]);
void digest_free(struct digest *d); /* NULL is allowed */

#endif
