/* What the named stories are made of (story.c), and the lists of them: placement_checks.c,
 * outage_checks.c, lake_checks.c, disk_checks.c; checks.c plays them. */
#ifndef TESTS_SIM_STORY_H
#define TESTS_SIM_STORY_H

#include "base/timefmt.h"
#include "sim/world_internal.h"

#define TTL_MS 30000u
#define TTL (INT64_C(1000) * TTL_MS)
/* Until everything is shipped: the longest backoff of a step is 75 s; a queue that failed waits for 60 s, and then for
 * its turn, a TTL and a half at most; the rest is for the windows behind it. */
#define CATCH_UP (150 * US_PER_SEC)
#define PUSH_BYTES_MOST (20u * 20200) /* 20 records of the largest payload */
#define REQUEST_MOST                                                                               \
    (SIM_BUCKET_HANG_US + SIM_BUCKET_HICCUP_US) /* under way before, and the one behind */

struct story {
    struct world *w;
    struct instance *a, *b, *c;
    int64_t push_every_us, push_at_us; /* one push to a random queue; 0 = none */
    unsigned push_most;                /* records in a push */
    unsigned free_most;                /* queues that may be free at a time */
    uint64_t buffered_most;            /* bytes, over all instances */
    uint64_t committed_before;         /* k of the first queue */
    bool answered_late;                /* a push was still unanswered a second later */
};

typedef bool (*reached_fn)(const struct story *s);

struct check_list {
    const struct check {
        const char *name;
        enum check_kind kind;
        void (*run)(struct story *s);
    } * checks;
    size_t n;
};

extern const struct check_list placement_checks, outage_checks, lake_checks, disk_checks;

/* What was measured. */
void story_note(struct story *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
void story_tell_held(const struct story *s, const char *what); /* as wrong */
/* True as soon as it is reached; false when that takes longer. reached NULL: lets the time pass. */
bool story_run_until(struct story *s, int64_t us, reached_fn reached);
void story_run_for(struct story *s, int64_t us);
/* How long it took; longer is wrong. */
int64_t story_expect(struct story *s, int64_t us, reached_fn reached, const char *what);
bool story_shipped(const struct story *s); /* everything; looked at now and then */

/* Nothing any more when something was wrong: */
void story_start(struct story *s, struct instance *i);
void story_kill(struct story *s, struct instance *i);
void story_drain(struct story *s, struct instance *i);
void story_freeze(struct story *s, struct instance *i, int64_t us);
void story_open(struct story *s); /* the node */
/* Everything is shipped, every instance drained, the lake whole. */
void story_end(struct story *s);

#endif
