/* POST /api/v1/fetch (spec/broker-api.md 4): reads of the applied state and the queue logs on a
 * reader thread, again and again while the request waits.
 *
 * One run: look the entries up under the read lock; when the request may wait, watch their queues
 * and look again, so that nothing that is appended after the look goes unnoticed; read the records
 * outside the lock (a reference keeps each log); answer, or park until an append, at least once a
 * second, and at the deadline.
 *
 * Payloads are spliced as they were pushed. The whole answer is built in memory, so it has a
 * ceiling: fetch_request.total_max, and what answers together may take (http_answer_room()). Entries
 * past it come back empty with their real watermarks. */
#include "api/internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/timefmt.h"

#define REREAD_US 1000000
#define ANSWER_MAX (96u * 1024 * 1024)

struct fetch {
    struct waiter waiter;
    struct http_request *http;
    struct fetch_request request;
    struct fetch_look *looks; /* one per entry */
    uint64_t *ids;            /* queues to watch; room for one per entry */
    int64_t deadline_us;      /* of the waiting; 0: it does not wait */
    int64_t late_us;          /* from here on nobody waits for the answer */
};

/* Where an entry stands in the applied state. */
struct fetch_look {
    bool unknown_queue, out_of_range;
    uint64_t queue_id, partition_id; /* partition 0: there is none */
    uint64_t high_watermark, log_start;
};

/* One run's reading. */
struct pass {
    struct fetch *fetch;
    struct buf body;
    struct qlog_run_data data;
    uint64_t log_queue; /* whose log is referenced; 0 = none */
    struct qlog *log;
    uint64_t weight; /* of all records taken so far */
    size_t room;     /* of the answer, for all bytes of it; its first record always goes */
    bool error;      /* an entry has one */
    bool cut;        /* an entry stopped at a limit: waiting would not bring more */
    enum err err;
    struct error why;
};

static void fetch_free(struct fetch *f)
{
    fetch_request_deinit(&f->request);
    mem_free(f->looks);
    mem_free(f->ids);
    mem_free(f);
}

/* --- looking ------------------------------------------------------------------------------------
 */

static void look_up_entry(struct state *s, const struct fetch_entry *e, struct fetch_look *look)
{
    *look = (struct fetch_look){0};
    struct queue *q = state_queue_find(s, &TENANT_DEFAULT, e->queue);
    if (q == NULL) {
        look->unknown_queue = true;
        return;
    }
    look->queue_id = q->id;
    struct partition *p = state_partition_find(s, q, e->partition);
    if (p == NULL)
        return;
    look->partition_id = p->id;
    look->high_watermark = p->next_offset;
    look->log_start = p->log_start;
    look->out_of_range = e->offset < p->log_start || e->offset > p->next_offset;
}

static void look_up(struct fetch *f)
{
    struct node *node = f->waiter.api->options.node;
    struct state *s = node_read_begin(node);
    for (size_t i = 0; i < f->request.n; i++)
        look_up_entry(s, &f->request.entries[i], &f->looks[i]);
    node_read_end(node);
}

/* True: it watches other queues than before, so the state is to be looked at again. */
static bool watch(struct fetch *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->request.n; i++) {
        uint64_t id = f->looks[i].queue_id;
        if (id != 0 && (n == 0 || f->ids[n - 1] != id))
            f->ids[n++] = id;
    }
    return waiter_watch(&f->waiter, f->ids, n);
}

/* --- reading ------------------------------------------------------------------------------------
 */

static bool log_of(struct pass *p, uint64_t queue_id)
{
    struct node *node = p->fetch->waiter.api->options.node;
    if (p->log_queue == queue_id && p->log != NULL)
        return true;
    if (p->log != NULL)
        node_log_unref(node, p->log);
    p->log_queue = queue_id;
    p->log = node_log_ref(node, queue_id);
    return p->log != NULL;
}

