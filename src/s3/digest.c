/* Body digests over libcrypto. MD5 is what Content-MD5 and ETag are; nothing here rests on it being
 * hard to forge. */
#include "s3/digest.h"

#include "base/hash.h"
#include "base/mem.h"

#include <openssl/evp.h>

#define MD5_SIZE 16

struct digest {
    struct sha256_stream *sha256;
    EVP_MD_CTX *md5; /* NULL: not wanted */
};

struct digest *digest_new(bool with_md5)
{
    struct digest *d = mem_new(sizeof(*d));
    d->sha256 = sha256_stream_new();
    if (with_md5) {
        d->md5 = EVP_MD_CTX_new();
        ASSERT(d->md5 != NULL);
        ASSERT(EVP_DigestInit_ex(d->md5, EVP_md5(), NULL) == 1);
    }
    return d;
}

void digest_update(struct digest *d, struct span in)
{
    sha256_stream_update(d->sha256, in);
    if (d->md5 != NULL && in.len > 0)
        ASSERT(EVP_DigestUpdate(d->md5, in.ptr, in.len) == 1);
}

static void put_text(char *out, struct span bytes)
{
    struct buf text = BUF_INIT;
    buf_put_hex(&text, bytes);
    memcpy(out, text.ptr, text.len);
    out[text.len] = '\0';
    buf_deinit(&text);
}

void digest_final(struct digest *d, char sha256_out[DIGEST_SHA256_HEX],
                  char md5_hex_out[DIGEST_MD5_HEX], char md5_base64_out[DIGEST_MD5_BASE64])
{
    uint8_t sha[SHA256_SIZE];
    uint8_t md5[MD5_SIZE];
    sha256_stream_final(d->sha256, sha);
    put_text(sha256_out, span_make(sha, sizeof(sha)));
    if (d->md5 == NULL)
        return;
    ASSERT(EVP_DigestFinal_ex(d->md5, md5, NULL) == 1);
    put_text(md5_hex_out, span_make(md5, sizeof(md5)));
    ASSERT(EVP_EncodeBlock((uint8_t *)md5_base64_out, md5, MD5_SIZE) == DIGEST_MD5_BASE64 - 1);
}

void digest_free(struct digest *d)
{
    if (d == NULL)
        return;
    sha256_stream_free(d->sha256);
    EVP_MD_CTX_free(d->md5);
    mem_free(d);
}
