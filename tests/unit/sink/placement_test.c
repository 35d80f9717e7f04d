/* Placement (spec/sink.md 6): waits, shares, hand-offs, and a small model of three nodes. */
#include "base/span.h"
#include "lib/test.h"
#include "sink/placement.h"

#define SEC INT64_C(1000000)
#define TTL (30 * SEC)

TEST(a_free_queue_is_claimed_after_jitter_and_load)
{
    struct placement_view v = {.load = 0, .held = 0, .share = 2};
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 150000, TTL, 0, 100 * SEC), 100 * SEC + 150000);
    v.load = 4;
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 0, TTL, 0, 100 * SEC), 104 * SEC);
    v.load = 400; /* at most half a TTL */
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 0, TTL, 0, 100 * SEC), 115 * SEC);
    v = (struct placement_view){.held = 2,
                                .share = 2}; /* one more TTL for one more than its share */
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 0, TTL, 0, 100 * SEC), 130 * SEC);
    v = (struct placement_view){0}; /* before the first count */
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 0, TTL, 0, 100 * SEC), 100 * SEC);
}

TEST(a_queue_given_back_waits_for_its_cooldown)
{
    struct placement_view v = {.held = 2, .share = 2};
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 0, TTL, 160 * SEC, 101 * SEC), 160 * SEC);
    CHECK_EQ(placement_claim_at(&v, 100 * SEC, 0, TTL, 160 * SEC, 161 * SEC), 130 * SEC);
}

TEST(a_queue_held_elsewhere_is_looked_at_by_share)
{
    struct placement_view v = {.held = 1, .share = 2};
    CHECK_EQ(placement_relook_us(&v, TTL, 5), TTL / 3 + 5);
    v.held = 2;
    CHECK_EQ(placement_relook_us(&v, TTL, 5), TTL + 5);
}

#define NAME(text)                                                                                 \
    {                                                                                              \
        (const uint8_t *)(text), sizeof(text) - 1                                                  \
    }

static struct placement_queue QUEUES[] = {
    {NAME("a"), 50, true}, {NAME("b"), 20, true}, {NAME("c"), 20, true},
    {NAME("d"), 90, true}, {NAME("e"), 0, false}, {NAME("f"), 90, true},
};

TEST(one_node_holds_everything_and_moves_nothing)
{
    struct placement p;
    placement_init(&p, TTL);
    for (int64_t now = SEC; now < 600 * SEC; now += 10 * SEC)
        CHECK_EQ(placement_beat(&p, 1, QUEUES, 6, now), -1);
    CHECK_EQ(p.share, 6);
    CHECK_EQ(p.held, 5);
    placement_deinit(&p);
}

/* Goal: more than the share for a whole TTL gives one back, the one with the least buffered, ties
 * by name. */
TEST(a_node_above_its_share_gives_back_one_at_a_time)
{
    struct placement p;
    placement_init(&p, TTL);
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 10 * SEC), -1); /* share 3, held 5 */
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 39 * SEC), -1);
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 40 * SEC), 1);
    CHECK_TEXT(buf_span(&p.giving_back), "b");
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 50 * SEC), -1); /* in flight */
    placement_released(&p, SPAN_LIT("b"), 55 * SEC);
    CHECK(!placement_seen_held(&p, SPAN_LIT("a")));
    CHECK(placement_seen_held(&p, SPAN_LIT("b")));
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 60 * SEC), 1); /* still above: the next one */
    placement_released(&p, SPAN_LIT("b"), 65 * SEC);
    CHECK(!placement_expired(&p, 94 * SEC));
    CHECK(placement_expired(&p, 95 * SEC)); /* nobody took it */
    CHECK(!placement_expired(&p, 96 * SEC));
    placement_deinit(&p);
}

TEST(a_node_seen_for_seconds_moves_nothing)
{
    struct placement p;
    placement_init(&p, TTL);
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 10 * SEC), -1);
    CHECK_EQ(placement_beat(&p, 1, QUEUES, 6, 20 * SEC),
             -1); /* gone again: the timer starts anew */
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 30 * SEC), -1);
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 50 * SEC), -1);
    CHECK_EQ(placement_beat(&p, 2, QUEUES, 6, 60 * SEC), 1);
    placement_abandoned(&p, SPAN_LIT("b")); /* its run ended in another way */
    CHECK_EQ(p.handoff, HANDOFF_NONE);
    placement_deinit(&p);
}

TEST(zero_nodes_count_as_this_one)
{
    struct placement p;
    placement_init(&p, TTL);
    CHECK_EQ(placement_beat(&p, 0, QUEUES, 6, SEC), -1);
    CHECK_EQ(p.nodes, 1);
    placement_deinit(&p);
}

TEST_MAIN()
