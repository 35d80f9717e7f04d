/* Timers: each fires once, not before it is due, in order; a disarmed one never. */
#include "api/timers.h"

#include "base/mem.h"
#include "lib/prng.h"

#include "lib/test.h"

#include <stdatomic.h>
#include <unistd.h>

#define TIMERS 2000u

struct probe {
    struct timer timer; /* first */
    atomic_uint fired;
    int64_t fired_us;
};

static int64_t last_due; /* timer thread */
static atomic_bool out_of_order;

static void fire(struct timer *t)
{
    struct probe *p = (struct probe *)t;
    if (t->due_us < last_due)
        atomic_store(&out_of_order, true);
    last_due = t->due_us;
    p->fired_us = clock_mono_us(clock_real());
    atomic_fetch_add(&p->fired, 1);
}

TEST(timers_fire_once_in_order_and_not_before_they_are_due)
{
    struct probe *probes = MEM_ARRAY(struct probe, TIMERS);
    bool disarmed[TIMERS] = {false};
    struct prng rng;
    last_due = 0;
    atomic_store(&out_of_order, false);
    struct timers *ts = timers_new(clock_real());
    int64_t start = clock_mono_us(clock_real()) + 500000; /* after all are armed */
    prng_init(&rng, 7);
    for (unsigned i = 0; i < TIMERS; i++) {
        probes[i].timer.fire = fire;
        timers_arm(ts, &probes[i].timer, start + (int64_t)prng_below(&rng, 200000));
    }
    for (unsigned i = 0; i < TIMERS / 2; i++) {
        unsigned at = (unsigned)prng_below(&rng, TIMERS);
        disarmed[at] |= timers_disarm(ts, &probes[at].timer);
    }
    while (clock_mono_us(clock_real()) < start + 400000)
        usleep(10000);
    for (unsigned i = 0; i < TIMERS; i++) {
        bool armed = timers_disarm(ts, &probes[i].timer);
        CHECK(!armed);
        CHECK_EQ(atomic_load(&probes[i].fired), disarmed[i] ? 0 : 1);
        CHECK(disarmed[i] || probes[i].fired_us >= probes[i].timer.due_us);
    }
    CHECK(!atomic_load(&out_of_order));
    timers_free(ts);
    mem_free(probes);
}

TEST(an_earlier_timer_wakes_the_thread_from_its_sleep)
{
    struct probe late = {.timer = {.fire = fire}}, soon = {.timer = {.fire = fire}};
    last_due = 0;
    struct timers *ts = timers_new(clock_real());
    int64_t now = clock_mono_us(clock_real());
    timers_arm(ts, &late.timer, now + 60000000);
    usleep(50000);
    now = clock_mono_us(clock_real());
    timers_arm(ts, &soon.timer, now + 20000);
    for (unsigned i = 0; i < 1000 && atomic_load(&soon.fired) == 0; i++)
        usleep(1000);
    CHECK_EQ(atomic_load(&soon.fired), 1);
    CHECK(soon.fired_us - now < 700000); /* its sleep was a second */
    timers_arm(ts, &soon.timer, 5);      /* due already, and armed again */
    for (unsigned i = 0; i < 1000 && atomic_load(&soon.fired) == 1; i++)
        usleep(1000);
    CHECK_EQ(atomic_load(&soon.fired), 2);
    timers_free(ts); /* with one still armed */
    CHECK_EQ(atomic_load(&late.fired), 0);
    timers_free(NULL);
}

TEST_MAIN()
