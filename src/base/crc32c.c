/* CRC32C: polynomial 0x1EDC6F41 reflected, initial value and final xor all ones (RFC 3720 B.4).
 *
 * The processor's instruction where there is one; else eight tables, one per byte of a word
 * ("slicing by 8"). Both are chosen and built before main() runs, so there is nothing to lock. */
#include "base/crc32c.h"

#include "base/bytes.h"

#define POLYNOMIAL 0x82F63B78u /* reflected */

typedef uint32_t (*crc_fn)(uint32_t crc, const uint8_t *p, size_t len);

static uint32_t table[8][256];

static uint32_t crc_table(uint32_t crc, const uint8_t *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8) {
        uint32_t low = crc ^ le32_get(p);
        uint32_t high = le32_get(p + 4);
        crc = table[7][low & 255] ^ table[6][low >> 8 & 255] ^ table[5][low >> 16 & 255] ^
              table[4][low >> 24] ^ table[3][high & 255] ^ table[2][high >> 8 & 255] ^
              table[1][high >> 16 & 255] ^ table[0][high >> 24];
    }
    for (; len > 0; p++, len--)
        crc = table[0][(crc ^ *p) & 255] ^ crc >> 8;
    return crc;
}

static crc_fn crc_best = crc_table;

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_sse42(uint32_t crc, const uint8_t *p,
                                                            size_t len)
{
    uint64_t wide = crc;
    for (; len >= 8; p += 8, len -= 8)
        wide = _mm_crc32_u64(wide, le64_get(p));
    crc = (uint32_t)wide;
    for (; len > 0; p++, len--)
        crc = _mm_crc32_u8(crc, *p);
    return crc;
}
#endif

__attribute__((constructor)) static void build_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        table[0][byte] = crc;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        for (unsigned i = 1; i < 8; i++)
            table[i][byte] = table[i - 1][byte] >> 8 ^ table[0][table[i - 1][byte] & 255];
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        crc_best = crc_sse42;
#endif
}

uint32_t crc32c(uint32_t crc, const void *ptr, size_t len)
{
    return ~crc_best(~crc, ptr, len);
}

uint32_t crc32c_portable(uint32_t crc, const void *ptr, size_t len)
{
    return ~crc_table(~crc, ptr, len);
}
