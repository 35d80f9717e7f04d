/* Boot log lines, help and document. */
#include "config/config.h"

#include "base/log.h"

#include "lib/test.h"

static struct buf captured;

static void capture(void *ctx, struct span line)
{
    (void)ctx;
    buf_put_span(&captured, line);
}

static bool contains(struct span text, const char *part)
{
    return memmem(text.ptr, text.len, part, strlen(part)) != NULL;
}

static void log_of(const char *const *list)
{
    const struct config_env env = {.list = list, .random = 1};
    struct config c;
    CHECK_EQ(config_read(&env, &c, NULL), ERR_OK);
    buf_reset(&captured);
    log_install(capture, NULL, NULL, false);
    config_log(&c, &env);
    log_install(NULL, NULL, NULL, false);
    config_deinit(&c);
}

TEST(each_group_is_one_line_and_secrets_are_counted_only)
{
    log_of((const char *const[]){"JWT_SECRET=tr\xc3\xa8s secret", "PORT=1", "QUEEN_RAFT_DIR=/a b",
                                 "DEFAULT_TIMEOUT=x", "QUEEN_LANES=2",
                                 "QUEEN_S3_SECRET_KEY=sink secret", NULL});
    struct span all = buf_span(&captured);
    static const char *const groups[] = {"server",    "storage",   "auth",   "security",
                                         "kv_timers", "ephemeral", "logging"};
    for (size_t i = 0; i < 7; i++) {
        char start[64];
        snprintf(start, sizeof(start), " INFO boot: config: %s", groups[i]);
        CHECK(contains(all, start));
    }
    CHECK(contains(all, "config: server PORT=1 QUEEN_BIND_ADDR=0.0.0.0 "));
    CHECK(contains(all, " QUEEN_RAFT_DIR=\"/a b\" QUEEN_RAFT_NODE_ID=1 "));
    CHECK(contains(all, " QUEEN_RAFT_DISK_HIGH_PCT=85.0 "));
    CHECK(contains(all, "config: auth JWT_ENABLED=false JWT_SECRET=\"<set:11 chars>\""));
    CHECK(contains(all, " QUEEN_ENCRYPTION_KEY=<unset> "));
    CHECK(contains(all, " QUEEN_S3_ACCESS_KEY=<unset> QUEEN_S3_SECRET_KEY=\"<set:11 chars>\""));
    CHECK(!contains(all, "sink secret"));
    CHECK(!contains(all, "secret\n") && !contains(all, "s secret"));
    CHECK(contains(all, " WARN boot: DEFAULT_TIMEOUT=\"x\" is not a whole number"));
    CHECK(contains(
        all, " INFO boot: settings without effect in this version: JWT_SECRET, QUEEN_LANES\n"));
    size_t lines = 0;
    for (size_t i = 0; i < all.len; i++)
        lines += all.ptr[i] == '\n';
    CHECK_EQ(lines, 9);
    buf_deinit(&captured);
}

TEST(help_and_document_show_every_setting)
{
    struct buf help = BUF_INIT, doc = BUF_INIT;
    config_help_put(&help);
    config_doc_put(&doc);
    CHECK(contains(buf_span(&help), "  PORT  "));
    CHECK(contains(buf_span(&help), "[/var/lib/queen/raft]"));
    CHECK(!contains(buf_span(&help), "QUEEN_RAFT_PEERS"));
    CHECK(contains(buf_span(&doc), "| `DEFAULT_TIMEOUT`, else `POP_DEFAULT_TIMEOUT_MS` | integer | "
                                   "`30000` | 1..60000 |"));
    CHECK(contains(buf_span(&doc), "| `QUEEN_RAFT_PEERS` | a cluster | |"));
    CHECK(contains(buf_span(&doc), "| `QUEEN_RAFT_REPLICATOR` | a cluster | `local` |"));
    CHECK(contains(buf_span(&doc), "| `QUEEN_LANES` | "));
    buf_deinit(&help);
    buf_deinit(&doc);
}

TEST_MAIN()
