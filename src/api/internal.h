/* What the files of the API share: the object, answers, requests with a deadline, waiting reads. */
#ifndef API_INTERNAL_H
#define API_INTERNAL_H

#include "api/api.h"
#include "api/rate.h"
#include "api/request.h"
#include "api/route.h"
#include "api/timers.h"
#include "status/families.h"

#include <pthread.h>
#include <stdatomic.h>

struct api {
    struct api_options options;
    struct kv_limits kv_limits;
    struct timers *timers;
    struct pool *readers;
    int64_t started_us; /* monotonic */
    atomic_bool draining;
    atomic_size_t outstanding; /* commands and reads that still hold memory of theirs */
    struct {
        atomic_uint_least64_t requests, push_requests, push_messages, admitted, held, overloaded;
        atomic_uint_least64_t kv_ops[KV_OP_TYPES];
    } counters;
    atomic_size_t parked; /* fetches that wait */
    struct {
        pthread_mutex_t lock;
        struct admission *first, *last; /* held, in order of arrival */
        atomic_size_t held;
        /* Bytes of admitted bodies being read or parsed: of pushes, with what their items take
         * until they are answered; and of other requests. */
        atomic_uint_least64_t reading, others;
        atomic_uint_least64_t small; /* of small pushes that are not answered yet */
    } gate;
    struct {
        pthread_mutex_t lock;
        struct metrics_histogram duration_ms;
        struct rate reads, writes;
    } kv;
    struct {
        pthread_mutex_t lock;
        struct uuid_minter state;
    } minter;
    struct {
        pthread_mutex_t lock;
        struct map64 lists; /* queue id (0: any entry) to struct wait_link, doubly linked */
        atomic_size_t count;
    } waits;
};

/* --- answers ------------------------------------------------------------------------------------
 */

void answer_json(struct http_request *http, unsigned status, struct buf *body); /* takes body */
/* How many bytes an answer may have now, `max` at most: slow readers may hold only so much memory.
 * A small one always goes; false: a larger one is to be answered answer_overloaded(). */
size_t answer_room(const struct http_request *http, size_t max);
bool answer_has_room(const struct http_request *http, const struct buf *body);
/* {"error": text, "code": code}; code may be NULL. */
void answer_error(struct http_request *http, unsigned status, const char *code, const char *text);
void answer_refusal(struct http_request *http, const struct refusal *refusal);
/* Of a query string: plain text. */
void answer_query_refusal(struct http_request *http, const struct refusal *refusal);
/* Broker shape (spec/broker-api.md 1.5) of an error of the node. */
void answer_err(struct http_request *http, enum err err);
void answer_timeout(struct http_request *http);
void answer_overloaded(struct api *a, struct http_request *http); /* 429, Retry-After 1..5 */
/* kv.md 6 */
void answer_kv_refusal(struct http_request *http, const struct refusal *refusal);
void answer_kv_err(struct http_request *http, enum err err);

/* --- admission --- */

/* The body of an admitted request was taken over: its bytes are counted by the node from here on.
 */
void admission_end(struct admission *admission); /* NULL is allowed */
struct api_command;
/* The body was parsed and takes `needs` bytes until it is answered (items and answer; what is below
 * the body's own size is in that). false: no room for it, to be answered answer_overloaded(). */
bool admission_take(struct api_command *c, uint64_t needs);
void admission_give_back(struct api_command *c); /* at its end */
void admissions_wake(struct api *a);             /* there may be room: any thread */
void admissions_refuse(struct api *a); /* lets go of all that are held; the API is draining */

/* --- commands -----------------------------------------------------------------------------------
 */

/* A request that became a command of the log, with its deadline. Embedded first in the route's own
 * struct. */
struct api_command {
    struct api *api;
    struct http_request *http;
    struct node_request node;
    struct timer timer;
    uint64_t gate_small, gate_reading;     /* counted in the gate until it ends */
    void (*answer)(struct api_command *c); /* node.err is ERR_OK; must http_respond() */
    void (*fail)(struct http_request *http, enum err err); /* answers a failure */
    void (*free)(struct api_command *c);                   /* everything, c included */
};

