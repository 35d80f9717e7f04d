/* What docs/api.md says of lists and figures. */
#include "api/resources.h"
#include "api/route.h"

#define ANSWERS_NO_QUEUE                                                                           \
    {                                                                                              \
        404, NULL, "there is no such queue"                                                        \
    }

static const struct route_field list_fields[] = {
    {"?stats", FIELD_TEXT, NULL, 0, 0,
     "`lanes`: rows of `id`, `name`, `queue`, `partitions`, `createdAt` only"},
    {0},
};

static const struct route_answer list_answers[] = {
    {200, NULL,
     "`queues`, the newest first: `id`, `name` and `queue` (its name twice), `namespace`, `task`, "
     "`storage`, `partitions`, `segments` (files and records), `messages` (counts), "
     "`retainedBytes`, `options`, `createdAt`; `kvRows`, `kvBytes`, `timerRows`, `timerBytes`. An "
     "answer ends at 64 MiB, and then has `queuesTruncated`"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc queue_list_doc = {"Lists the queues.", list_fields, list_answers};

static const struct route_field queue_fields[] = {
    {"*", FIELD_TEXT, FIELD_REQUIRED, 0, 0,
     "the queue's name, percent-encoded; `/` may stand in it as it is. With `/depth` or `/sizes` "
     "behind it: what waits in it, or the bytes of each partition; in a name that ends like that "
     "write `%2F`"},
    {"?group", FIELD_TEXT, NULL, 0, 0,
     "of `/depth`: repeated in the answer; no group has read yet"},
    {0},
};

static const struct route_answer queue_answers[] = {
    {200, NULL,
     "`id`, `name`, `namespace`, `task`, `createdAt`, `options`, `segments`, `totals`, "
     "`retainedBytes`, and `partitions` by name: `id`, `name`, `createdAt`, `messages` and `stats` "
     "(the same counts), `cursor`, `lastActivity`, `oldestMessage`, `newestMessage`, "
     "`retainedBytes`"},
    {200, NULL,
     "`/depth`: `queue`, `group`, `pending`, `processing`, `ready`, `partitionsPending`, "
     "`partitionsReady`, `conflation`, `effectivePending`, `effectiveReady`, and `partitions`: "
     "`partition`, `pending`, `processing`, `ready`"},
    {200, NULL, "`/sizes`: `queue`, and `partitions`: name to bytes"},
    ANSWERS_NO_QUEUE,
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc queue_get_doc = {"Shows a queue and its partitions.", queue_fields,
                                        queue_answers};

static const struct route_field partitions_fields[] = {
    {"?queue", FIELD_TEXT, NULL, 0, 0, "only of this queue"},
    {"?limit", FIELD_INT, "610", 1, PARTITIONS_LIMIT_MAX, "rows at most. Clamped"},
    {0},
};

static const struct route_answer partitions_answers[] = {
    {200, NULL,
     "`partitions`, those of the newest queue first: `queue`, `partition`, `id`, `pending`, "
     "`processing`, `lagSeconds` (null without a consumer); `walked`, how many were looked at; "
     "`truncated`, whether there are more"},
    {400, NULL, "a limit that is no integer; the answer is plain text"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc partitions_doc = {"Lists partitions of all queues.", partitions_fields,
                                         partitions_answers};

static const struct route_answer overview_answers[] = {
    {200, NULL,
     "`queues`, `partitions`, `namespaces` and `tasks` (how many), `messages` (counts), `lag` "
     "(`time` and `offset`, null without a consumer), `timestamp`, `statsAge` (0: nothing is "
     "cached)"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc overview_doc = {"Sums over all queues.", NULL, overview_answers};

static const struct route_answer namespaces_answers[] = {
    {200, NULL,
     "`namespaces`, by name: `namespace`, `queues`, `partitions`, `messages` (`total`, `pending`)"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc namespaces_doc = {"Sums over the queues of each namespace.", NULL,
                                         namespaces_answers};

static const struct route_answer tasks_answers[] = {
    {200, NULL,
     "`tasks`, by name: `task`, `queues`, `partitions`, `messages` (`total`, `pending`)"},
    ANSWERS_STOPPING,
    ANSWERS_TIMEOUT,
    ANSWERS_END,
};

const struct route_doc tasks_doc = {"Sums over the queues of each task.", NULL, tasks_answers};

static const struct route_answer refresh_answers[] = {
    {200, NULL, "`success` (true), `refreshed` (false), `engine`"},
    ANSWERS_END,
};

const struct route_doc stats_refresh_doc = {"Does nothing: figures are always those of now.",
                                            route_no_fields, refresh_answers};
