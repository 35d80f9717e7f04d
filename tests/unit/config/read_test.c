/* Reading the settings, and what is refused. */
#include "config/config.h"

#include "config/internal.h"

#include "lib/test.h"

#define ENV(...)                                                                                   \
    (&(struct config_env){.list = (const char *const[]){__VA_ARGS__, NULL}, .random = 0xabc})

static struct config read_good(const struct config_env *env)
{
    struct config c;
    struct error error = {0};
    enum err err = config_read(env, &c, &error);
    if (err != ERR_OK)
        print_error("%s\n", error.text);
    CHECK_EQ(err, ERR_OK);
    return c;
}

static void check_refused(const struct config_env *env, const char *sentence)
{
    struct config c = {.port = 99};
    struct error error = {0};
    CHECK_EQ(config_read(env, &c, &error), ERR_INVALID);
    CHECK_TEXT(span_str(error.text), sentence);
    CHECK_EQ(c.port, 99);
}

/* It reads well, and is refused only then. */
static void check_not_built(const struct config_env *env, const char *sentence)
{
    struct config c = read_good(env);
    struct error error = {0};
    CHECK_EQ(config_check_built(env, &error), ERR_INVALID);
    CHECK_TEXT(span_str(error.text), sentence);
    config_deinit(&c);
}

static void check_notice(const struct config *c, bool warning, const char *text)
{
    for (size_t i = 0; i < c->n_notices; i++) {
        if (strcmp(c->notices[i].text, text) == 0) {
            CHECK_EQ(c->notices[i].warning, warning);
            return;
        }
    }
    print_error("no notice \"%s\" among:\n", text);
    for (size_t i = 0; i < c->n_notices; i++)
        print_error("  %s\n", c->notices[i].text);
    CHECK(false);
}

TEST(an_empty_environment_gives_the_documented_defaults)
{
    struct config c =
        read_good(&(struct config_env){.list = (const char *const[]){NULL}, .random = 0xabc});
    CHECK_EQ(c.port, 6632);
    CHECK_TEXT(span_str(c.bind_addr), "0.0.0.0");
    CHECK_TEXT(span_str(c.server_id), "queen-00000abc");
    CHECK_EQ(c.max_body_bytes, 67108864);
    CHECK_EQ(c.max_json_depth, 500);
    CHECK_EQ(c.request_timeout_ms, 30000);
    CHECK_TEXT(span_str(c.dir), "/var/lib/queen/raft");
    CHECK_EQ(c.node_id, 1);
    CHECK_EQ(c.durable_every_ms, 1000);
    CHECK_EQ(c.durable_every_bytes, 268435456);
    CHECK_EQ(c.segment_bytes, 67108864);
    CHECK_EQ(c.entry_max_bytes, 100663296);
    CHECK_EQ(c.batch_max_commands, 4096);
    CHECK_EQ(c.batch_max_bytes, 4194304);
    CHECK_EQ(c.admit_max_mb, 128);
    CHECK_EQ(c.admit_hold_ms, 15000);
    CHECK(c.disk_high_pct == 85 && c.disk_low_pct == 80);
    CHECK(!c.core_dumps && !c.has_secrets && !c.log_json);
    CHECK_TEXT(span_str(c.log_filter), "info");
    CHECK_EQ(c.n_notices, 0);
    config_deinit(&c);
}

TEST(every_row_has_a_default_its_own_reader_takes)
{
    for (size_t i = 0; i < config_row_count; i++) {
        const struct config_row *row = &config_rows[i];
        CHECK(row->text[0] != 0);
        CHECK(config_row_find(span_str(row->name)) == row); /* no row hides another */
        char entry[256];
        snprintf(entry, sizeof(entry), "%s=%s", row->name, row->fallback);
        struct config c = read_good(ENV(entry));
        CHECK_EQ(c.n_notices, 0);
        config_deinit(&c);
    }
}

TEST(booleans_have_eight_spellings_and_blanks_mean_the_default)
{
    static const char *const good[] = {"true", "1", "YES", " on ", "false", "0", "No", "OFF", ""};
    for (size_t i = 0; i < 9; i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "QUEEN_CORE_DUMPS=%s", good[i]);
        struct config c = read_good(ENV(entry));
        CHECK_EQ(c.core_dumps, i < 4);
        config_deinit(&c);
    }
    check_refused(ENV("QUEEN_CORE_DUMPS=maybe"),
                  "QUEEN_CORE_DUMPS=\"maybe\" is not a boolean (expected true/false, 1/0, yes/no, "
                  "on/off)");
}

