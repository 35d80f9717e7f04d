/* `queen push <queue> [--partition P] [--url URL] [JSON]`
 *
 * What starts with "--", or with "-" before the queue is named, is an option; -5 behind it is JSON.
 * Pushes one JSON text given as argument, or each line of standard input (blank ones skipped), in
 * batches. A line that is not JSON ends it before its batch is sent; what was sent before stays. */
#include "app/push.h"

#include "app/client.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "json/json.h"

#include <sys/types.h>

#define BATCH_ITEMS 1000u
#define BATCH_BYTES (4u * 1024 * 1024)

struct push {
    const char *queue, *partition, *url;
    const char *text; /* NULL: standard input */
    struct client *client;
    struct buf body, answer;
    uint64_t batched, queued, duplicates;
};

static void put_usage(FILE *to)
{
    fprintf(to, "usage: queen push <queue> [--partition P] [--url http://host:port] [JSON]\n"
                "Without JSON each line of standard input is one record. Without --url the broker "
                "is on this machine,\nat PORT (default 6632).\n");
}

static bool is_help(const char *argument)
{
    return strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0;
}

/* NULL when the arguments are good. *at: what the text is about; NULL for all of them. */
static const char *parse_arguments(struct push *p, int n, char **arguments, const char **at)
{
    for (int i = 0; i < n; i++) {
        const char **option = strcmp(arguments[i], "--partition") == 0 ? &p->partition
                              : strcmp(arguments[i], "--url") == 0     ? &p->url
                                                                       : NULL;
        *at = arguments[i];
        if (option != NULL) {
            if (++i == n)
                return "is not followed by its value";
            *option = arguments[i];
        } else if (arguments[i][0] == '-' && (arguments[i][1] == '-' || p->queue == NULL)) {
            return "is no option";
        } else if (p->queue == NULL) {
            p->queue = arguments[i];
        } else if (p->text == NULL) {
            p->text = arguments[i];
        } else {
            return "is one argument too many (quote the JSON)";
        }
    }
    *at = NULL;
    if (p->queue == NULL || p->queue[0] == 0)
        return "no queue given";
    if (!utf8_valid(span_str(p->queue)) ||
        (p->partition != NULL && !utf8_valid(span_str(p->partition))))
        return "names must be UTF-8";
    return NULL;
}

/* Counts the statuses of one answer: [{"index":0,...,"status":"queued","offset":0}, ...] */
static enum err count_answer(struct push *p, struct error *error)
{
    struct json_reader r;
    bool more = true, more_keys = true;
    json_reader_init(&r, buf_span(&p->answer), 16);
    enum err err = json_enter_array(&r);
    while (err == ERR_OK && (err = json_next_element(&r, &more)) == ERR_OK && more) {
        err = json_enter_object(&r);
        struct json_raw key, value;
        while (err == ERR_OK && (err = json_next_key(&r, &key, &more_keys)) == ERR_OK &&
               more_keys) {
            err = json_take(&r, &value);
            if (err != ERR_OK || !json_string_is(key.text, SPAN_LIT("status")))
                continue;
            p->queued += json_string_is(value.text, SPAN_LIT("queued"));
            p->duplicates += json_string_is(value.text, SPAN_LIT("duplicate"));
        }
    }
    return err == ERR_OK ? ERR_OK : error_set(error, err, "the answer is not what a push answers");
}

static enum err send_batch(struct push *p, struct error *error)
{
    unsigned status = 0;
    if (p->batched == 0)
        return ERR_OK;
    buf_puts(&p->body, "]}");
    TRY(client_post(p->client, "/api/v1/push", buf_span(&p->body), &status, &p->answer, error));
    if (status != 201)
        return error_set(error, ERR_IO, "the broker answered %u: " SPAN_FMT, status,
                         SPAN_ARG(buf_span(&p->answer)));
    buf_reset(&p->body);
    p->batched = 0;
    return count_answer(p, error);
}

static enum err add_record(struct push *p, struct span payload, struct error *error)
{
    buf_puts(&p->body, p->batched == 0 ? "{\"items\":[{\"queue\":" : ",{\"queue\":");
    json_put_string(&p->body, span_str(p->queue));
    if (p->partition != NULL) {
        buf_puts(&p->body, ",\"partition\":");
        json_put_string(&p->body, span_str(p->partition));
    }
    buf_puts(&p->body, ",\"payload\":");
    buf_put_span(&p->body, payload);
    buf_putc(&p->body, '}');
    p->batched++;
    return p->batched == BATCH_ITEMS || p->body.len >= BATCH_BYTES ? send_batch(p, error) : ERR_OK;
}

static enum err push_lines(struct push *p, struct error *error)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    enum err err = ERR_OK;
    for (uint64_t number = 1; err == ERR_OK && (len = getline(&line, &cap, stdin)) >= 0; number++) {
        struct span text = span_trim(span_make(line, (size_t)len));
        if (text.len == 0)
            continue;
        if (!json_valid(text, JSON_DEPTH_MAX, NULL))
            err =
                error_set(error, ERR_INVALID, "line %llu is not JSON", (unsigned long long)number);
        else
            err = add_record(p, text, error);
    }
    free(line);
    return err == ERR_OK ? send_batch(p, error) : err;
}

static enum err push_text(struct push *p, struct error *error)
{
    struct span text = span_trim(span_str(p->text));
    if (!json_valid(text, JSON_DEPTH_MAX, NULL))
        return error_set(error, ERR_INVALID, "the argument is not JSON");
    TRY(add_record(p, text, error));
    return send_batch(p, error);
}

int push_command(int n, char **arguments, const char *default_port)
{
    struct push p = {0};
    struct error error = {0};
    struct buf url = BUF_INIT;
    const char *at = NULL;
    for (int i = 0; i < n; i++) {
        if (is_help(arguments[i])) {
            put_usage(stdout);
            return 0;
        }
    }
    const char *why = parse_arguments(&p, n, arguments, &at);
    if (why != NULL) {
        fprintf(stderr, "queen push: %s%s%s\n", at != NULL ? at : "", at != NULL ? " " : "", why);
        put_usage(stderr);
        return 2;
    }
    buf_puts(&url, p.url != NULL ? p.url : "http://127.0.0.1:");
    if (p.url == NULL)
        buf_puts(&url, default_port);
    enum err err = client_open(buf_span(&url), &p.client, &error);
    if (err == ERR_OK)
        err = p.text != NULL ? push_text(&p, &error) : push_lines(&p, &error);
    printf("pushed %llu record%s to %s", (unsigned long long)p.queued, p.queued == 1 ? "" : "s",
           p.queue);
    if (p.duplicates > 0)
        printf(" (%llu more were there already)", (unsigned long long)p.duplicates);
    printf("\n");
    if (err != ERR_OK)
        fprintf(stderr, "queen push: %s\n", error.text);
    client_close(p.client);
    buf_deinit(&p.body);
    buf_deinit(&p.answer);
    buf_deinit(&url);
    return err == ERR_OK ? 0 : 1;
}
