/* The table of metrics: what Prometheus asks of names holds for every row. */
#include "status/families.h"

#include "lib/test.h"

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

TEST(every_row_is_filled_in_and_follows_the_rules_of_names)
{
    for (enum metric_id id = 0; id < FAMILY_COUNT; id++) {
        const struct metric_family *f = metric_family(id);
        CHECK(f->name != NULL && f->help != NULL); /* a hole in the table */
        CHECK(strncmp(f->name, "queen_", 6) == 0);
        CHECK_EQ(strncmp(f->name, "queen_s3_", 9) == 0, id >= FAMILY_SINK_FIRST);
        CHECK_EQ(ends_with(f->name, "_total"), f->type == METRIC_COUNTER);
        CHECK(!ends_with(f->name, "_bucket") && !ends_with(f->name, "_sum") &&
              !ends_with(f->name, "_count"));
        CHECK(ends_with(f->help, "."));
        for (enum metric_id other = 0; other < id; other++)
            CHECK(strcmp(f->name, metric_family(other)->name) != 0);
    }
}

TEST(the_document_has_every_family_in_order)
{
    struct buf doc = BUF_INIT;
    metrics_doc_put(&doc);
    buf_putc(&doc, '\0');
    const char *at = (const char *)doc.ptr;
    for (enum metric_id id = 0; id < FAMILY_COUNT; id++) {
        char row[80];
        (void)snprintf(row, sizeof(row), "\n| `%s` | ", metric_family(id)->name);
        at = strstr(at, row);
        CHECK(at != NULL);
    }
    CHECK(strstr((const char *)doc.ptr, "| `queen_s3_fetch_calls_total` | counter | `queue`, "
                                        "`result` | ") != NULL);
    buf_deinit(&doc);
}

TEST_MAIN()
