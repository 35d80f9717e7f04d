/* JSONL lines (objects.md 4, decisions.md 1 and 4).
 *
 * A payload is looked at once as JSON (grammar, UTF-8, depth, lone surrogates), then copied with
 * its line breaks turned into spaces. What readers of a lake choke on becomes a JSON string of the
 * stored text: nothing is replaced in it, so parsing the string gives the text back.
 *
 * Names of records come from the broker, which takes valid UTF-8 only; a line must stay a line
 * whatever was stored, so they are checked here too. */
#include "sink/lake_internal.h"

#include "base/timefmt.h"
#include "base/utf8.h"
#include "json/json.h"

#define READERS_DEPTH_MAX 500 /* decisions.md 1: Spark drops records from 1,000 on, silently */

static void put_text(struct buf *out, struct span text)
{
    if (utf8_valid(text)) {
        buf_put_json_string(out, text);
        return;
    }
    struct buf lossy = BUF_INIT;
    buf_put_utf8_lossy(&lossy, text);
    buf_put_json_string(out, buf_span(&lossy));
    buf_deinit(&lossy);
}

/* Copies JSON text, every raw \n and \r as one space. Inside JSON they only stand between tokens.
 */
static void put_one_line(struct buf *out, struct span json)
{
    uint8_t *to = buf_extend(out, json.len);
    memcpy(to, json.ptr, json.len);
    for (const char *breaks = "\n\r"; *breaks != '\0'; breaks++) {
        uint8_t *at = to;
        size_t left = json.len;
        while (left > 0 && (at = memchr(at, *breaks, left)) != NULL) {
            *at++ = ' ';
            left = json.len - (size_t)(at - to);
        }
    }
}

static void put_payload(struct buf *out, const struct lake_record *r, bool raw, bool *quoted_out)
{
    struct json_raw json;
    *quoted_out = false;
    if (r->payload.len == 0) {
        buf_puts(out, "null");
    } else if (r->undecryptable || !json_valid(r->payload, JSON_DEPTH_MAX, &json)) {
        put_text(out, r->payload);
    } else if (!raw && (json.lone_surrogate || json.depth > READERS_DEPTH_MAX)) {
        put_text(out, r->payload);
        *quoted_out = true;
    } else {
        put_one_line(out, json.text);
    }
}

void lake_line_parts_set(struct lake_line_parts *p, struct span partition, int64_t stamp)
{
    buf_reset(&p->head);
    buf_puts(&p->head, "{\"partition\":");
    put_text(&p->head, partition);
    buf_puts(&p->head, ",\"offset\":");
    buf_reset(&p->ts);
    buf_puts(&p->ts, ",\"ts\":\"");
    buf_put_iso_us(&p->ts, stamp);
    buf_puts(&p->ts, "\",\"payload\":");
}

void lake_line_parts_deinit(struct lake_line_parts *p)
{
    buf_deinit(&p->head);
    buf_deinit(&p->ts);
}

void lake_line_put(struct buf *out, const struct lake_line_parts *p, const struct lake_record *r,
                   bool raw, bool *quoted_out)
{
    buf_put_span(out, buf_span(&p->head));
    buf_put_u64(out, r->offset);
    buf_puts(out, ",\"transactionId\":");
    put_text(out, r->transaction_id);
    buf_put_span(out, buf_span(&p->ts));
    put_payload(out, r, raw, quoted_out);
    buf_puts(out, "}\n");
}

void lake_jsonl_line(struct buf *out, const struct lake_record *r, bool raw, bool *quoted_out)
{
    struct lake_line_parts parts = {0};
    lake_line_parts_set(&parts, r->partition, r->stamp);
    lake_line_put(out, &parts, r, raw, quoted_out);
    lake_line_parts_deinit(&parts);
}
