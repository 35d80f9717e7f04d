/* Any status a store may answer with, on any call. What it means to the client is not the model's
 * opinion: the S3 client's own judge reads the answer. */
#include "sim/sim_bucket_internal.h"

#include <stdio.h>

#define TERMINAL_PERCENT 15u
#define DONE_PERCENT 30u /* of what is answered with a passing status */

struct status {
    unsigned code;
    const char *name; /* of the error in the body */
};

static const struct status passing[] = {
    {408, "RequestTimeout"},
    {429, "TooManyRequests"},
    {500, "InternalError"},
    {500, ""},
    {501, "NotImplemented"},
    {502, ""},
    {503, "SlowDown"},
    {503, ""},
    {504, ""},
    {400, "RequestTimeout"},
    {400, "BadDigest"},
    {400, "IncompleteBody"},
    {200, "InternalError"}, /* an error in the body of a success */
    {200, "SlowDown"},
    {200, "ServiceUnavailable"},
    {200, "RequestTimeout"},
};

static const struct status lasting[] = {
    {301, "PermanentRedirect"},
    {400, "InvalidRequest"},
    {400, "AuthorizationHeaderMalformed"},
    {403, "AccessDenied"},
    {403, "RequestTimeTooSkewed"},
    {404, "NoSuchBucket"},
    {405, "MethodNotAllowed"},
    {409, "OperationAborted"},
    {411, "MissingContentLength"},
    {412, "PreconditionFailed"},
    {501, ""},
};

#define PASSING (sizeof(passing) / sizeof(passing[0]))
#define LASTING (sizeof(lasting) / sizeof(lasting[0]))

static struct status draw(struct sim_bucket *b, enum s3_call call)
{
    bool lasts = prng_chance(b->prng, TERMINAL_PERCENT);
    struct status status =
        lasts ? lasting[prng_below(b->prng, LASTING)] : passing[prng_below(b->prng, PASSING)];
    bool no_error = call == S3_GET || call == S3_HEAD || call == S3_MULTIPART_ABORT;
    if (status.code == 200 && no_error) /* there it is a success */
        status.code = 503;
    if (call == S3_HEAD)
        status.name = "";
    return status;
}

static int64_t draw_retry_after(struct sim_bucket *b, unsigned code)
{
    static const int64_t seconds[] = {0, 1, 5, 30};
    if ((code != 429 && code != 503) || prng_chance(b->prng, 50))
        return -1;
    return seconds[prng_below(b->prng, 4)] * 1000000;
}

bool sim_status_answer(struct sim_bucket *b, struct bucket_request *r, enum s3_call call,
                       bool *upload_gone_out)
{
    struct status status = draw(b, call);
    struct s3_answer answer = {.code = status.code, .head_done = true};
    struct s3_expect expect = {.call = call, .body_sent = true};
    struct s3_verdict verdict = {0};
    if (status.name[0] != '\0')
        buf_printf(&answer.body, "<Error><Code>%s</Code></Error>", status.name);
    s3_answer_judge(&answer, &expect, &verdict);
    b->store->statuses++;
    sim_bucket_fail(r, verdict.outcome, status.code, verdict.error);
    r->clue = verdict.clue;
    r->retry_after_us = draw_retry_after(b, status.code);
    *upload_gone_out = verdict.upload_gone;
    bool done = verdict.outcome == BUCKET_RETRIABLE && prng_chance(b->prng, DONE_PERCENT);
    s3_verdict_deinit(&verdict);
    s3_answer_deinit(&answer);
    return done;
}
