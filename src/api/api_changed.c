/* POST /api/v1/partitions/changed (spec/broker-api.md 5): which partitions of a queue were written,
 * and the safe clock, which is read before any row.
 *
 * Partitions of a queue stand in creation order, which is the order of their ids; a cursor is the
 * queue's id and the last partition's. A queue may have a million partitions and `since` may keep
 * none of them, so the read lock is given back after every STEP rows.
 *
 * The answer is built in memory. Past ANSWER_MAX a page counts as full, however many rows it has: its
 * `next` goes on from there. */
#include "api/internal.h"

#include "base/mem.h"
#include "base/timefmt.h"

#define STEP 4096u
#define ANSWER_MAX (32u * 1024 * 1024) /* 1024 queues with pages of 1,000 rows would be 250 MiB */

struct changed {
    struct api_read read; /* first: freed through it */
    struct changed_request request;
};

static void changed_free(struct api_read *r)
{
    struct changed *c = (struct changed *)r;
    changed_request_deinit(&c->request);
    mem_free(c);
}

/* Index of the first partition with an id above `id`. */
static size_t first_after(const struct queue *q, uint64_t id)
{
    size_t low = 0, high = q->partition_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (q->partitions[mid]->id > id)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static void put_partition(struct buf *out, const struct partition *p, bool first)
{
    buf_puts(out, first ? "{\"name\":" : ",{\"name\":");
    buf_put_json_string(out, p->name);
    buf_puts(out, ",\"id\":\"");
    buf_put_uuid(out, &p->uuid);
    buf_puts(out, "\",\"lastOffset\":");
    buf_put_i64(out, (int64_t)p->next_offset - 1);
    buf_puts(out, ",\"logStart\":");
    buf_put_u64(out, p->log_start);
    buf_puts(out, ",\"lastWriteAt\":");
    if (p->last_write_at == 0) {
        buf_puts(out, "null}");
        return;
    }
    buf_putc(out, '"');
    buf_put_iso_us(out, p->last_write_at);
    buf_puts(out, "\"}");
}

struct page {
    uint64_t last; /* id of the last partition looked at */
    uint32_t rows;
    bool full;
    bool end;
};

/* At most STEP partitions behind page->last, in `room` bytes. Read lock held. */
static void walk_step(struct buf *out, const struct queue *q, const struct changed_entry *e,
                      size_t room, struct page *page)
{
    size_t at = first_after(q, page->last);
    size_t stop = q->partition_count - at > STEP ? at + STEP : q->partition_count;
    for (; at < stop && !page->full; at++) {
        if (out->len >= room) {
            page->full = true;
            break;
        }
        const struct partition *p = q->partitions[at];
        page->last = p->id;
        if (e->has_since && p->last_write_at < e->since)
            continue;
        put_partition(out, p, page->rows == 0);
        page->full = ++page->rows == e->limit;
    }
    page->end = page->full || at == q->partition_count;
}

static void put_error(struct buf *out, const struct changed_entry *e, const char *error)
{
    buf_puts(out, "{\"queue\":");
    buf_put_json_string(out, e->queue);
    buf_puts(out, ",\"error\":\"");
    buf_puts(out, error);
    buf_puts(out, "\"}");
}

static void put_page(struct buf *out, const struct changed_entry *e, uint64_t queue_id,
                     struct span rows, const struct page *page)
{
    buf_puts(out, "{\"queue\":");
    buf_put_json_string(out, e->queue);
    buf_puts(out, ",\"partitions\":[");
    buf_put_span(out, rows);
    buf_puts(out, "],\"next\":");
    if (page->full) {
        buf_putc(out, '"');
        changed_cursor_put(out, queue_id, page->last);
        buf_puts(out, "\"}");
    } else {
        buf_puts(out, "null}");
    }
}

static void put_entry(struct changed *c, const struct changed_entry *e, struct buf *body)
{
    struct node *node = c->read.api->options.node;
    struct buf rows = BUF_INIT;
    struct page page = {.last = e->cursor == CURSOR_AFTER ? e->cursor_partition : 0};
    uint64_t queue_id = 0;
    const char *error = NULL;
    size_t room = body->len < ANSWER_MAX ? ANSWER_MAX - body->len : 0;
    while (!page.end && error == NULL) {
        struct state *s = node_read_begin(node);
        struct queue *q = state_queue_find(s, &TENANT_DEFAULT, e->queue);
        if (queue_id == 0 && q != NULL)
            queue_id = q->id;
        if (q == NULL || q->id != queue_id) /* missing, or replaced since the last step */
            error = "UNKNOWN_TOPIC_OR_PARTITION";
        else if (e->cursor == CURSOR_BAD || (e->cursor == CURSOR_AFTER && e->cursor_queue != q->id))
            error = "BAD_CURSOR";
        else
            walk_step(&rows, q, e, room, &page);
        node_read_end(node);
    }
    if (error != NULL)
        put_error(body, e, error);
    else
        put_page(body, e, queue_id, buf_span(&rows), &page);
    buf_deinit(&rows);
}

static enum err build_changed(struct api_read *r, struct buf *body)
{
    struct changed *c = (struct changed *)r;
    int64_t safe_time = node_safe_time(r->api->options.node);
    buf_puts(body, "{\"safeTime\":\"");
    buf_put_iso_us(body, safe_time);
    buf_puts(body, "\",\"safeTimeDegraded\":false,\"entries\":[");
    for (size_t i = 0; i < c->request.n; i++) {
        if (read_is_late(r))
            return ERR_TIMEOUT;
        if (i > 0)
            buf_putc(body, ',');
        put_entry(c, &c->request.entries[i], body);
    }
    buf_puts(body, "]}");
    return ERR_OK;
}

void api_changed(struct api *a, struct http_request *http, struct span rest)
{
    (void)rest;
    struct changed *c = mem_new(sizeof(*c));
    struct refusal refusal;
    c->read =
        (struct api_read){.api = a, .http = http, .build = build_changed, .free = changed_free};
    if (changed_request_parse(http_request_body(http), &c->request, &refusal) != ERR_OK) {
        changed_free(&c->read);
        answer_refusal(http, &refusal);
        return;
    }
    read_start(&c->read);
}
