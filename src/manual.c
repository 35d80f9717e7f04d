/* What the program prints of itself. docs/ is made from it: scripts/docs. */
#include "manual.h"

#include "api/api.h"
#include "base/buf.h"
#include "config/config.h"
#include "sink/settings_table.h"
#include "status/families.h"

#include <stdio.h>

static void print(const struct buf *text)
{
    (void)fwrite(text->ptr, 1, text->len, stdout);
}

static void put_sink_help(struct buf *out)
{
    for (unsigned id = 0; id < SETTING_COUNT; id++) {
        const struct setting *row = setting_row((enum setting_id)id);
        buf_printf(out, "  %-32s %s", row->variable, row->what);
        if (row->fallback_text != NULL)
            buf_printf(out, " [%s]", row->fallback_text);
        else if (row->kind == KIND_INT)
            buf_printf(out, " [%llu]", (unsigned long long)row->fallback);
        buf_putc(out, '\n');
    }
}

int manual_help(void)
{
    struct buf text = BUF_INIT;
    buf_puts(
        &text,
        "queen " QUEEN_VERSION ": a message broker with an exactly-once S3 sink inside\n\n"
        "  queen                     run the broker; every setting is an environment variable\n"
        "  queen push <queue> ...    push JSON lines, from standard input or one argument\n"
        "  queen check-config        read the settings, print them, refuse what the broker "
        "would refuse\n"
        "  queen --help | --version\n\n"
        "Settings, with their [default]; more about them in docs/settings.md:\n\n");
    config_help_put(&text);
    buf_puts(&text, "\nOf the sink, read when QUEEN_S3_EMBEDDED is true [false]:\n\n");
    put_sink_help(&text);
    print(&text);
    buf_deinit(&text);
    return 0;
}

int manual_settings(void)
{
    struct buf text = BUF_INIT;
    buf_puts(&text,
             "# Settings\n\n"
             "Environment variables, read once at boot. `queen check-config` reads them as the "
             "broker would, prints what\nthey come to, and says what it would refuse. (Generated: "
             "`make docs`.)\n\n");
    config_doc_put(&text);
    buf_puts(
        &text,
        "\n## The sink\n\n"
        "Read only when `QUEEN_S3_EMBEDDED` is true, the switch of the sink on this node "
        "[`false`]. Strict: a value that is not\naccepted, and a required one that is missing, "
        "stop the boot. Values are trimmed, a blank one counts as unset, the\ncase of words "
        "does not matter; other spellings of a value stand in brackets. Checked in this order: "
        "the node-wide ones\nas below, then queues, sink, key segment, quoting, partitions, "
        "endpoint, region, bucket, prefix, access key, path style,\nencryption, format to "
        "window as below, secret key.\n\n"
        "`QUEEN_S3_QUEUES` turns the sink on; without it none of the others of a sink may be "
        "set. Required then are also the\nendpoint and the bucket and, unless the endpoint is "
        "a folder, the region and both keys. `QUEEN_S3_LISTEN` and\n`QUEEN_S3_LOG_FORMAT`, of "
        "the standalone sink, are named in one warning and ignored.\n\n");
    setting_put_docs(&text);
    print(&text);
    buf_deinit(&text);
    return 0;
}

int manual_api(void)
{
    struct buf text = BUF_INIT;
    api_doc_put(&text);
    print(&text);
    buf_deinit(&text);
    return 0;
}

int manual_metrics(void)
{
    struct buf text = BUF_INIT;
    metrics_doc_put(&text);
    print(&text);
    buf_deinit(&text);
    return 0;
}

int manual_version(void)
{
    printf("queen " QUEEN_VERSION "\n");
    return 0;
}
