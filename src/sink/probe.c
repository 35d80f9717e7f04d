/* What is known of the bucket (decisions.md 14), and the probe that a sink starts with.
 *
 * The probe is a HEAD of the prefix. Its answer has no body: a wrong key, a wrong secret and a
 * clock that is off are all the same 403, and a bucket that is not there is the same 404 as a
 * prefix that is not. So a HEAD without a reason is followed by a LIST of nothing, whose answer
 * says why, and the log line waits for it. A 404 counts as reachable, unless the LIST shows that no
 * request can succeed.
 *
 * The last reason stays until a newer one, or an answer. */
#include "sink/sink_internal.h"

#define PERMISSIONS "; needs s3:PutObject, s3:GetObject, s3:ListBucket and s3:AbortMultipartUpload"

/* --- the bucket's state; all under lock --- */

static bool is_unreachable(unsigned code, struct span error, enum bucket_cause cause)
{
    return code == 0 || code == 401 || code == 403 || cause == CAUSE_KEYS ||
           span_contains(error, SPAN_LIT("NoSuchBucket"));
}

static void answered(struct sink *s)
{
    bool again = s->bucket.reachable == 0;

    s->bucket.reachable = 1;
    buf_reset(&s->bucket.error);
    if (again)
        log_msg(LOG_INFO, SINK_LOG_TARGET, "the bucket answers again bucket=%s endpoint=%s",
                s->settings->bucket, s->settings->endpoint);
}

static void log_down(struct sink *s)
{
    s->bucket.logged = true;
    sink_log_bucket_down(&s->log, s->settings, buf_span(&s->bucket.error), sink_now(s));
}

/* A failed attempt, and what it means. */
struct failure {
    const char *op;
    unsigned code;
    struct span error;
    enum bucket_cause cause;
    struct buf advice;
};

static void understand(struct sink *s, struct failure *f, const struct bucket_clue *clue,
                       struct span key, bool list_works)
{
    f->cause = bucket_hint_put(&f->advice, s->settings,
                               &(struct bucket_symptom){.op = f->op,
                                                        .status = f->code,
                                                        .error = f->error,
                                                        .key = key,
                                                        .clue = clue,
                                                        .now_us = clock_wall_us(s->options.clock),
                                                        .answered_before = s->bucket.has_answered,
                                                        .list_works = list_works});
}

static void set_error(struct sink *s, const struct failure *f)
{
    const struct sink_settings *set = s->settings;
    struct buf *error = &s->bucket.error;

    buf_reset(error);
    s->bucket.logged = false;
    buf_put_span(error, buf_span(&f->advice));
    buf_puts(error, f->advice.len > 0 ? "; " : "");
    buf_printf(error, "%s bucket %s at %s: ", f->op, set->bucket, set->endpoint);
    buf_put_span(error, f->error);
    if (!set->is_file && (f->cause == CAUSE_UNKNOWN || f->cause == CAUSE_PERMISSION))
        buf_puts(error, PERMISSIONS);
    if (!set->is_file && f->cause == CAUSE_UNKNOWN && !set->path_style)
        buf_puts(error, "; MinIO and most other stores want QUEEN_S3_PATH_STYLE=true");
}

/* --- attempts --- */

/* Does the HEAD's answer say too little, so that a LIST has to be asked? */
static bool is_bare(const struct op *op, const struct failure *f)
{
    const struct bucket_clue *clue = &op->bucket.clue;

    if (op->sink->settings->is_file || op->bucket.outcome != BUCKET_TERMINAL)
        return false;
    if (f->cause == CAUSE_CLOCK || f->cause == CAUSE_ENDPOINT)
        return false;
    return clue->code[0] == '\0' && !(f->cause == CAUSE_REGION && clue->region[0] != '\0');
}

static void head_failed(struct sink *s, const struct op *op, const struct failure *f)
{
    s->probe.head_code = f->code;
    s->probe.head_clue = op->bucket.clue;
    buf_reset(&s->probe.head_error);
    buf_put_span(&s->probe.head_error, f->error);
    s->probe.bare = is_bare(op, f);
    if (is_unreachable(f->code, f->error, f->cause))
        s->bucket.reachable = 0;
    s->probe.no_reason_yet = s->probe.bare && s->bucket.error.len == 0;
    if (s->probe.no_reason_yet)
        set_error(s, &(struct failure){.op = f->op, .error = f->error, .cause = CAUSE_UNKNOWN});
    else if (!s->probe.bare)
        set_error(s, f);
    if (!s->probe.bare && s->bucket.reachable == 0)
        log_down(s);
}

/* The LIST behind a bare HEAD. */
static void list_failed(struct sink *s, const struct failure *f)
{
    bool head_found = s->probe.head_code == 404;

    if (head_found || (f->cause != CAUSE_UNKNOWN && f->cause != CAUSE_STORE)) {
        set_error(s, f);
        s->probe.no_reason_yet = false;
    }
    if (head_found && f->cause == CAUSE_PERMISSION)
        return; /* the sink can do without lists */
    if (is_unreachable(f->code, f->error, f->cause)) {
        s->bucket.reachable = 0;
        log_down(s);
    }
}

