/* The token bucket of the API's rates. */
#include "api/rate.h"

#include "lib/test.h"

#define SECOND 1000000

TEST(a_full_bucket_gives_its_burst_and_then_its_rate)
{
    struct rate r;
    rate_init(&r, 100, 200, 5);
    for (unsigned i = 0; i < 200; i++) {
        CHECK_EQ(rate_wait_us(&r, 1, 5), 0);
        rate_take(&r, 1);
    }
    CHECK_EQ(rate_wait_us(&r, 1, 5), SECOND / 100);
    CHECK_EQ(rate_wait_us(&r, 3, 5), 3 * SECOND / 100);
    CHECK_EQ(rate_wait_us(&r, 1, 5 + SECOND / 100 - 1), 1);
    unsigned taken = 0;
    for (int64_t now = 5; now <= 5 + 10 * SECOND; now += 777) {
        if (rate_wait_us(&r, 1, now) == 0) {
            rate_take(&r, 1);
            taken++;
        }
    }
    CHECK(taken >= 999 && taken <= 1000);
}

TEST(an_idle_bucket_is_full_again_and_never_fuller)
{
    struct rate r;
    rate_init(&r, 3, 7, 0);
    rate_take(&r, 7);
    CHECK_EQ(rate_wait_us(&r, 7, 0), 2333334);
    CHECK_EQ(rate_wait_us(&r, 7, 2333334), 0);
    CHECK_EQ(rate_wait_us(&r, 7, INT64_MAX / 2), 0);
    rate_take(&r, 7);
    CHECK_EQ(rate_wait_us(&r, 1, INT64_MAX / 2), 333334);
}

/* Goal: a call larger than the burst is possible, and paid for afterwards. */
TEST(more_than_the_burst_is_taken_from_a_full_bucket_which_then_owes)
{
    struct rate r;
    rate_init(&r, 100, 200, 0);
    CHECK_EQ(rate_wait_us(&r, 256, 0), 0);
    rate_take(&r, 256);
    CHECK_EQ(rate_wait_us(&r, 1, 0), 57 * SECOND / 100);
    CHECK_EQ(rate_wait_us(&r, 256, 0), 256 * SECOND / 100); /* full again */
    CHECK_EQ(rate_wait_us(&r, 1, 57 * SECOND / 100), 0);
}

TEST(a_rate_of_zero_is_no_limit_and_nothing_costs_nothing)
{
    struct rate r;
    rate_init(&r, 0, 1, 0);
    for (unsigned i = 0; i < 1000; i++) {
        CHECK_EQ(rate_wait_us(&r, 1000, 0), 0);
        rate_take(&r, 1000);
    }
    rate_init(&r, 1, 1, 0);
    rate_take(&r, 1);
    CHECK_EQ(rate_wait_us(&r, 0, 0), 0);
    CHECK(rate_wait_us(&r, 1, 0) > 0);
}

TEST(a_clock_that_steps_back_gives_nothing)
{
    struct rate r;
    rate_init(&r, 1, 1, 10 * SECOND);
    rate_take(&r, 1);
    CHECK_EQ(rate_wait_us(&r, 1, 5 * SECOND), SECOND);
    CHECK_EQ(rate_wait_us(&r, 1, 11 * SECOND), 0);
}

TEST(the_largest_rates_do_not_overflow)
{
    struct rate r;
    rate_init(&r, UINT64_MAX, UINT64_MAX, INT64_MIN / 2);
    CHECK_EQ(r.per_second, RATE_MAX);
    rate_take(&r, UINT64_MAX);
    rate_take(&r, UINT64_MAX);
    CHECK_EQ(rate_wait_us(&r, UINT64_MAX, INT64_MAX / 2 - 1), 0);
    rate_init(&r, 1, 0, 0);
    CHECK_EQ(r.burst, 1);
}

TEST(retry_after_is_in_whole_seconds)
{
    CHECK_EQ(rate_retry_after(1), 1);
    CHECK_EQ(rate_retry_after(SECOND), 1);
    CHECK_EQ(rate_retry_after(SECOND + 1), 2);
    CHECK_EQ(rate_retry_after(INT64_MAX / 2), 3600);
}

TEST_MAIN()
