#include "base/hash.h"

#include "lib/test.h"

static void check_hex(const uint8_t digest[SHA256_SIZE], const char *want)
{
    struct buf b = BUF_INIT;
    buf_put_hex(&b, span_make(digest, SHA256_SIZE));
    CHECK_TEXT(buf_span(&b), want);
    buf_deinit(&b);
}

/* FIPS 180-2 appendix B. */
TEST(sha256_examples)
{
    uint8_t digest[SHA256_SIZE];
    sha256((struct span){NULL, 0}, digest);
    check_hex(digest, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sha256(SPAN_LIT("abc"), digest);
    check_hex(digest, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(a_stream_is_the_same_as_one_piece)
{
    uint8_t digest[SHA256_SIZE];
    uint8_t want[SHA256_SIZE];
    struct span text = SPAN_LIT("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq");
    sha256(text, want);
    check_hex(want, "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    for (size_t cut = 0; cut <= text.len; cut++) {
        struct sha256_stream *s = sha256_stream_new();
        sha256_stream_update(s, span_sub(text, 0, cut));
        sha256_stream_update(s, (struct span){NULL, 0});
        sha256_stream_update(s, span_sub(text, cut, text.len));
        sha256_stream_final(s, digest);
        sha256_stream_free(s);
        CHECK(memcmp(digest, want, sizeof(want)) == 0);
    }
    sha256_stream_free(NULL);
}

TEST(hash64_depends_on_bytes_length_and_seed)
{
    uint8_t zeros[64] = {0};
    for (size_t a = 0; a <= sizeof(zeros); a++) {
        CHECK_EQ(hash64(span_make(zeros, a), 1), hash64(span_make(zeros, a), 1));
        CHECK(hash64(span_make(zeros, a), 1) != hash64(span_make(zeros, a), 2));
        for (size_t b = 0; b < a; b++)
            CHECK(hash64(span_make(zeros, a), 1) != hash64(span_make(zeros, b), 1));
    }
    CHECK_EQ(hash64((struct span){NULL, 0}, 1), hash64(SPAN_LIT(""), 1));
}

/* Goal: each input bit changes about half of the output. Method: average over all single flips. */
TEST(hash64_avalanches)
{
    for (size_t len = 1; len <= 40; len++) {
        uint8_t bytes[40];
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)(i * 37);
        uint64_t want = hash64(span_make(bytes, len), 0);
        unsigned changed = 0;
        for (size_t bit = 0; bit < 8 * len; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            changed += (unsigned)__builtin_popcountll(want ^ hash64(span_make(bytes, len), 0));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        CHECK(changed > 24 * 8 * len);
        CHECK(changed < 40 * 8 * len);
    }
}

/* Goal: keys as they occur (counters in text) spread over the low bits that tables use. */
TEST(hash64_spreads_counters)
{
    enum { BUCKETS = 1024, KEYS = 64 * BUCKETS };
    static unsigned buckets[BUCKETS];
    struct buf b = BUF_INIT;
    for (unsigned i = 0; i < KEYS; i++) {
        buf_reset(&b);
        buf_printf(&b, "partition-%u", i);
        buckets[hash64(buf_span(&b), 0) % BUCKETS]++;
    }
    buf_deinit(&b);
    for (unsigned i = 0; i < BUCKETS; i++) {
        CHECK(buckets[i] > 20);
        CHECK(buckets[i] < 120);
    }
}

TEST_MAIN()
