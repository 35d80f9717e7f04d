/* The "s3" block of GET /status (spec/sink-status-metrics.md 1): keys in alphabetical order, one
 * row per queue. */
#include "sink/sink_internal.h"

#include "base/mem.h"
#include "base/timefmt.h"
#include "base/utf8.h"
#include "json/json.h"

void sink_health(const struct sink *s, int64_t now_us, struct sink_health *out)
{
    int64_t limit = 3 * (int64_t)s->settings->max_window_ms;

    *out = (struct sink_health){.ok = true, .limit_ms = limit < 30000 ? 30000 : limit};
    for (size_t i = 0; i < s->n_slots; i++) {
        const struct sink_row *row = sink_task_row(s->slots[i]->task);
        if (!row->owned_here && !row->failed_here)
            continue;
        out->queues++;
        int64_t stale = row->has_lag ? row->lag_us / 1000 + (now_us - row->lag_at_us) / 1000
                                     : (now_us - row->taken_us) / 1000;
        if (out->ok && stale > out->limit_ms) { /* slots are sorted by name */
            out->ok = false;
            out->queue = row->name;
            out->stale_ms = stale;
        }
    }
}

static void put_iso(struct json_writer *w, bool known, int64_t us)
{
    struct buf iso = BUF_INIT;

    if (known) {
        buf_put_iso_us(&iso, us);
        json_str(w, buf_span(&iso));
    } else {
        json_null(w);
    }
    buf_deinit(&iso);
}

/* Error texts quote answers of strangers: whatever is no UTF-8 is replaced. */
static void put_text(struct json_writer *w, struct span text)
{
    struct buf clean = BUF_INIT;

    buf_put_utf8_lossy(&clean, text);
    json_str(w, buf_span(&clean));
    buf_deinit(&clean);
}

static void put_queue(struct json_writer *w, const struct sink_row *row)
{
    int64_t lag = 0;
    bool held = row->state == SINK_ROW_HELD;

    json_begin_object(w);
    json_key(w, "bufferedBytes");
    json_u64(w, row->buffered);
    json_key(w, "bytes");
    json_u64(w, row->bytes);
    json_key(w, "completeThrough");
    put_iso(w, row->has_complete, row->complete_through);
    json_key(w, "heldBy");
    if (held)
        put_text(w, buf_span(&row->held_by));
    else
        json_null(w);
    json_key(w, "k");
    json_u64(w, row->k);
    json_key(w, "lagSeconds");
    if (sink_row_lag(row, &lag))
        json_f64(w, (double)lag / 1e6);
    else
        json_null(w);
    json_key(w, "lastError");
    if (row->has_error) {
        json_begin_object(w);
        json_key(w, "at");
        put_iso(w, true, row->error_at / 1000 * 1000);
        json_key(w, "message");
        put_text(w, buf_span(&row->error));
        json_end_object(w);
    } else {
        json_null(w);
    }
    json_key(w, "name");
    json_str(w, row->name);
    json_key(w, "ownedHere");
    json_bool(w, row->owned_here);
    json_key(w, "partitions");
    json_u64(w, row->partitions);
    json_key(w, "records");
    json_u64(w, row->records);
    json_key(w, "recordsLost");
    json_u64(w, 0);
    json_key(w, "redo");
    json_bool(w, row->redo);
    json_key(w, "safeTime");
    put_iso(w, row->has_safe_time, row->safe_time);
    json_key(w, "state");
    json_cstr(w, sink_row_state_name(row->state));
    json_key(w, "tEnd");
    put_iso(w, row->has_t_end, row->t_end);
    json_key(w, "windowsCommitted");
    json_u64(w, row->windows);
    json_end_object(w);
}

static void put_bucket(struct json_writer *w, const struct sink *s)
{
    json_begin_object(w);
    json_key(w, "checkedAt");
    put_iso(w, s->bucket.checked_at != 0, s->bucket.checked_at);
    json_key(w, "endpoint");
    json_cstr(w, s->settings->endpoint);
    json_key(w, "error");
    if (s->bucket.error.len > 0)
        put_text(w, buf_span(&s->bucket.error));
    else
        json_null(w);
    json_key(w, "name");
    json_cstr(w, s->settings->bucket);
    json_key(w, "prefix");
    json_cstr(w, s->settings->prefix);
    json_key(w, "reachable");
    if (s->bucket.reachable < 0)
        json_null(w);
    else
        json_bool(w, s->bucket.reachable == 1);
    json_key(w, "region");
    json_cstr(w, s->settings->region);
    json_end_object(w);
}

static void put_health(struct json_writer *w, const struct sink_health *health)
{
    json_begin_object(w);
    if (health->ok) {
        json_key(w, "ok");
        json_bool(w, true);
        json_key(w, "queues");
        json_u64(w, health->queues);
    } else {
        json_key(w, "limitMs");
        json_i64(w, health->limit_ms);
        json_key(w, "ok");
        json_bool(w, false);
        json_key(w, "queue");
        json_str(w, health->queue);
        json_key(w, "staleMs");
        json_i64(w, health->stale_ms);
    }
    json_end_object(w);
}