static void put_record(struct buf *out, uint64_t offset, const struct qlog_record *record,
                       struct span ts, bool first)
{
    buf_puts(out, first ? "{\"offset\":" : ",{\"offset\":");
    buf_put_u64(out, offset);
    buf_puts(out, ",\"transactionId\":");
    buf_put_json_string(out, record->transaction_id);
    buf_puts(out, ",\"payload\":");
    if (record->payload.len == 0)
        buf_puts(out, "null");
    else
        buf_put_span(out, record->payload);
    buf_puts(out, ",\"ts\":\"");
    buf_put_span(out, ts);
    buf_puts(out, "\"}");
}

/* How far one entry has come. */
struct progress {
    uint64_t next; /* offset */
    uint64_t weight;
    size_t records;
    bool full;
};

/* The limits of the entry and of the call, and the rule that the first record always goes. */
static bool fits(const struct pass *p, const struct fetch_entry *e, const struct progress *at,
                 uint64_t weight)
{
    if (at->records == FETCH_RECORDS_MAX)
        return false;
    if (at->records > 0 && at->weight + weight > e->max_bytes)
        return false;
    return p->weight == 0 ||
           (p->weight + weight <= p->fetch->request.total_max && p->body.len + weight <= p->room);
}

/* Takes what fits of the run in p->data. */
static void take_run(struct pass *p, const struct fetch_entry *e, const struct fetch_look *look,
                     struct progress *at)
{
    const struct qlog_run_head *head = &p->data.head;
    uint8_t space[32];
    struct buf ts = {.ptr = space, .cap = sizeof(space)}; /* 27 bytes: never grows */
    buf_put_iso_us(&ts, head->stamp);
    uint64_t i = at->next > head->first_offset ? at->next - head->first_offset : 0;
    for (; i < head->count && head->first_offset + i < look->high_watermark; i++) {
        const struct qlog_record *record = &p->data.records[i];
        uint64_t weight = record->payload.len == 0 ? 1 : record->payload.len;
        if (!fits(p, e, at, weight)) {
            at->full = true;
            break;
        }
        put_record(&p->body, head->first_offset + i, record, buf_span(&ts), at->records == 0);
        at->records++;
        at->weight += weight;
        p->weight += weight;
    }
    at->next = head->first_offset + i;
}

static enum err read_records(struct pass *p, const struct fetch_entry *e,
                             const struct fetch_look *look)
{
    struct progress at = {.next = e->offset};
    if (!fits(p, e, &at, 1)) { /* the call is full: do not read for nothing */
        p->cut = true;
        return ERR_OK;
    }
    while (at.next < look->high_watermark && !at.full) {
        uint64_t position;
        enum err err = qlog_find(p->log, look->partition_id, at.next, &position, &p->why);
        if (err == ERR_NOT_FOUND) /* retention was here meanwhile */
            return ERR_OK;
        TRY(err);
        TRY(qlog_read(p->log, position, &p->data, &p->why));
        uint64_t before = at.next;
        take_run(p, e, look, &at);
        if (at.next <= before && !at.full)
            return error_set(&p->why, ERR_CORRUPT, "run at %llu of queue %llu goes back",
                             (unsigned long long)position, (unsigned long long)look->queue_id);
    }
    p->cut = p->cut || at.full;
    return ERR_OK;
}

static void put_entry(struct pass *p, size_t index)
{
    const struct fetch_entry *e = &p->fetch->request.entries[index];
    struct fetch_look *look = &p->fetch->looks[index];
    buf_puts(&p->body, index > 0 ? ",{\"queue\":" : "{\"queue\":");
    buf_put_json_string(&p->body, e->queue);
    buf_puts(&p->body, ",\"partition\":");
    buf_put_json_string(&p->body, e->partition);
    buf_puts(&p->body, ",\"records\":[");
    if (look->partition_id != 0 && !look->out_of_range && e->offset < look->high_watermark) {
        if (log_of(p, look->queue_id))
            p->err = read_records(p, e, look);
        else
            *look = (struct fetch_look){.unknown_queue = true}; /* deleted since the look */
    }
    buf_puts(&p->body, "],\"highWatermark\":");
    buf_put_u64(&p->body, look->high_watermark);
    buf_puts(&p->body, ",\"logStartOffset\":");
    buf_put_u64(&p->body, look->log_start);
    if (look->unknown_queue)
        buf_puts(&p->body, ",\"error\":\"UNKNOWN_TOPIC_OR_PARTITION\"");
    else if (look->out_of_range)
        buf_puts(&p->body, ",\"error\":\"OFFSET_OUT_OF_RANGE\"");
    p->error = p->error || look->unknown_queue || look->out_of_range;
    buf_putc(&p->body, '}');
}

