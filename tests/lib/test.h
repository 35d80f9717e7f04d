/* Unit tests over cmocka: TEST(name) { ... } registers itself; main() comes with TEST_MAIN().
 * CHECK and CHECK_EQ end the test at the first failure, naming file and line. */
#ifndef TESTS_LIB_TEST_H
#define TESTS_LIB_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TEST_COUNT_MAX 512

static struct CMUnitTest test_list[TEST_COUNT_MAX] __attribute__((unused));
static size_t test_count __attribute__((unused)); /* a helper file of a test has no tests */

#define TEST(name)                                                                                 \
    static void test_##name(void);                                                                 \
    static void test_run_##name(void **state)                                                      \
    {                                                                                              \
        (void)state;                                                                               \
        test_##name();                                                                             \
    }                                                                                              \
    __attribute__((constructor)) static void test_register_##name(void)                            \
    {                                                                                              \
        test_list[test_count++] = (struct CMUnitTest){#name, test_run_##name, NULL, NULL, NULL};   \
    }                                                                                              \
    static void test_##name(void)

#define CHECK(condition) _assert_true((condition) ? 1 : 0, #condition, __FILE__, __LINE__)
#define CHECK_EQ(a, b) _assert_int_equal((uintmax_t)(a), (uintmax_t)(b), __FILE__, __LINE__)
/* Compares a struct span with a C string or another span. */
#define CHECK_SPAN(got, want) test_check_span((got), (want), __FILE__, __LINE__)
#define CHECK_TEXT(got, text) CHECK_SPAN((got), span_str(text))

#ifdef BASE_SPAN_H
static inline void test_check_span(struct span got, struct span want, const char *file, int line)
{
    if (span_eq(got, want))
        return;
    print_error("got  \"%.*s\"\nwant \"%.*s\"\n", (int)got.len, (const char *)got.ptr,
                (int)want.len, (const char *)want.ptr);
    _fail(file, line);
}
#endif

#define TEST_MAIN()                                                                                \
    int main(void)                                                                                 \
    {                                                                                              \
        return _cmocka_run_group_tests(__FILE__, test_list, test_count, NULL, NULL);               \
    }

#endif