/* Submits c->node (type and body are filled in). Takes c. */
void command_start(struct api_command *c);
/* Size of the entry that would hold this body alone is within options.entry_max_bytes. */
bool command_fits(const struct api *a, const struct buf *body);

/* --- reads ---------------------------------------------------------------------------------------
 */

/* A read of the applied state, answered on a reader thread. Embedded first in the route's own
 * struct. */
struct api_read {
    struct api *api;
    struct http_request *http;
    int64_t deadline_us;
    struct timer timer;
    /* ERR_OK: body is the answer. ERR_NOT_FOUND: there is no such queue. */
    enum err (*build)(struct api_read *r, struct buf *body);
    void (*fail)(struct http_request *http,
                 enum err err); /* answers a failure; NULL: answer_err() */
    void (*free)(struct api_read *r);
};

void read_start(struct api_read *r); /* takes r */
/* The deadline is over: a build that goes on for long looks now and then and gives up with
 * ERR_TIMEOUT. */
bool read_is_late(const struct api_read *r);

/* --- waiting reads ------------------------------------------------------------------------------
 */

struct wait_link {
    struct waiter *waiter;
    uint64_t id;
    struct wait_link *prev, *next;
};

/* A read that may be run again and again on the reader threads until it can be answered. */
struct waiter {
    struct api *api;
    void (*run)(struct waiter *w);
    struct timer timer;
    atomic_int stand;
    struct wait_link *links; /* owned; registered */
    size_t n_links;
};

void waiter_init(struct waiter *w, struct api *a, void (*run)(struct waiter *w));
/* Runs it on a reader thread. */
void waiter_submit(struct waiter *w);
/* From here on entries that touch one of the ids wake it (0: every entry). ids may repeat. Replaces
 * earlier ones; false when they are the same. */
bool waiter_watch(struct waiter *w, const uint64_t *ids, size_t n);
/* Ends a run: w->run is called again when woken, or at due_us (monotonic). The caller lets go of w.
 */
void waiter_park(struct waiter *w, int64_t due_us);
void waiter_deinit(struct waiter *w);          /* in a run: no other will come */
void waits_hook(void *api, uint64_t queue_id); /* node_hook_fn */
void waits_wake_all(struct api *a);

/* --- status --- */

double api_uptime_seconds(const struct api *a);
uint64_t process_resident_bytes(void); /* 0 where /proc does not tell */

/* --- routes -------------------------------------------------------------------------------------
 */

/* rest: what the pattern's trailing '*' stands for, raw. */
void api_push(struct api *a, struct http_request *http, struct span rest);
void api_configure(struct api *a, struct http_request *http, struct span rest);
void api_fetch(struct api *a, struct http_request *http, struct span rest);
void api_changed(struct api *a, struct http_request *http, struct span rest);
void api_kv(struct api *a, struct http_request *http, struct span rest);
void api_kv_key(struct api *a, struct http_request *http, struct span rest);
void api_kv_list(struct api *a, struct http_request *http, struct span rest);
void api_kv_namespaces(struct api *a, struct http_request *http, struct span rest);
void api_queue_list(struct api *a, struct http_request *http, struct span rest);
void api_queue_get(struct api *a, struct http_request *http, struct span rest);
void api_queue_delete(struct api *a, struct http_request *http, struct span rest);
void api_partitions(struct api *a, struct http_request *http, struct span rest);
void api_overview(struct api *a, struct http_request *http, struct span rest);
void api_namespaces(struct api *a, struct http_request *http, struct span rest);
void api_tasks(struct api *a, struct http_request *http, struct span rest);
void api_stats_refresh(struct api *a, struct http_request *http, struct span rest);
void api_health(struct api *a, struct http_request *http, struct span rest);
void api_status(struct api *a, struct http_request *http, struct span rest);
void api_metrics(struct api *a, struct http_request *http, struct span rest);
void api_metrics_text(struct api *a, struct http_request *http, struct span rest);

#endif