TEST(integers_are_lenient_and_warned_about)
{
    struct config c = read_good(
        ENV("QUEEN_RAFT_DURABLE_EVERY_MS=soon", "QUEEN_RAFT_SEGMENT_BYTES=1", "PORT=70000",
            "DEFAULT_TIMEOUT=99999999", "QUEEN_RAFT_ENTRY_MAX_BYTES= 8192 ",
            "QUEEN_RAFT_ADMIT_HOLD_MS=-1",
            "QUEEN_RAFT_BATCH_MAX_CMDS=   ", "QUEEN_MAX_BODY_BYTES=18446744073709551616"));
    CHECK_EQ(c.durable_every_ms, 1000);
    CHECK_EQ(c.segment_bytes, 65536);
    CHECK_EQ(c.port, 6632);
    CHECK_EQ(c.request_timeout_ms, 60000);
    CHECK_EQ(c.entry_max_bytes, 8192);
    CHECK_EQ(c.admit_hold_ms, 15000);
    CHECK_EQ(c.batch_max_commands, 4096);
    CHECK_EQ(c.max_body_bytes, 67108864);
    CHECK_EQ(c.n_notices, 6);
    check_notice(&c, true,
                 "QUEEN_RAFT_DURABLE_EVERY_MS=\"soon\" is not a whole number: the default 1000 is "
                 "used");
    check_notice(&c, true,
                 "QUEEN_RAFT_SEGMENT_BYTES=1 is outside 65536..=4294967295: 65536 is used");
    check_notice(&c, true, "PORT=\"70000\" is not a port: the default 6632 is used");
    config_deinit(&c);
}

TEST(the_alias_is_read_when_the_name_is_not_set)
{
    struct config c = read_good(ENV("POP_DEFAULT_TIMEOUT_MS=5", "LOG_LEVEL=debug"));
    CHECK_EQ(c.request_timeout_ms, 5);
    CHECK_TEXT(span_str(c.log_filter), "debug");
    config_deinit(&c);
    c = read_good(ENV("DEFAULT_TIMEOUT=7", "POP_DEFAULT_TIMEOUT_MS=x", "LOG_LEVEL=debug",
                      "RUST_LOG=warn,queen-s3=debug"));
    CHECK_EQ(c.request_timeout_ms, 7);
    CHECK_TEXT(span_str(c.log_filter), "warn,queen-s3=debug");
    CHECK_EQ(c.n_notices, 0);
    config_deinit(&c);
}

TEST(percentages_outside_1_to_100_give_the_default)
{
    static const char *const bad[] = {"0.99", "100.1", "x", "1e1", "nan", "1.2.3", "-5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "QUEEN_RAFT_DISK_HIGH_PCT=%s", bad[i]);
        struct config c = read_good(ENV(entry));
        CHECK(c.disk_high_pct == 85);
        CHECK_EQ(c.n_notices, 1);
        config_deinit(&c);
    }
    struct config c = read_good(ENV("QUEEN_RAFT_DISK_HIGH_PCT=99.9", "QUEEN_RAFT_DISK_LOW_PCT=1"));
    CHECK(c.disk_high_pct == 99.9 && c.disk_low_pct == 1);
    config_deinit(&c);
    c = read_good(ENV("QUEEN_RAFT_DISK_HIGH_PCT=50")); /* below the default LOW */
    CHECK(c.disk_low_pct == 50);
    CHECK_EQ(c.n_notices, 1);
    config_deinit(&c);
}

TEST(strict_integers_are_refused)
{
    check_refused(
        ENV("QUEEN_MAX_JSON_DEPTH=63"),
        "QUEEN_MAX_JSON_DEPTH=63 is outside 64..=10000: a pushed payload nested deeper is "
        "refused, because lake readers refuse it later");
    check_refused(ENV("QUEEN_MAX_JSON_DEPTH=many"),
                  "QUEEN_MAX_JSON_DEPTH=many is not a whole number in 64..=10000: a pushed payload "
                  "nested deeper is refused, because lake readers refuse it later");
    struct config c = read_good(ENV("QUEEN_MAX_JSON_DEPTH=10000"));
    CHECK_EQ(c.max_json_depth, 10000);
    config_deinit(&c);
}