static void put_placement(struct json_writer *w, const struct sink *s)
{
    const struct placement *p = &s->unit.placement;

    json_begin_object(w);
    json_key(w, "givingBack");
    if (p->handoff == HANDOFF_NONE)
        json_null(w);
    else
        json_str(w, buf_span(&p->giving_back));
    json_key(w, "held");
    json_u64(w, s->held);
    json_key(w, "nodes");
    json_u64(w, p->nodes);
    json_key(w, "queues");
    json_u64(w, p->queues);
    json_key(w, "share");
    json_u64(w, p->share);
    json_end_object(w);
}

static void put_memory(struct json_writer *w, const struct sink *s)
{
    json_begin_object(w);
    json_key(w, "bufferedBytes");
    json_u64(w, s->buffered);
    json_key(w, "limitBytes");
    json_u64(w, s->node->memory_mb << 20);
    json_end_object(w);
}

static const char *phase(const struct sink *s)
{
    return s->settings != NULL && s->unit.phase == UNIT_ENDED ? "stopped" : "running";
}

static void put_sink(struct json_writer *w, const struct sink *s, int64_t now)
{
    const struct sink_settings *set = s->settings;
    bool running = s->unit.phase != UNIT_ENDED;
    struct sink_health health;

    sink_health(s, now, &health);
    json_begin_object(w);
    json_key(w, "align");
    json_cstr(w, sink_align_name(set->align));
    json_key(w, "backoffMs");
    json_u64(w, 0);
    json_key(w, "bucket");
    put_bucket(w, s);
    json_key(w, "cluster");
    json_null(w);
    json_key(w, "compression");
    json_cstr(w, sink_compression_name(set->compression));
    json_key(w, "error");
    json_null(w);
    json_key(w, "format");
    json_cstr(w, sink_format_name(set->format));
    json_key(w, "health");
    put_health(w, &health);
    json_key(w, "instance");
    json_cstr(w, s->node->instance);
    json_key(w, "lastExit");
    json_null(w);
    json_key(w, "layout");
    json_cstr(w, sink_layout_name(set->layout));
    json_key(w, "memory");
    put_memory(w, s);
    json_key(w, "ok");
    json_bool(w, health.ok && s->bucket.reachable != 0);
    json_key(w, "phase");
    json_cstr(w, phase(s));
    json_key(w, "placement");
    put_placement(w, s);
    json_key(w, "queues");
    json_begin_array(w);
    for (size_t i = 0; i < s->n_slots; i++)
        put_queue(w, sink_task_row(s->slots[i]->task));
    json_end_array(w);
    json_key(w, "restarts");
    json_u64(w, 0);
    json_key(w, "running");
    json_bool(w, running);
    json_key(w, "sink");
    json_cstr(w, set->sink);
    json_key(w, "source");
    json_cstr(w, "env");
    json_key(w, "tenant");
    json_str(w, buf_span(&s->tenant_text));
    json_key(w, "uptimeMs");
    json_i64(w, running ? (now - s->started_us) / 1000 : 0);
    json_key(w, "version");
    json_cstr(w, SINK_VERSION);
    json_end_object(w);
}

/* Windows between intent and commit: each keeps its queue's records, a deleted queue's too (storage rule 8). */
static void put_pins(struct sink *s, struct buf *out)
{
    const struct pin **pins = NULL;
    struct json_writer w;
    struct state *state = node_read_begin(s->options.node);
    size_t n = state_pin_list(state, &pins);

    json_writer_init(&w, out);
    json_begin_array(&w);
    for (size_t i = 0; i < n; i++) {
        const struct queue *q = state_queue_by_id(state, pins[i]->queue_id);
        json_begin_object(&w);
        json_key(&w, "key");
        json_str(&w, pins[i]->key);
        json_key(&w, "queue");
        json_str(&w, q == NULL ? (struct span){0} : q->name);
        json_key(&w, "queueDeleted");
        json_bool(&w, q == NULL || q->dead);
        json_key(&w, "tEnd");
        put_iso(&w, true, pins[i]->t_end);
        json_key(&w, "tStart");
        put_iso(&w, true, pins[i]->t_start);
        json_end_object(&w);
    }
    json_end_array(&w);
    node_read_end(s->options.node);
    mem_free(pins);
}

void sink_status_put(struct sink *s, struct buf *out)
{
    struct json_writer w;
    int64_t now = sink_now(s);
    struct buf pins = BUF_INIT;

    put_pins(s, &pins); /* before the lock: it takes the state's */
    json_writer_init(&w, out);
    pthread_mutex_lock(&s->lock);
    json_begin_object(&w);
    json_key(&w, "controlPlane");
    json_begin_object(&w);
    json_key(&w, "error");
    json_null(&w);
    json_end_object(&w);
    json_key(&w, "mode");
    json_cstr(&w, "in-process");
    json_key(&w, "phase");
    json_cstr(&w, phase(s));
    json_key(&w, "pins");
    json_splice(&w, buf_span(&pins));
    json_key(&w, "sinks");
    json_begin_array(&w);
    if (s->settings != NULL)
        put_sink(&w, s, now);
    json_end_array(&w);
    json_key(&w, "threads");
    json_u64(&w, s->node->threads);
    json_end_object(&w);
    pthread_mutex_unlock(&s->lock);
    buf_deinit(&pins);
}
