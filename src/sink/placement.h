/* Placement: which node runs which queue (spec/sink.md 6). Presence rows say how many nodes run the
 * sink; from that follow the fair share, how long a task waits before it claims a free queue, and
 * what is given back. Pure: times come in, decisions come out. */
#ifndef SINK_PLACEMENT_H
#define SINK_PLACEMENT_H

#include "base/buf.h"

#include <stdint.h>

#define PLACEMENT_JITTER_US 200000 /* claims and looks are spread by up to this much */
#define PLACEMENT_LOAD_US 1000000  /* a node waits this long for every queue it already runs */
#define PLACEMENT_COOLDOWN_TTLS 2  /* of a queue given back, before this node may claim it again */

/* What a queue task has to know of it. */
struct placement_view {
    uint32_t load;  /* queues this node runs or is claiming, this one not counted; over all sinks */
    uint32_t held;  /* queues this sink runs here */
    uint32_t share; /* 0 before the first count: nothing is known, no queue is waited for longer */
};

/* How long after it was found free a queue may be claimed, all waits together; found_us and now_us
 * are monotonic times, cooldown_until_us 0 when this node did not give the queue back lately. */
int64_t placement_claim_at(const struct placement_view *v, int64_t found_us, int64_t jitter_us,
                           int64_t ttl_us, int64_t cooldown_until_us, int64_t now_us);
/* How long until a queue held elsewhere is looked at again. */
int64_t placement_relook_us(const struct placement_view *v, int64_t ttl_us, int64_t jitter_us);

enum placement_handoff { HANDOFF_NONE, HANDOFF_DRAINING, HANDOFF_RELEASED };

struct placement {
    int64_t ttl_us;
    uint32_t nodes, queues, held, share; /* of the last beat; status */
    int64_t over_since_us;               /* held > share since; 0 = not */
    enum placement_handoff handoff;
    struct buf giving_back; /* name of the queue in the hand-off; owned */
    int64_t released_at_us;
};

struct placement_queue {
    struct span name;
    uint64_t buffered;
    bool running; /* owned here and not draining */
};

void placement_init(struct placement *p, int64_t ttl_us);
void placement_deinit(struct placement *p);
/* After every beat. nodes: live presence rows with our own always counted. Returns the index of the
 * queue to give back now, or -1. */
int placement_beat(struct placement *p, uint32_t nodes, const struct placement_queue *queues,
                   size_t n, int64_t now_us);
/* The fair share of a node with so many queues now, by the nodes of the last beat; 0 before it. */
uint32_t placement_share(const struct placement *p, size_t queues);
/* The queue in the hand-off was released (its task ended as `released`), or ended in another way.
 */
void placement_released(struct placement *p, struct span name, int64_t now_us);
void placement_abandoned(struct placement *p, struct span name);
/* A queue was seen held by another node: true when it was the one handed off, which ends the
 * hand-off. */
bool placement_seen_held(struct placement *p, struct span name);
/* Nobody took the queue within a TTL: true once, and the hand-off is over. */
bool placement_expired(struct placement *p, int64_t now_us);

#endif