static void attempt_failed(struct sink *s, const struct op *op, const struct failure *f)
{
    s->probe.cause = f->cause;
    if (op->kind == OP_PROBE) {
        head_failed(s, op, f);
    } else if (op->kind == OP_PROBE_LIST) {
        list_failed(s, f);
    } else {
        if (is_unreachable(f->code, f->error, f->cause))
            s->bucket.reachable = 0;
        set_error(s, f);
        if (s->bucket.reachable == 0)
            log_down(s);
    }
}

static void attempt_succeeded(struct sink *s, const struct op *op, unsigned code)
{
    if (op->kind == OP_PROBE && code == 404) {
        s->probe.head_code = code;
        s->probe.bare = true;
    } else if (op->kind != OP_PROBE_LIST) { /* judged as a whole, with its HEAD */
        answered(s);
    }
}

bool sink_bucket_attempt(struct op *op, unsigned code, struct span error)
{
    struct sink *s = op->sink;
    struct failure f = {
        .op = bucket_attempt_label(&op->bucket), .code = code, .error = error, .advice = BUF_INIT};
    bool is_abort = strcmp(f.op, "multipart_abort") == 0;

    pthread_mutex_lock(&s->lock);
    sink_counters_request(&s->counters, f.op, code);
    s->bucket.checked_at = clock_wall_us(s->options.clock) / 1000 * 1000;
    s->bucket.tried_us = sink_now(s);
    if (!is_abort)
        buf_reset(&op->told);
    if (!is_abort && error.len > 0) {
        understand(s, &f, &op->bucket.clue, op->bucket.key, false);
        buf_put_span(&op->told, error);
        buf_puts(&op->told, f.advice.len > 0 ? "; " : "");
        buf_put_span(&op->told, buf_span(&f.advice));
        attempt_failed(s, op, &f);
    } else if (!is_abort) {
        attempt_succeeded(s, op, code);
    }
    if (code != 0)
        s->bucket.has_answered = true;
    pthread_mutex_unlock(&s->lock);
    buf_deinit(&f.advice);
    return !is_abort;
}

/* --- the probe --- */

static void ask(struct sink *s, enum op_kind kind)
{
    pthread_mutex_unlock(&s->lock);
    struct op *op = sink_op_new(s, NULL, kind, 0);
    buf_puts(&op->key, s->settings->prefix);
    buf_puts(&op->key, kind == OP_PROBE ? "/" : "/_queen/probe/");
    op->bucket.op = kind == OP_PROBE ? BUCKET_HEAD : BUCKET_LIST;
    sink_bucket_submit(op);
    pthread_mutex_lock(&s->lock);
}

void sink_probe_begin(struct sink *s)
{
    s->probe.bare = false;
    ask(s, OP_PROBE);
}

static enum probe_result failed(struct sink *s)
{
    if (s->probe.cause != CAUSE_STORE)
        s->bucket.reachable = 0;
    if (!s->bucket.logged)
        log_down(s);
    return PROBE_FAILED;
}

static enum probe_result head_answered(struct sink *s, const struct op *op)
{
    enum bucket_outcome outcome = op->bucket.outcome;

    if (s->probe.bare && !s->settings->is_file &&
        (outcome == BUCKET_ABSENT || outcome == BUCKET_TERMINAL)) {
        ask(s, OP_PROBE_LIST);
        return PROBE_ASKS;
    }
    if (outcome == BUCKET_OK || outcome == BUCKET_ABSENT)
        return PROBE_SUCCEEDED;
    return failed(s);
}

/* The HEAD's refusal is all that is known, or lists are allowed and it alone was refused. */
static void head_refused(struct sink *s, bool list_works)
{
    struct failure f = {.op = "head",
                        .code = s->probe.head_code,
                        .error = buf_span(&s->probe.head_error),
                        .advice = BUF_INIT};

    understand(s, &f, &s->probe.head_clue, (struct span){0}, list_works);
    set_error(s, &f);
    buf_deinit(&f.advice);
}

static enum probe_result list_answered(struct sink *s, const struct op *op)
{
    bool ok = op->bucket.outcome == BUCKET_OK;

    if (s->probe.head_code != 404) {
        if (ok || s->probe.no_reason_yet)
            head_refused(s, ok);
        s->bucket.reachable = 0;
        return failed(s);
    }
    if (!ok && (op->bucket.code == 0 || bucket_cause_is_fatal(s->probe.cause)))
        return failed(s);
    if (ok)
        answered(s);
    else
        s->bucket.reachable = 1; /* the error stays until a request succeeds */
    return PROBE_SUCCEEDED;
}

enum probe_result sink_probe_answer(struct sink *s, const struct op *op)
{
    return op->kind == OP_PROBE ? head_answered(s, op) : list_answered(s, op);
}
