/* SHA-256 over libcrypto; hash64() after wyhash (Wang Yi, public domain): 64x64 to 128 bit
 * multiplications fold 16 bytes a step. libcrypto fails here only when memory is short or the
 * library is broken, so that ends the process like any other allocation. */
#include "base/hash.h"

#include "base/bytes.h"
#include "base/mem.h"

/* The plain functions are said to be old; but EVP looks the algorithm up and allocates at each call,
 * which for an id costs several times the hashing. */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/evp.h>
#include <openssl/sha.h>

__extension__ typedef unsigned __int128 u128;

struct sha256_stream {
    EVP_MD_CTX *ctx;
};

void sha256(struct span in, uint8_t out[SHA256_SIZE])
{
    SHA256_CTX ctx;
    ASSERT(SHA256_Init(&ctx) == 1);
    if (in.len > 0)
        ASSERT(SHA256_Update(&ctx, in.ptr, in.len) == 1);
    ASSERT(SHA256_Final(out, &ctx) == 1);
}

struct sha256_stream *sha256_stream_new(void)
{
    struct sha256_stream *s = mem_new(sizeof(*s));
    s->ctx = EVP_MD_CTX_new();
    ASSERT(s->ctx != NULL);
    ASSERT(EVP_DigestInit_ex(s->ctx, EVP_sha256(), NULL) == 1);
    return s;
}

void sha256_stream_update(struct sha256_stream *s, struct span in)
{
    if (in.len > 0)
        ASSERT(EVP_DigestUpdate(s->ctx, in.ptr, in.len) == 1);
}

void sha256_stream_final(struct sha256_stream *s, uint8_t out[SHA256_SIZE])
{
    ASSERT(EVP_DigestFinal_ex(s->ctx, out, NULL) == 1);
}

void sha256_stream_free(struct sha256_stream *s)
{
    if (s == NULL)
        return;
    EVP_MD_CTX_free(s->ctx);
    mem_free(s);
}

void buf_put_hex(struct buf *b, struct span bytes)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t *out = buf_extend(b, 2 * bytes.len);
    for (size_t i = 0; i < bytes.len; i++) {
        *out++ = (uint8_t)hex[bytes.ptr[i] >> 4];
        *out++ = (uint8_t)hex[bytes.ptr[i] & 15];
    }
}

static uint64_t fold(uint64_t a, uint64_t b)
{
    u128 product = (u128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t hash64(struct span in, uint64_t seed)
{
    static const uint64_t secret[4] = {0xA0761D6478BD642Fu, 0xE7037ED1A0B428DBu,
                                       0x8EBC6AF09C88C6E3u, 0x589965CC75374CC3u};
    const uint8_t *p = in.ptr;
    size_t left = in.len;
    uint64_t a = 0;
    uint64_t b = 0;

    seed ^= fold(seed ^ secret[0], secret[1]);
    for (; left > 16; p += 16, left -= 16)
        seed = fold(le64_get(p) ^ secret[1], le64_get(p + 8) ^ seed);
    if (left >= 8) { /* the two words overlap unless there are 16 bytes */
        a = le64_get(p);
        b = le64_get(p + left - 8);
    } else if (left >= 4) {
        a = le32_get(p);
        b = le32_get(p + left - 4);
    } else if (left > 0) {
        a = (uint64_t)p[0] << 16 | (uint64_t)p[left / 2] << 8 | p[left - 1];
    }
    u128 product = (u128)(a ^ secret[1]) * (b ^ seed);
    return fold((uint64_t)product ^ secret[2] ^ in.len, (uint64_t)(product >> 64) ^ secret[3]);
}