static void read_all(struct pass *p)
{
    buf_puts(&p->body, "{\"entries\":[");
    for (size_t i = 0; i < p->fetch->request.n && p->err == ERR_OK; i++)
        put_entry(p, i);
    buf_puts(&p->body, "]}");
}

static void pass_deinit(struct pass *p)
{
    if (p->log != NULL)
        node_log_unref(p->fetch->waiter.api->options.node, p->log);
    qlog_run_data_deinit(&p->data);
    buf_deinit(&p->body);
}

/* --- a run --------------------------------------------------------------------------------------
 */

static void finish(struct fetch *f, struct pass *p)
{
    struct api *a = f->waiter.api;
    if (p->err == ERR_OK && !answer_has_room(f->http, &p->body)) {
        answer_overloaded(a, f->http);
    } else if (p->err == ERR_TIMEOUT) {
        answer_timeout(f->http);
    } else if (p->err != ERR_OK) {
        if (p->err == ERR_CORRUPT ||
            p->err == ERR_IO) /* the disk's word is not to be trusted any more */
            node_damaged(a->options.node, &p->why);
        log_msg(LOG_ERROR, "api", "fetch failed: %s", p->why.text);
        answer_error(f->http, 500, "internal", p->why.text);
    } else {
        answer_json(f->http, 200, &p->body);
    }
    pass_deinit(p);
    waiter_deinit(&f->waiter);
    fetch_free(f);
    atomic_fetch_sub(&a->outstanding, 1);
}

static bool goes_on_waiting(const struct fetch *f, const struct pass *p, int64_t now)
{
    return p->err == ERR_OK && !p->error && !p->cut && p->weight < f->request.min_bytes &&
           now < f->deadline_us && !atomic_load(&f->waiter.api->draining) &&
           !http_request_client_gone(f->http);
}

static void run_fetch(struct waiter *w)
{
    struct fetch *f = (struct fetch *)w;
    struct api *a = w->api;
    if (f->deadline_us != 0 && w->links != NULL)
        atomic_fetch_sub(&a->parked, 1);
    look_up(f);
    if (f->deadline_us != 0 && watch(f))
        look_up(f);
    struct pass p = {.fetch = f};
    p.room = answer_room(f->http, ANSWER_MAX);
    if (clock_mono_us(a->options.clock) >= f->late_us) /* it stood in line for that long */
        p.err = ERR_TIMEOUT;
    else
        read_all(&p);
    int64_t now = clock_mono_us(a->options.clock);
    if (f->deadline_us == 0 || !goes_on_waiting(f, &p, now)) {
        finish(f, &p);
        return;
    }
    pass_deinit(&p);
    atomic_fetch_add(&a->parked, 1);
    waiter_park(w, now + REREAD_US < f->deadline_us ? now + REREAD_US : f->deadline_us);
}

void api_fetch(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct fetch *f = mem_new(sizeof(*f));
    struct refusal refusal;
    waiter_init(&f->waiter, a, run_fetch);
    f->http = http;
    if (fetch_request_parse(http_request_body(http), &f->request, &refusal) != ERR_OK) {
        fetch_free(f);
        answer_refusal(http, &refusal);
        return;
    }
    if (node_is_behind(a->options.node)) {
        fetch_free(f);
        answer_err(http, ERR_AGAIN);
        return;
    }
    f->looks = MEM_ARRAY(struct fetch_look, f->request.n + 1);
    f->ids = MEM_ARRAY(uint64_t, f->request.n + 1);
    int64_t now = clock_mono_us(a->options.clock), wait_us = f->request.max_wait_ms * 1000;
    if (wait_us > 0 && f->request.min_bytes > 0)
        f->deadline_us = now + wait_us;
    f->late_us = now + wait_us + (int64_t)a->options.request_timeout_ms * 1000;
    atomic_fetch_add(&a->outstanding, 1);
    waiter_submit(&f->waiter);
}
