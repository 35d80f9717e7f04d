#include "base/map.h"

#include "base/buf.h"
#include "lib/test.h"

enum { KEYS = 5000 };

static uint8_t values[KEYS]; /* only their addresses matter */

static struct span key_of(struct buf *b, unsigned i)
{
    buf_reset(b);
    buf_printf(b, "key %u", i);
    return buf_span(b);
}

TEST(an_empty_map_answers)
{
    struct map m = MAP_INIT;
    size_t at = 0;
    struct span key;
    void *value;
    CHECK(map_get(&m, SPAN_LIT("a")) == NULL);
    CHECK(map_remove(&m, SPAN_LIT("a")) == NULL);
    CHECK(!map_next(&m, &at, &key, &value));
    map_deinit(&m);
    map_deinit(NULL);
    struct map64 m64 = MAP64_INIT;
    uint64_t key64;
    CHECK(map64_get(&m64, 0) == NULL);
    CHECK(map64_remove(&m64, 0) == NULL);
    CHECK(!map64_next(&m64, &at, &key64, &value));
    map64_deinit(&m64);
    map64_deinit(NULL);
}

TEST(put_copies_the_key_and_returns_what_it_replaced)
{
    struct map m = MAP_INIT;
    char key[] = "abc";
    CHECK(map_put(&m, span_str(key), &values[0]) == NULL);
    key[0] = 'x';
    CHECK(map_get(&m, SPAN_LIT("abc")) == &values[0]);
    CHECK(map_put(&m, SPAN_LIT("abc"), &values[1]) == &values[0]);
    CHECK(map_put(&m, (struct span){NULL, 0}, &values[2]) == NULL);
    CHECK(map_get(&m, SPAN_LIT("")) == &values[2]);
    CHECK_EQ(m.count, 2);
    map_deinit(&m);
    CHECK_EQ(m.count, 0);
}

/* Goal: removals in any pattern lose no other key. Method: a random walk against a plain array. */
TEST(random_changes_match_a_model)
{
    static bool model[KEYS];
    struct map m = MAP_INIT;
    struct map64 m64 = MAP64_INIT;
    struct buf b = BUF_INIT;
    uint64_t random = 1;
    size_t count = 0;
    for (unsigned step = 0; step < 100000; step++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        /* Phases of growth and of removal, so that runs form and dissolve. */
        unsigned i = (unsigned)(random >> 33) % (step / 20000 % 2 == 0 ? KEYS : KEYS / 50);
        bool put = (random >> 60) % 4 < (step / 10000 % 2 == 0 ? 3u : 1u);
        void *old = model[i] ? &values[i] : NULL;
        struct span key = key_of(&b, i);
        CHECK(map_get(&m, key) == old);
        CHECK(map64_get(&m64, i) == old);
        if (put) {
            CHECK(map_put(&m, key, &values[i]) == old);
            CHECK(map64_put(&m64, i, &values[i]) == old);
        } else {
            CHECK(map_remove(&m, key) == old);
            CHECK(map64_remove(&m64, i) == old);
        }
        count = count + (put && !model[i] ? 1 : 0) - (!put && model[i] ? 1 : 0);
        model[i] = put;
        CHECK_EQ(m.count, count);
        CHECK_EQ(m64.count, count);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        CHECK((map_get(&m, key_of(&b, i)) != NULL) == model[i]);
        CHECK((map64_get(&m64, i) != NULL) == model[i]);
    }
    buf_deinit(&b);
    map_deinit(&m);
    map64_deinit(&m64);
}

TEST(iteration_meets_every_key_once)
{
    static unsigned seen[KEYS];
    struct map m = MAP_INIT;
    struct map64 m64 = MAP64_INIT;
    struct buf b = BUF_INIT;
    for (unsigned i = 0; i < KEYS; i++) {
        map_put(&m, key_of(&b, i), &values[i]);
        map64_put(&m64, UINT64_C(0xFFFFFFFF00000000) + i, &values[i]);
    }
    size_t at = 0;
    struct span key;
    void *value;
    while (map_next(&m, &at, &key, &value)) {
        size_t i = (size_t)((uint8_t *)value - values);
        CHECK_SPAN(key, key_of(&b, (unsigned)i));
        seen[i]++;
    }
    uint64_t key64;
    for (at = 0; map64_next(&m64, &at, &key64, &value);) {
        CHECK_EQ(key64 - UINT64_C(0xFFFFFFFF00000000), (uint8_t *)value - values);
        seen[(uint8_t *)value - values]++;
    }
    for (unsigned i = 0; i < KEYS; i++)
        CHECK_EQ(seen[i], 2);
    buf_deinit(&b);
    map_deinit(&m);
    map64_deinit(&m64);
}

TEST_MAIN()