TEST(the_node_id_is_a_number_or_the_ordinal_of_the_host_name)
{
    struct config c = read_good(ENV("QUEEN_RAFT_NODE_ID=Ordinal", "HOSTNAME=queen-0"));
    CHECK_EQ(c.node_id, 1);
    config_deinit(&c);
    c = read_good(ENV("QUEEN_RAFT_NODE_ID=ordinal", "HOSTNAME=queen-2-41"));
    CHECK_EQ(c.node_id, 42);
    CHECK_TEXT(span_str(c.server_id), "queen-2-41");
    config_deinit(&c);
    check_refused(ENV("QUEEN_RAFT_NODE_ID=ordinal", "HOSTNAME=queen"),
                  "QUEEN_RAFT_NODE_ID=ordinal, but HOSTNAME=\"queen\" does not end in a number");
    static const char *const bad[] = {"0", "-1", "one", "18446744073709551616"};
    for (size_t i = 0; i < 4; i++) {
        char entry[64];
        struct config unused;
        snprintf(entry, sizeof(entry), "QUEEN_RAFT_NODE_ID=%s", bad[i]);
        CHECK_EQ(config_read(ENV(entry), &unused, NULL), ERR_INVALID);
    }
}

TEST(the_address_has_no_port_and_loses_its_brackets)
{
    check_refused(ENV("QUEEN_BIND_ADDR="),
                  "QUEEN_BIND_ADDR is empty: it is the host or IP address to listen on");
    check_refused(ENV("QUEEN_BIND_ADDR=0.0.0.0:6632"),
                  "QUEEN_BIND_ADDR=0.0.0.0:6632 carries a port: the port is PORT");
    check_refused(ENV("QUEEN_BIND_ADDR=[::1]:6632"),
                  "QUEEN_BIND_ADDR=[::1]:6632 carries a port: the port is PORT");
    static const char *const good[][2] = {{"QUEEN_BIND_ADDR=::1", "::1"},
                                          {"QUEEN_BIND_ADDR=[::]", "::"},
                                          {"QUEEN_BIND_ADDR= localhost ", "localhost"}};
    for (size_t i = 0; i < 3; i++) {
        char entry[64];
        snprintf(entry, sizeof(entry), "%s", good[i][0]);
        struct config c = read_good(ENV(entry));
        CHECK_TEXT(span_str(c.bind_addr), good[i][1]);
        config_deinit(&c);
    }
}

TEST(a_directory_must_be_named)
{
    check_refused(ENV("QUEEN_RAFT_DIR="),
                  "QUEEN_RAFT_DIR is empty: it is the folder of everything this node keeps");
    check_refused(ENV("QUEEN_RAFT_DIR= \n"),
                  "QUEEN_RAFT_DIR is empty: it is the folder of everything this node keeps");
    struct config c = read_good(ENV("QUEEN_RAFT_DIR= /srv/a b\n"));
    CHECK_TEXT(span_str(c.dir), "/srv/a b");
    config_deinit(&c);
}

TEST(what_is_not_built_is_refused_by_name_and_its_secrets_are_not_shown)
{
    check_not_built(ENV("JWT_ENABLED=yes"),
                    "JWT_ENABLED=yes asks for client tokens: not built yet");
    check_not_built(ENV("QUEEN_TENANCY_HEADER=true"),
                    "QUEEN_TENANCY_HEADER=true asks for tenants: not built yet");
    check_not_built(ENV("QUEEN_RAFT_REPLICATOR=openraft"),
                    "QUEEN_RAFT_REPLICATOR=openraft asks for a cluster: not built yet");
    check_not_built(ENV("QUEEN_RAFT_QLOG_ZSTD_LEVEL=1"),
                    "QUEEN_RAFT_QLOG_ZSTD_LEVEL=1 asks for compressed queue logs: not built yet");
    check_not_built(ENV("QUEEN_RAFT_TOKEN=hush"),
                    "QUEEN_RAFT_TOKEN is set and asks for a cluster: not built yet");
    check_not_built(ENV("QUEEN_PROXY_CP_TOKEN=hush"),
                    "QUEEN_PROXY_CP_TOKEN is set and asks for the embedded proxy and its control "
                    "plane: not built yet");
    check_refused(ENV("JWT_ENABLED=perhaps"),
                  "JWT_ENABLED=\"perhaps\" is not a boolean (expected true/false, 1/0, yes/no, "
                  "on/off)");
    struct config c = read_good(ENV(
        "JWT_ENABLED=off", "QUEEN_RAFT_REPLICATOR=Local", "QUEEN_RAFT_PEERS= ", "QUEEN_RAFT_JOIN=0",
        "QUEEN_RAFT_GROUPS=1", "QUEEN_PROXY_ENABLED=false", "QUEEN_ENCRYPTION_KEY="));
    CHECK_EQ(c.n_notices, 0);
    config_deinit(&c);
    CHECK_EQ(
        config_check_built(ENV("JWT_ENABLED=off", "QUEEN_RAFT_REPLICATOR=Local",
                               "QUEEN_RAFT_PEERS= ", "QUEEN_RAFT_JOIN=0", "QUEEN_RAFT_GROUPS=1",
                               "QUEEN_PROXY_ENABLED=false", "QUEEN_ENCRYPTION_KEY="),
                           NULL),
        ERR_OK);
}

