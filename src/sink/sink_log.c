/* Log lines of the sink; sink_log.h says what they are. */
#include "sink/sink_log.h"

#include "base/timefmt.h"

#define LIMIT_STEP_US 5000000
#define LIMIT_BUCKET_US 30000000

void sink_log_init(struct sink_log *l)
{
    *l = (struct sink_log){0};
    pthread_mutex_init(&l->lock, NULL);
}

void sink_log_deinit(struct sink_log *l)
{
    pthread_mutex_destroy(&l->lock);
}

/* May a line of this kind be written now? suppressed_out: those left out since the last one. */
static bool allowed(struct sink_log *l, enum sink_log_limit limit, int64_t now_us,
                    uint64_t *suppressed_out)
{
    int64_t every =
        limit == LIMIT_BUCKET || limit == LIMIT_PRESENCE ? LIMIT_BUCKET_US : LIMIT_STEP_US;

    pthread_mutex_lock(&l->lock);
    bool now = now_us >= l->limits[limit].next_us;
    if (now) {
        *suppressed_out = l->limits[limit].suppressed;
        l->limits[limit].suppressed = 0;
        l->limits[limit].next_us = now_us + every;
    } else {
        l->limits[limit].suppressed++;
    }
    pthread_mutex_unlock(&l->lock);
    return now;
}

/* `queue=.. error=".." suppressed=..` */
static void failure(struct sink_log *l, enum sink_log_limit limit, const char *message,
                    struct span queue, struct span error, int64_t now_us)
{
    struct log_line line;
    uint64_t suppressed = 0;

    if (!allowed(l, limit, now_us, &suppressed))
        return;
    log_begin(&line, LOG_WARN, SINK_LOG_TARGET, message);
    log_str(&line, "queue", queue);
    log_quoted(&line, "error", error);
    log_u64(&line, "suppressed", suppressed);
    log_end(&line);
}

/* A line with the queue and at most one more text. */
static void simple(enum log_level level, const char *message, struct span queue, const char *key,
                   struct span text, bool quoted)
{
    struct log_line line;

    log_begin(&line, level, SINK_LOG_TARGET, message);
    log_str(&line, "queue", queue);
    if (key != NULL && quoted)
        log_quoted(&line, key, text);
    else if (key != NULL)
        log_str(&line, key, text);
    log_end(&line);
}

static void committed(struct span queue, const struct sink_note *note)
{
    struct log_line line;
    struct buf iso = BUF_INIT;

    buf_put_iso_us(&iso, note->t_end);
    log_begin(&line, LOG_INFO, SINK_LOG_TARGET, "window committed");
    log_str(&line, "queue", queue);
    log_u64(&line, "k", note->k);
    log_u64(&line, "records", note->records);
    log_u64(&line, "bytes", note->bytes);
    log_str(&line, "t_end", buf_span(&iso));
    log_f64(&line, "lag_seconds", (double)note->lag_us / 1e6);
    log_u64(&line, "lost", 0);
    log_end(&line);
    buf_deinit(&iso);
}

static void restored(struct span queue, const struct sink_note *note)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, SINK_LOG_TARGET, "queue restored");
    log_str(&line, "queue", queue);
    log_u64(&line, "committed_k", note->k);
    log_bool(&line, "redo", note->redo);
    log_u64(&line, "checkpoint_k", note->checkpoint_k);
    log_u64(&line, "positions", note->positions);
    log_end(&line);
}

static void from_manifest(struct span queue, const struct sink_note *note)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, SINK_LOG_TARGET,
              "the upload of this window was finished: committing it from its manifest");
    log_str(&line, "queue", queue);
    log_u64(&line, "k", note->k);
    log_u64(&line, "records", note->records);
    log_end(&line);
}

static void shutting_down(struct span queue, const struct sink_note *note)
{
    struct log_line line;

    log_begin(&line, LOG_INFO, SINK_LOG_TARGET, "shutting down: stopping the reads");
    log_str(&line, "queue", queue);
    log_u64(&line, "buffered", note->buffered);
    log_bool(&line, "aged", note->aged);
    log_bool(&line, "closing", note->closing);
    log_str(&line, "state", span_str(note->state));
    log_end(&line);
}

static void stopped(struct span queue, const struct sink_note *note)
{
    struct log_line line;

    log_begin(&line, LOG_ERROR, SINK_LOG_TARGET, "queue stopped");
    log_str(&line, "queue", queue);
    log_quoted(&line, "why", note->text);
    log_i64(&line, "retry_in_s", note->retry_us / 1000000);
    log_end(&line);
}

static void checkpoint(const char *message, struct span queue, struct span text)
{
    simple(LOG_WARN, message, queue, "error", text, true);
}

