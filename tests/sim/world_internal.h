/* What the world's files share: world.c (a seed's random lives), boot.c (their begins and ends),
 * steps.c (one thing after another), tell.c (what is said of them), faults.c (what befalls it),
 * storage_faults.c (what befalls its disk), clients.c (pushes, deletions, and reading back), instances.c (the sinks over the node), watch.c
 * (what the sinks' KV rows may do), sweep.c (one event at every step), checks.c (named stories,
 * made of story.c; clock_checks.c those of the clock), kv_model.c, options_model.c and dedup_model.c (other clients),
 * rules.c (the storage rules' failure schedules). */
#ifndef TESTS_SIM_WORLD_INTERNAL_H
#define TESTS_SIM_WORLD_INTERNAL_H

#include "sim/dedup_model.h"
#include "sim/kv_model.h"
#include "sim/options_model.h"
#include "sim/world.h"

extern const char *const world_queue_names[WORLD_QUEUES_MAX];
extern const char *const world_partition_names[WORLD_PARTITIONS];

/* What is the same for all sinks of a life. */
struct sink_setup {
    unsigned ttl_ms, window_ms, guard_ms, checkpoint_every;
    unsigned discovery_ms; /* 0: 100 */
    const char *compression, *align;
    bool latest; /* QUEEN_S3_START */
    bool http;   /* an S3 endpoint; else a folder. What a store does to errors is the same */
};

enum instance_state {
    INSTANCE_NONE,
    INSTANCE_RUNNING,
    INSTANCE_FROZEN,   /* stands still, as by SIGSTOP */
    INSTANCE_DRAINING, /* as by SIGTERM */
    INSTANCE_GONE,     /* dead or drained; what it asked of node and executor is still out */
};

struct instance {
    struct world *world;
    enum instance_state state;
    unsigned number;
    char name[16]; /* as its rows have it */
    struct sink *sink;
    struct sim_bucket *bucket;
    struct sink_boot_settings settings;
    int64_t thaw_us;    /* frozen until */
    int64_t pumped_us;  /* monotonic time of its last step */
    int64_t stalled_us; /* when it last stood still for long enough to lose a lease, or started */
    bool left_a_window; /* drained with a window open */
    /* By queue, since it last claimed it. */
    bool row_gone[WORLD_QUEUES_MAX]; /* its row went before it expired */
};

/* The rows of one queue as they were after the last applied entry. */
struct watched_queue {
    struct buf keys[3]; /* lease, intent, committed */
    bool leased;
    struct buf holder, incarnation;
    uint64_t lease_version, intent_version, committed_version;
    int64_t lease_expires;
    uint64_t intent_k, committed_k;
    int64_t committed_t_end;
    int64_t claimed_at;     /* when its holder took it; 0: not known */
    int64_t t_start, t_end; /* of the intent */
    bool has_t0;
    int64_t t0;
    struct window_bounds *bounds; /* of every durable intent, by k - 1 */
    size_t n_bounds;
    unsigned moves; /* to another instance than held it before */
    struct buf last_holder;
};

/* What a thread is doing that others go on beside. */
enum waiting { WAITS_NONE, WAITS_CHECKPOINT, WAITS_JOB };

struct world {
    const struct world_options *options;
    struct world_result *result;
    struct prng prng;
    struct sim_clock clock;
    struct sim_entropy entropy;
    struct sim_executor executor;
    struct disk *disk;
    struct sim_db_state *db_state;
    struct db *db; /* of this boot; the node's */
    struct sim_bucket_store store;
    struct ledger ledger;
    struct kv_model *kv;
    struct options_model *queue_options;
    struct dedup_model *repeats;
    struct {
        bool known;
        uint64_t offset;
    } next[WORLD_QUEUES_MAX][WORLD_PARTITIONS]; /* that a new record is to get */
    int64_t last_stamp; /* of an answered command: the next one's is later */
    struct node *node;
    unsigned queues; /* how many of the names are used */
    unsigned n_instances;
    struct instance instances[WORLD_INSTANCES_MAX];
    struct instance *acting; /* whose step runs: log lines are its */
    struct sink_setup setup;
    struct watched_queue watched[WORLD_QUEUES_MAX];
    int64_t safe_time;  /* the last one published */
    uint64_t changes;   /* of the disk, when the decision began */
    bool moved;         /* something happened since the decision began */
    int64_t start_us;   /* monotonic time of the beginning */
    bool one_by_one;    /* entries of one command each: what an entry did can be told apart */
    bool calm;          /* faults off, no new pushes */
    enum waiting waits; /* may others go on meanwhile? */
    unsigned delete_percent;
    bool unwatched;        /* the watch looks away: an older copy of everything was put back */
    bool full;             /* the disk has little or no room left */
    int64_t disturbed_us;  /* when leases were last lost without anybody's mistake */
    int64_t outage_end_us; /* of the random life */
    /* storage_faults.c */
    int64_t slow_until_us;            /* the disk is slow */
    bool fault_stops, db_fault_stops; /* the armed one must stop the node */
    bool db_armed;
    bool disk_struck, db_struck; /* since the boot */
    struct {
        uint64_t steps;
        int64_t mono_us;
    } busy; /* the last look of world_do_next() at how fast time passes */
    uint64_t life;
    uint64_t ballast_bytes;
    unsigned outstanding;
    unsigned push_weight; /* of 100 steps */
};