/* Method: everything wrong, then one after another is put right. */
TEST(the_first_refusal_in_table_order_wins)
{
    static const char *const wrong[] = {
        "QUEEN_BIND_ADDR=",     "QUEEN_MAX_JSON_DEPTH=0",  "QUEEN_RAFT_DIR=",
        "QUEEN_RAFT_NODE_ID=x", "QUEEN_RAFT_JOIN=perhaps", "JWT_ENABLED=perhaps",
        "QUEEN_CORE_DUMPS=x",   "QUEEN_LOG_JSON=x",
    };
    enum { N = sizeof(wrong) / sizeof(wrong[0]) };
    for (size_t right = 0; right < N; right++) {
        const char *list[N + 2] = {"QUEEN_RAFT_PEERS=1=a/b"}; /* not built: after all of them */
        struct config c;
        struct error error = {0};
        memcpy(list + 1, wrong + right, (N - right) * sizeof(list[0]));
        CHECK_EQ(config_read(&(struct config_env){.list = list}, &c, &error), ERR_INVALID);
        size_t name = strcspn(wrong[right], "=");
        CHECK(strncmp(error.text, wrong[right], name) == 0);
    }
    check_not_built(ENV("JWT_ENABLED=true", "QUEEN_RAFT_PEERS=1=a/b"),
                    "QUEEN_RAFT_PEERS=1=a/b asks for a cluster: not built yet");
}

TEST(settings_without_effect_and_unknown_ones_are_named_in_one_line_each)
{
    struct config c =
        read_good(ENV("QUEEN_LANES=8", "QUEEN_RAFT_PIPELINE=4", "QUEEN_S3_WHATEVER=1", "HOME=/",
                      "QUEEN_FOO=1", "QUEEN_SERVICE_HOST=10.0.0.1",
                      "QUEEN_RAFT_LOG_KEEP=", "JWT_ISSUER=me", "no equals sign", "QUEEN_BAR=2"));
    CHECK_EQ(c.n_notices, 2);
    check_notice(&c, false,
                 "settings without effect in this version: QUEEN_LANES, QUEEN_RAFT_PIPELINE, "
                 "JWT_ISSUER");
    check_notice(&c, true, "unknown settings, ignored: QUEEN_FOO, QUEEN_BAR");
    config_deinit(&c);
}

TEST(secrets_are_noticed)
{
    struct config c = read_good(ENV("QUEEN_S3_SECRET_KEY=s"));
    CHECK(c.has_secrets);
    config_deinit(&c);
    c = read_good(ENV("QUEEN_S3_SECRET_KEY= ", "JWT_SECRET="));
    CHECK(!c.has_secrets);
    config_deinit(&c);
    c = read_good(ENV("JWT_SECRET=x"));
    CHECK(c.has_secrets);
    config_deinit(&c);
}

TEST(admission_has_room_for_ten_entries_by_default)
{
    struct config c = read_good(ENV("QUEEN_RAFT_BATCH_MAX_BYTES=33554432"));
    CHECK_EQ(c.admit_max_mb, 320);
    config_deinit(&c);
    c = read_good(ENV("QUEEN_RAFT_BATCH_MAX_BYTES=33554432", "QUEEN_RAFT_ADMIT_MAX_MB=0"));
    CHECK_EQ(c.admit_max_mb, 0);
    config_deinit(&c);
}

TEST(the_log_form_is_known_before_the_rest)
{
    CHECK(config_peek_log_json(ENV("QUEEN_LOG_JSON=On")));
    CHECK(!config_peek_log_json(ENV("QUEEN_LOG_JSON=maybe")));
    CHECK(!config_peek_log_json(ENV("QUEEN_LOG_JSONX=true")));
}

TEST_MAIN()
