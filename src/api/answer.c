/* Error codes to HTTP statuses and bodies: the only place that maps them (spec/broker-api.md 1.5,
 * spec/kv.md 6). */
#include "api/internal.h"

#include "base/utf8.h"

#define SMALL_MAX 65536u

static void put_text(struct buf *out, const char *text)
{
    struct buf valid = BUF_INIT; /* a message cut to fit may end inside a character */
    buf_put_utf8_lossy(&valid, span_str(text));
    buf_put_json_string(out, buf_span(&valid));
    buf_deinit(&valid);
}

void answer_json(struct http_request *http, unsigned status, struct buf *body)
{
    http_respond(http, &(struct http_answer){.status = status}, body);
}

size_t answer_room(const struct http_request *http, size_t max)
{
    size_t room = http_answer_room(http);
    if (room > max)
        return max;
    return room > SMALL_MAX ? room : SMALL_MAX;
}

bool answer_has_room(const struct http_request *http, const struct buf *body)
{
    return body->len <= SMALL_MAX || http_answer_room(http) > 0;
}

static void answer_error_retry(struct http_request *http, unsigned status, const char *code,
                               const char *text, int retry_after)
{
    struct buf body = BUF_INIT;
    buf_puts(&body, "{\"error\":");
    put_text(&body, text);
    if (code != NULL) {
        buf_puts(&body, ",\"code\":\"");
        buf_puts(&body, code);
        buf_putc(&body, '"');
    }
    buf_putc(&body, '}');
    http_respond(http, &(struct http_answer){.status = status, .retry_after = retry_after}, &body);
}

void answer_error(struct http_request *http, unsigned status, const char *code, const char *text)
{
    answer_error_retry(http, status, code, text, status == 503 ? 1 : 0);
}

void answer_refusal(struct http_request *http, const struct refusal *refusal)
{
    answer_error(http, refusal->status, refusal->code, refusal->text);
}

void answer_query_refusal(struct http_request *http, const struct refusal *refusal)
{
    struct buf body = BUF_INIT;
    buf_puts(&body, refusal->text);
    buf_putc(&body, '\n');
    http_respond(http,
                 &(struct http_answer){.status = refusal->status,
                                       .content_type = "text/plain; charset=utf-8"},
                 &body);
}

void answer_timeout(struct http_request *http)
{
    answer_error(http, 503, "timeout", "the deadline elapsed before the outcome was known");
}

void answer_overloaded(struct api *a, struct http_request *http)
{
    answer_error_retry(http, 429, "overloaded", "too much is in flight on this node",
                       1 + (int)(entropy_u64(a->options.entropy) % 5));
}

struct err_row {
    enum err err;
    unsigned status;
    const char *code, *text;
};

void answer_err(struct http_request *http, enum err err)
{
    static const struct err_row table[] = {
        {ERR_STORAGE_FULL, 507, "storage_full", "storage is full: writes that grow it are refused"},
        {ERR_NO_SPACE, 507, "storage_full", "storage is full: writes that grow it are refused"},
        {ERR_STOPPED, 503, "retry", "this node is stopped or stopping"},
        {ERR_AGAIN, 503, "retry", "try again"},
        {ERR_TOO_LARGE, 400, "too_large",
         "the command is larger than QUEEN_RAFT_ENTRY_MAX_BYTES allows"},
    };
    if (err == ERR_TIMEOUT) {
        answer_timeout(http);
        return;
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (table[i].err == err) {
            answer_error(http, table[i].status, table[i].code, table[i].text);
            return;
        }
    }
    answer_error(http, 500, "internal", err_text(err));
}

static void answer_kv(struct http_request *http, unsigned status, const char *kind,
                      const char *reason, const char *text)
{
    struct buf body = BUF_INIT;
    struct json_writer w;
    json_writer_init(&w, &body);
    json_begin_object(&w);
    json_key(&w, "error");
    json_cstr(&w, kind);
    json_key(&w, "reason");
    json_cstr(&w, reason);
    json_key(&w, "detail");
    struct buf detail = BUF_INIT;
    put_text(&detail, text);
    json_splice(&w, buf_span(&detail));
    buf_deinit(&detail);
    json_end_object(&w);
    http_respond(
        http, &(struct http_answer){.status = status, .retry_after = status == 503 ? 1 : 0}, &body);
}

void answer_kv_refusal(struct http_request *http, const struct refusal *refusal)
{
    answer_kv(http, refusal->status, refusal->code, refusal->reason, refusal->text);
}

void answer_kv_err(struct http_request *http, enum err err)
{
    switch ((int)err) {
    case ERR_TIMEOUT:
        answer_kv(http, 503, "kv_unavailable", "kv_timeout",
                  "the deadline elapsed before the outcome was known");
        break;
    case ERR_STOPPED:
        answer_kv(http, 503, "kv_unavailable", "kv_retry", "this node is stopped or stopping");
        break;
    case ERR_AGAIN:
        answer_kv(http, 503, "kv_unavailable", "kv_retry", "try again");
        break;
    case ERR_STORAGE_FULL:
    case ERR_NO_SPACE:
    case ERR_OVERLOADED:
        answer_err(http, err);
        break;
    case ERR_TOO_LARGE:
        answer_kv(http, 413, "payload_too_large", "kv_value_too_large",
                  "the call is larger than QUEEN_RAFT_ENTRY_MAX_BYTES allows");
        break;
    default:
        answer_kv(http, 500, "kv_error", "kv_error", err_text(err));
    }
}
