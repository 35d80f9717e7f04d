/* What docs/api.md says of looking at the broker. */
#include "api/route.h"

static const struct route_answer health_answers[] = {
    {200, NULL, "the node takes writes: `status` is `healthy`"},
    {503, NULL,
     "it does not: `status` is `settling`; `raft.apply.failure` says why it stopped, or is `null` "
     "after a start on a "
     "full disk that has not applied yet what was acknowledged before"},
    ANSWERS_END,
};

const struct route_doc health_doc = {"Does this node take writes.", NULL, health_answers};

static const struct route_answer status_answers[] = {
    {200, NULL, "`status`, `engine`, and while the sink runs `s3`"},
    ANSWERS_END,
};

const struct route_doc status_doc = {"The sink: its queues, bucket and pins.", NULL,
                                     status_answers};

static const struct route_answer metrics_answers[] = {
    {200, NULL, "`uptime`, `requests`, `messages`, `memory`, `cpu`, `engine`, `raft`"},
    ANSWERS_END,
};

const struct route_doc metrics_doc = {"A few figures as JSON.", NULL, metrics_answers};

static const struct route_answer metrics_text_answers[] = {
    {200, NULL, "everything countable, in Prometheus' text format 0.0.4"},
    ANSWERS_END,
};

const struct route_doc metrics_text_doc = {"All metrics.", NULL, metrics_text_answers};