/* world.c */
void world_init(struct world *w, const struct world_options *options, struct world_result *result);
void world_deinit(struct world *w);

/* tell.c */
/* Records the first thing that is wrong. */
void world_fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line of the story, and one of its details. */
void world_trace(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_detail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_log_of(struct world *w); /* whose sinks write log lines */

/* boot.c */
bool world_open(struct world *w); /* node, check of the log, sinks; false when it does not open */
ERR_CHECK enum err world_try_open_node(struct world *w, struct error *error); /* just that */
/* Node and check of the log only. */
bool world_open_node(struct world *w);
/* Everything in memory is gone, as by a crash; the disk is the caller's. */
void world_drop(struct world *w);
bool world_stopped(struct world *w);
/* The node's orderly end; every sink is drained. */
void world_close(struct world *w);
void world_judge(struct world *w, bool complete, struct lake_verdict *out);
/* What was published holds, over restarts too: every later record is stamped above it. */
void world_check_safe_time(struct world *w);
int64_t world_applied_end(struct world *w); /* the clock of the last command: what rows end by */

/* steps.c */
bool world_pump_apply(struct world *w); /* one entry, and the watch's look at it */
void world_act(struct world *w);        /* one action of a random life */
void world_meanwhile(void *world);      /* others, while one waits for the storage */
void world_step(struct world *w);       /* the same, counted and looked at */
/* Does one thing; time passes only when nothing else is to be done, up to most_us of it. */
void world_do_next(struct world *w, int64_t most_us);

/* faults.c */
void world_befall(struct world *w);
void world_set_full(struct world *w, bool full); /* the disk, or it has room again */
void world_end_outage(struct world *w);

/* storage_faults.c */
void storage_init(struct world *w);
void storage_befall(struct world *w);
void storage_befall_boot(struct world *w); /* before it */
/* An operation of the disk or the state database has failed since the boot. */
bool storage_failed(const struct world *w);
/* The simulator's own look at the node's rows, which no failure meant for the node comes to. False
 * when the disk is down. */
bool storage_read_rows(struct world *w, struct kv_op *op, int64_t now, struct kv_result *out);
void storage_look(struct world *w); /* after each step, and after a boot */
void storage_heal(struct world *w); /* with the reboot */

/* clients.c */
/* Submits one push of n new records to the queue; the ledger learns the answer. */
void world_push(struct world *w, unsigned queue, size_t n);
void world_push_mixed(struct world *w, size_t n); /* new records, over all queues */
void world_push_any(struct world *w); /* a mix of new records and repeats, over all queues */
void world_delete(struct world *w, unsigned queue);
/* An answered command's clock: they rise, over restarts too. */
void world_check_stamp(struct world *w, int64_t stamp);
void world_check_log(struct world *w); /* every acknowledged record is read back */

/* instances.c */
void instance_start(struct world *w, struct instance *i);
void instance_kill(struct world *w, struct instance *i); /* it dies alone */
void instance_drain(struct world *w, struct instance *i);
void instance_cut(struct world *w, struct instance *i); /* the grace of its drain is over */
void instance_freeze(struct world *w, struct instance *i, int64_t us);
void instance_thaw(struct world *w, struct instance *i);
bool instance_alive(const struct instance *i);
bool instance_pump_sink(struct world *w, struct instance *i, int64_t *next_out);
bool instance_pump_bucket(struct instance *i, int64_t *next_out);
/* One step of each; next_out: the earliest moment anything of them, or of the store, is due. */
bool instances_pump(struct world *w, int64_t *next_out);
/* Thaws who stood long enough, buries who is gone. */
void instances_tend(struct world *w);
void instances_abandon(struct world *w); /* behind node_abandon() */
void instances_free(struct world *w);    /* all drained, the node ended */
struct instance *instance_named(struct world *w, struct span name);
/* Lines of the sinks' log, while an instance acts. */
void instance_log_line(struct world *w, struct span line);
/* A number behind `"name":` in the instance's status; UINT64_MAX when it is not there. */
uint64_t instance_status_number(struct instance *i, const char *name);
bool instance_status_has(struct instance *i, const char *text);
/* False: it says nothing of the queue. */
bool instance_complete_through(struct instance *i, const char *queue, int64_t *us_out);
uint64_t instance_metric(struct instance *i, const char *name); /* without labels but tenant */

/* watch.c */
void watch_init(struct world *w);
/* replayed: more than one entry may have been applied since the last look. */
void watch_look(struct world *w, bool replayed);
bool watch_accounts(void *world, struct span key);
void watch_deinit(struct world *w);
void watch_check_complete(struct world *w);
unsigned watch_free_queues(const struct world *w); /* that are known and leased by nobody */
unsigned watch_held(const struct world *w, const struct instance *i);
unsigned watch_moves(const struct world *w);
int64_t watch_align_unit(const struct world *w);               /* of this life's windows; 0: none */
unsigned watch_window_ends(const struct world *w, int64_t at); /* how many do */
/* A drained instance left nothing behind. */
void watch_check_left(struct world *w, const struct instance *i);

#endif