void sink_log_note(struct sink_log *l, struct span queue, const struct sink_note *note,
                   int64_t now_us)
{
    switch (note->type) {
    case SINK_NOTE_STARTING:
        simple(LOG_INFO, "starting a queue task", queue, NULL, note->text, false);
        break;
    case SINK_NOTE_OWNED:
        simple(LOG_INFO, "this node owns the queue", queue, "instance", note->text, false);
        break;
    case SINK_NOTE_HELD:
        simple(LOG_INFO, "another node owns the queue", queue, "owner", note->text, false);
        break;
    case SINK_NOTE_CHANGED:
        simple(LOG_WARN,
               "the lake's last window was written with other settings; it goes on with today's",
               queue, "last", note->text, false);
        break;
    case SINK_NOTE_RESTORED:
        restored(queue, note);
        break;
    case SINK_NOTE_FROM_MANIFEST:
        from_manifest(queue, note);
        break;
    case SINK_NOTE_COMMITTED:
        committed(queue, note);
        break;
    case SINK_NOTE_SHUTTING_DOWN:
        shutting_down(queue, note);
        break;
    case SINK_NOTE_DRAINED:
        simple(LOG_INFO, "queue drained", queue, NULL, note->text, false);
        break;
    case SINK_NOTE_RELEASED:
        simple(LOG_INFO, "gave the queue back", queue, NULL, note->text, false);
        break;
    case SINK_NOTE_MISSING:
        simple(LOG_INFO, "queue missing: looking for it again every 5 s", queue, NULL, note->text,
               false);
        break;
    case SINK_NOTE_FENCED:
        simple(LOG_WARN, "queue fenced", queue, "why", note->text, true);
        break;
    case SINK_NOTE_LEASE_LOST:
        simple(LOG_ERROR, "lease lost: another instance owns this queue", queue, "error",
               note->text, true);
        break;
    case SINK_NOTE_PRECONDITION_LOST:
        break; /* a metric */
    case SINK_NOTE_STOPPED:
        stopped(queue, note);
        break;
    case SINK_NOTE_PANICKED:
        simple(LOG_ERROR, "a queue task crashed; it starts again in 60 s", queue, "why", note->text,
               true);
        break;
    case SINK_NOTE_REFRESH_FAILED:
        simple(LOG_WARN, "lease refresh failed; the next tick tries again", queue, "error",
               note->text, true);
        break;
    case SINK_NOTE_CLAIM_FAILED:
        failure(l, LIMIT_CLAIM, "claim failed", queue, note->text, now_us);
        break;
    case SINK_NOTE_KV_FAILED:
        failure(l, LIMIT_KV, "kv batch failed", queue, note->text, now_us);
        break;
    case SINK_NOTE_PUT_FAILED:
        failure(l, LIMIT_PUT, "object PUT failed", queue, note->text, now_us);
        break;
    case SINK_NOTE_GET_FAILED:
        failure(l, LIMIT_GET, "object GET failed", queue, note->text, now_us);
        break;
    case SINK_NOTE_SCAN_FAILED:
        failure(l, LIMIT_SCAN, "fetch failed", queue, note->text, now_us);
        break;
    case SINK_NOTE_BUILD_FAILED:
        failure(l, LIMIT_BUILD, "building the object failed", queue, note->text, now_us);
        break;
    case SINK_NOTE_RELEASE_FAILED:
        simple(LOG_WARN, "could not give the lease back; it expires by its TTL", queue, "error",
               note->text, true);
        break;
    case SINK_NOTE_BAD_POINTER:
        simple(LOG_WARN, "pointer does not parse", queue, "key", note->text, false);
        break;
    case SINK_NOTE_CHECKPOINT_UNREADABLE:
        checkpoint("checkpoint unreadable; going on without one", queue, note->text);
        break;
    case SINK_NOTE_CHECKPOINT_NOT_WRITTEN:
        checkpoint("checkpoint not written; the next one will hold its rows", queue, note->text);
        break;
    case SINK_NOTE_CHECKPOINT_NOT_LISTED:
        checkpoint("checkpoints not listable; going on without one", queue, note->text);
        break;
    }
}

void sink_log_crash(enum sink_crash_point point)
{
    struct log_line line;

    log_begin(&line, LOG_ERROR, SINK_LOG_TARGET, "QUEEN_S3_CRASH_AT fired: aborting");
    log_str(&line, "point", span_str(sink_crash_point_name(point)));
    log_end(&line);
}

void sink_log_crash_between_parts(void)
{
    log_msg(LOG_ERROR, SINK_LOG_TARGET,
            "QUEEN_S3_CRASH_AT fired: aborting between multipart parts");
}

void sink_log_bucket_down(struct sink_log *l, const struct sink_settings *s, struct span error,
                          int64_t now_us)
{
    struct log_line line;
    uint64_t suppressed = 0;

    if (!allowed(l, LIMIT_BUCKET, now_us, &suppressed))
        return;
    log_begin(&line, LOG_ERROR, SINK_LOG_TARGET, "bucket unreachable; trying again");
    log_str(&line, "bucket", span_str(s->bucket));
    log_str(&line, "endpoint", span_str(s->endpoint));
    log_quoted(&line, "error", error);
    log_u64(&line, "suppressed", suppressed);
    log_end(&line);
}

void sink_log_presence(struct sink_log *l, struct span error, int64_t now_us)
{
    struct log_line line;
    uint64_t suppressed = 0;

    if (!allowed(l, LIMIT_PRESENCE, now_us, &suppressed))
        return;
    log_begin(&line, LOG_WARN, SINK_LOG_TARGET, "presence row not written");
    log_quoted(&line, "error", error);
    log_u64(&line, "suppressed", suppressed);
    log_end(&line);
}
