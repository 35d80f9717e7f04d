#include "base/mem.h"

#include "lib/test.h"

TEST(new_memory_is_zero)
{
    uint8_t *p = mem_new(1000);
    for (unsigned i = 0; i < 1000; i++)
        CHECK_EQ(p[i], 0);
    mem_free(p);
    uint64_t *array = MEM_ARRAY(uint64_t, 100);
    for (unsigned i = 0; i < 100; i++)
        CHECK_EQ(array[i], 0);
    mem_free(array);
}

TEST(nothing_is_a_size)
{
    void *a = mem_new(0);
    void *b = mem_try(0);
    void *c = mem_copy(NULL, 0);
    void *d = mem_grow(NULL, 0);
    void *e = MEM_ARRAY(int, 0);
    CHECK(a != NULL);
    CHECK(b != NULL);
    CHECK(c != NULL);
    CHECK(d != NULL);
    CHECK(e != NULL);
    mem_free(a);
    mem_free(b);
    mem_free(c);
    mem_free(d);
    mem_free(e);
    mem_free(NULL);
}

TEST(copies_and_growth_keep_the_bytes)
{
    char *text = mem_copy("hello", 6);
    assert_string_equal(text, "hello");
    text = mem_grow(text, 100000);
    assert_string_equal(text, "hello");
    mem_free(text);
}

TEST_MAIN()
