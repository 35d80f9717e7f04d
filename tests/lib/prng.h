/* Repeatable random numbers for tests: xoshiro256** seeded by splitmix64 (Blackman, Vigna 2018). */
#ifndef TESTS_LIB_PRNG_H
#define TESTS_LIB_PRNG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct prng {
    uint64_t s[4];
};

static inline uint64_t prng_rotl(uint64_t x, unsigned k)
{
    return x << k | x >> (64 - k);
}

static inline void prng_init(struct prng *p, uint64_t seed)
{
    for (unsigned i = 0; i < 4; i++) {
        uint64_t z = (seed += UINT64_C(0x9e3779b97f4a7c15));
        z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
        p->s[i] = z ^ z >> 31;
    }
}

static inline uint64_t prng_u64(struct prng *p)
{
    uint64_t result = prng_rotl(p->s[1] * 5, 7) * 9, t = p->s[1] << 17;
    p->s[2] ^= p->s[0];
    p->s[3] ^= p->s[1];
    p->s[1] ^= p->s[2];
    p->s[0] ^= p->s[3];
    p->s[2] ^= t;
    p->s[3] = prng_rotl(p->s[3], 45);
    return result;
}

/* 0 .. n - 1; n >= 1. (The tiny bias of the remainder does not matter here.) */
static inline uint64_t prng_below(struct prng *p, uint64_t n)
{
    return prng_u64(p) % n;
}

static inline bool prng_chance(struct prng *p, unsigned percent)
{
    return prng_below(p, 100) < percent;
}

static inline void prng_fill(struct prng *p, void *out, size_t len)
{
    uint8_t *to = (uint8_t *)out;
    for (size_t i = 0; i < len; i++)
        to[i] = (uint8_t)(prng_u64(p) >> 56);
}

#endif
