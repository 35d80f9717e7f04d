/* Every row of settings.md 2-6 and of the new settings, as an operator meets it. */
#include "sink/settings.h"

#include "base/log.h"
#include "lib/test.h"
#include "sink/settings_table.h"

#include <stdlib.h>

#define ENV_MAX 64

struct env {
    struct {
        const char *name, *value;
    } vars[ENV_MAX];
    size_t n;
};

static const char *env_get(void *ctx, const char *name)
{
    const struct env *e = ctx;
    for (size_t i = e->n; i > 0; i--) { /* the last one set wins */
        if (strcmp(e->vars[i - 1].name, name) == 0)
            return e->vars[i - 1].value;
    }
    return NULL;
}

/* value NULL: unset. The name without its QUEEN_S3_ prefix. */
static void set(struct env *e, const char *name, const char *value)
{
    static char names[ENV_MAX][64];
    CHECK(e->n < ENV_MAX);
    char *full = names[e->n];
    (void)snprintf(full, sizeof(names[0]), "%s%s", strcmp(name, "HOSTNAME") == 0 ? "" : "QUEEN_S3_",
                   name);
    e->vars[e->n].name = full;
    e->vars[e->n].value = value;
    e->n++;
}

static struct env off(void)
{
    return (struct env){.n = 0};
}

static struct env embedded(void)
{
    struct env e = off();
    set(&e, "EMBEDDED", "true");
    return e;
}

static struct env file_env(void)
{
    struct env e = embedded();
    set(&e, "QUEUES", "orders");
    set(&e, "ENDPOINT", "file:///srv/lake");
    set(&e, "BUCKET", "lake");
    return e;
}

static struct env http_env(void)
{
    struct env e = embedded();
    set(&e, "QUEUES", "orders");
    set(&e, "ENDPOINT", "http://minio:9000");
    set(&e, "REGION", "us-east-1");
    set(&e, "BUCKET", "lake");
    set(&e, "ACCESS_KEY", "AKID-xyzzy");
    set(&e, "SECRET_KEY", "S3CR3T-xyzzy");
    return e;
}

static enum err read_env(struct env *e, struct sink_boot_settings *out, struct error *error)
{
    return sink_settings_read(env_get, e, 3, "host-a", 8, out, error);
}

static struct sink_boot_settings read_ok(struct env *e)
{
    struct sink_boot_settings b;
    struct error error = {0};
    enum err err = read_env(e, &b, &error);
    if (err != ERR_OK)
        print_error("%s\n", error.text);
    CHECK_EQ(err, ERR_OK);
    return b;
}

/* The whole sentence when `want` ends in '$', else its beginning. */
static void check_sentence(enum err err, const struct error *error, const char *want)
{
    size_t len = strlen(want);
    bool whole = want[len - 1] == '$';
    bool ok = whole ? strlen(error->text) == len - 1 && strncmp(error->text, want, len - 1) == 0
                    : strncmp(error->text, want, len) == 0;
    if (err != ERR_INVALID || !ok)
        print_error("got  %s\nwant %s\n", error->text, want);
    CHECK_EQ(err, ERR_INVALID);
    CHECK(ok);
    CHECK(strstr(error->text, "xyzzy") == NULL);
}

static void check_refused(struct env e, const char *want)
{
    struct sink_boot_settings b = {.node.threads = 77};
    struct error error = {0};
    check_sentence(read_env(&e, &b, &error), &error, want);
    CHECK_EQ(b.node.threads, 77);
}

/* It reads well, and is refused only then. */
static void check_not_built(struct env e, const char *want)
{
    struct sink_boot_settings b = read_ok(&e);
    struct error error = {0};
    check_sentence(sink_settings_check_built(&b, &error), &error, want);
    sink_boot_settings_deinit(&b);
}

#define PRE "QUEEN_S3_EMBEDDED=true: "

TEST(nothing_is_looked_at_unless_embedded)
{
    static const char *const values[] = {NULL, "", "  ", "false", "0", "NO", "Off", " false "};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct env e = off();
        set(&e, "EMBEDDED", values[i]);
        set(&e, "THREADS", "nonsense");
        set(&e, "QUEUES", ",");
        set(&e, "PARTITIONS", "q:0..3");
        struct sink_boot_settings b = read_ok(&e);
        CHECK(!b.node.embedded);
        CHECK(!b.has_sink);
        sink_boot_settings_deinit(&b);
    }
}

TEST(embedded_is_a_boolean)
{
    static const char *const values[] = {"true", "1", "YES", "On", "\xC2\xA0true\xE2\x80\x83\n"};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct env e = off();
        set(&e, "EMBEDDED", values[i]);
        struct sink_boot_settings b = read_ok(&e);
        CHECK(b.node.embedded);
        sink_boot_settings_deinit(&b);
    }
    struct env e = off();
    set(&e, "EMBEDDED", "maybe");
    check_refused(e, "QUEEN_S3_EMBEDDED=\"maybe\" is not a boolean (expected true/false, 1/0, "
                     "yes/no, on/off)$");
}

TEST(defaults)
{
    struct env e = file_env();
    struct sink_boot_settings b = read_ok(&e);
    CHECK(b.has_sink);
    CHECK_EQ(b.node.threads, 2);
    CHECK_EQ(b.node.shutdown_grace_ms, 30000);
    CHECK_EQ(b.node.memory_mb, 512);
    CHECK_EQ(b.node.fetch_concurrency, 4);
    CHECK_EQ(b.node.discovery_interval_ms, 2000);
    CHECK_EQ(b.node.safe_guard_ms, 5000);
    CHECK_EQ(b.node.lease_ttl_ms, 30000);
    CHECK_EQ(b.node.multipart_threshold_mb, 64);
    CHECK_EQ(b.node.checkpoint_every, 20);
    CHECK_EQ(b.node.crash_at, SINK_CRASH_NEVER);
    CHECK(strcmp(b.node.instance, "node-3@host-a") == 0);
    CHECK(b.node.instance_generated);
    CHECK(!b.sink.all_queues);
    CHECK_EQ(b.sink.n_queues, 1);
    CHECK(strcmp(b.sink.queues[0], "orders") == 0);
    CHECK(strcmp(b.sink.endpoint, "file:///srv/lake") == 0);
    CHECK(b.sink.is_file);
    CHECK(b.sink.region == NULL);
    CHECK(b.sink.access_key == NULL);
    CHECK(b.sink.secret_key == NULL);
    CHECK(strcmp(b.sink.bucket, "lake") == 0);
    CHECK(strcmp(b.sink.prefix, "queen") == 0);
    CHECK(!b.sink.path_style);
    CHECK(b.sink.sse == NULL);
    CHECK(b.sink.sse_kms_key_id == NULL);
    CHECK_EQ(b.sink.format, SINK_JSONL);
    CHECK_EQ(b.sink.compression, SINK_ZSTD);
    CHECK_EQ(b.sink.layout, SINK_MERGED);
    CHECK_EQ(b.sink.align, SINK_ALIGN_HOUR);
    CHECK_EQ(b.sink.start, SINK_LATEST);
    CHECK_EQ(b.sink.target_mb, 128);
    CHECK_EQ(b.sink.max_window_ms, 300000);
    CHECK(strcmp(b.sink.sink, "default") == 0);
    CHECK_EQ(b.sink.key_segment_max, 255);
    CHECK(b.sink.quote_unreadable);
    CHECK(b.ignored == NULL);
    sink_boot_settings_deinit(&b);
}

TEST(threads_follow_the_cores)
{
    static const unsigned cores[][2] = {{1, 1}, {3, 1}, {4, 1}, {7, 1}, {8, 2}, {64, 2}, {0, 1}};
    for (size_t i = 0; i < sizeof(cores) / sizeof(cores[0]); i++) {
        struct env e = embedded();
        struct sink_boot_settings b;
        CHECK_EQ(sink_settings_read(env_get, &e, 1, NULL, cores[i][0], &b, NULL), ERR_OK);
        CHECK_EQ(b.node.threads, cores[i][1]);
        CHECK(strcmp(b.node.instance, "node-1@localhost") == 0);
        sink_boot_settings_deinit(&b);
    }
}

/* Goal: each refusal has its sentence. Method: a good environment with one variable changed. */
static const struct {
    const char *name, *value, *want;
} refusals[] = {
    /* 2: the broker's own */
    {"THREADS", "0", PRE "QUEEN_S3_THREADS=0 is not an integer in 1..=64$"},
    {"THREADS", "65", PRE "QUEEN_S3_THREADS=65 is not an integer in 1..=64$"},
    {"THREADS", " two ", PRE "QUEEN_S3_THREADS=two is not an integer in 1..=64$"},
    {"THREADS", "-1", PRE "QUEEN_S3_THREADS=-1 is not an integer in 1..=64$"},
    {"SHUTDOWN_GRACE_MS", "99",
     PRE "QUEEN_S3_SHUTDOWN_GRACE_MS=99 is not an integer in 100..=3600000$"},
    {"SHUTDOWN_GRACE_MS", "1.5",
     PRE "QUEEN_S3_SHUTDOWN_GRACE_MS=1.5 is not an integer in 100..=3600000$"},
    /* 4: node-wide */
    {"CHECKPOINT_EVERY", "0", PRE "QUEEN_S3_CHECKPOINT_EVERY=0 is outside 1..=100000. It is "},
    {"CHECKPOINT_EVERY", "100001", PRE "QUEEN_S3_CHECKPOINT_EVERY=100001 is outside 1..=100000."},
    {"MEMORY_MB", "0", PRE "QUEEN_S3_MEMORY_MB=0 is outside 1..=1048576."},
    {"MEMORY_MB", "1048577", PRE "QUEEN_S3_MEMORY_MB=1048577 is outside 1..=1048576."},
    {"FETCH_CONCURRENCY", "257", PRE "QUEEN_S3_FETCH_CONCURRENCY=257 is outside 1..=256."},
    {"FETCH_CONCURRENCY", "0", PRE "QUEEN_S3_FETCH_CONCURRENCY=0 is outside 1..=256."},
    {"DISCOVERY_INTERVAL_MS", "9", PRE "QUEEN_S3_DISCOVERY_INTERVAL_MS=9 is outside 10..=3600000."},
    {"SAFE_GUARD_MS", "3600001", PRE "QUEEN_S3_SAFE_GUARD_MS=3600001 is outside 0..=3600000."},
    {"LEASE_TTL_MS", "999", PRE "QUEEN_S3_LEASE_TTL_MS=999 is outside 1000..=3600000."},
    {"MULTIPART_THRESHOLD_MB", "4", PRE "QUEEN_S3_MULTIPART_THRESHOLD_MB=4 is outside 5..=5120."},
    {"MULTIPART_THRESHOLD_MB", "x",
     PRE "QUEEN_S3_MULTIPART_THRESHOLD_MB=x is not a whole number. It is "},
    {"CRASH_AT", "Sometimes",
     PRE "QUEEN_S3_CRASH_AT=sometimes is not a crash point. It is `never`, `after_intent`, "
         "`mid_upload`, `after_upload`, `before_commit` or `after_commit`$"},
    {"INSTANCE", "a\xFF", PRE "QUEEN_S3_INSTANCE is not valid UTF-8."},
    /* 3: per sink */
    {"QUEUES", ",", PRE "QUEEN_S3_QUEUES=, names no queue."},
    {"QUEUES", " , ,, ", PRE "QUEEN_S3_QUEUES=, ,, names no queue."},
    {"QUEUES", "a\xFF", PRE "QUEEN_S3_QUEUES is not valid UTF-8."},
    {"SINK", "a b", PRE "QUEEN_S3_SINK=a b is not a sink name."},
    {"SINK", "a/b", PRE "QUEEN_S3_SINK=a/b is not a sink name."},
    {"SINK", "0123456789012345678901234567890123456789012345678901234567890123x",
     PRE "QUEEN_S3_SINK=0123456789012345678901234567890123456789012345678901234567890123x is not "
         "a sink name."},
    {"KEY_SEGMENT_MAX", "254", PRE "QUEEN_S3_KEY_SEGMENT_MAX=254 is outside 255..=1024."},
    {"KEY_SEGMENT_MAX", "1025", PRE "QUEEN_S3_KEY_SEGMENT_MAX=1025 is outside 255..=1024."},
    {"JSONL_QUOTE_UNREADABLE", "maybe",
     PRE "QUEEN_S3_JSONL_QUOTE_UNREADABLE=maybe is not a boolean. It is `true` or `false`$"},
    {"PARTITIONS", "orders:0..3", PRE "QUEEN_S3_PARTITIONS=orders:0..3 is not supported."},
    {"ENDPOINT", NULL, PRE "QUEEN_S3_ENDPOINT is not set: it is "},
    {"ENDPOINT", "  ", PRE "QUEEN_S3_ENDPOINT is not set: it is "},
    {"ENDPOINT", "minio:9000", PRE "QUEEN_S3_ENDPOINT=minio:9000 has no scheme."},
    {"ENDPOINT", "HTTP://minio", PRE "QUEEN_S3_ENDPOINT=HTTP://minio has no scheme."},
    {"ENDPOINT", "s3://minio", PRE "QUEEN_S3_ENDPOINT=s3://minio has no scheme."},
    {"ENDPOINT", "file:/srv", PRE "QUEEN_S3_ENDPOINT=file:/srv has no scheme."},
    {"ENDPOINT", "http://", PRE "QUEEN_S3_ENDPOINT=http:// has no host."},
    {"ENDPOINT", "https:///", PRE "QUEEN_S3_ENDPOINT=https:/// has no host."},
    {"ENDPOINT", "http://:9000", PRE "QUEEN_S3_ENDPOINT=http://:9000 has no host."},
    {"ENDPOINT", "http://h/p", PRE "QUEEN_S3_ENDPOINT=http://h/p carries a path."},
    {"ENDPOINT", "http://h//p/", PRE "QUEEN_S3_ENDPOINT=http://h//p/ carries a path."},
    {"ENDPOINT", "http://h:65536", PRE "QUEEN_S3_ENDPOINT=http://h:65536 has a port"},
    {"ENDPOINT", "http://h:", PRE "QUEEN_S3_ENDPOINT=http://h: has a port"},
    {"ENDPOINT", "http://h:x/", PRE "QUEEN_S3_ENDPOINT=http://h:x/ has a port"},
    {"ENDPOINT", "http://me:xyzzy@h", PRE "QUEEN_S3_ENDPOINT carries a user name."},
    {"ENDPOINT", "file://", PRE "QUEEN_S3_ENDPOINT=file:// has no path."},
    {"ENDPOINT", "file://srv/lake", PRE "QUEEN_S3_ENDPOINT=file://srv/lake names a host"},
    {"ENDPOINT", "file://localhost/srv", PRE "QUEEN_S3_ENDPOINT=file://localhost/srv names a host"},
    {"ENDPOINT", "http://h?x", PRE "QUEEN_S3_ENDPOINT=http://h?x has a host that is no name"},
    {"ENDPOINT", "http://h#x", PRE "QUEEN_S3_ENDPOINT=http://h#x has a host that is no name"},
    {"ENDPOINT", "http://h h", PRE "QUEEN_S3_ENDPOINT=http://h h has a host that is no name"},
    {"ENDPOINT", "http://h%2f", PRE "QUEEN_S3_ENDPOINT=http://h%2f has a host that is no name"},
    {"ENDPOINT", "http://a:b:80", PRE "QUEEN_S3_ENDPOINT=http://a:b:80 has a host that is no"},
    {"ENDPOINT", "http://[::1", PRE "QUEEN_S3_ENDPOINT=http://[::1 has a host that is no name"},
    {"ENDPOINT", "http://[]:9", PRE "QUEEN_S3_ENDPOINT=http://[]:9 has a host that is no name"},
    {"ENDPOINT", "http://[::1]x", PRE "QUEEN_S3_ENDPOINT=http://[::1]x has a host that is no name"},
    {"REGION", NULL, PRE "QUEEN_S3_REGION is not set: it is "},
    {"REGION", "a\r\nx: y", PRE "QUEEN_S3_REGION holds a line break"},
    {"ACCESS_KEY", "a\nb", PRE "QUEEN_S3_ACCESS_KEY holds a line break"},
    {"SECRET_KEY", "a\nb", PRE "QUEEN_S3_SECRET_KEY holds a line break"},
    {"BUCKET", "a@b", PRE "QUEEN_S3_BUCKET=a@b cannot stand in front of a host. Set "},
    {"BUCKET", "a\nb", PRE "QUEEN_S3_BUCKET=a\nb is not a bucket name."},
    {"BUCKET", NULL, PRE "QUEEN_S3_BUCKET is not set: it is "},
    {"BUCKET", "a/b", PRE "QUEEN_S3_BUCKET=a/b is not a bucket name."},
    {"BUCKET", "a b", PRE "QUEEN_S3_BUCKET=a b is not a bucket name."},
    {"BUCKET", ".", PRE "QUEEN_S3_BUCKET=. is not a bucket name."},
    {"BUCKET", "..", PRE "QUEEN_S3_BUCKET=.. is not a bucket name."},
    {"PREFIX", "/", PRE "QUEEN_S3_PREFIX=/ is empty."},
    {"PREFIX", "///", PRE "QUEEN_S3_PREFIX=/// is empty."},
    {"PREFIX", "a//b", PRE "QUEEN_S3_PREFIX=a//b has an empty or relative segment."},
    {"PREFIX", "a/../b", PRE "QUEEN_S3_PREFIX=a/../b has an empty or relative segment."},
    {"PREFIX", "./b", PRE "QUEEN_S3_PREFIX=./b has an empty or relative segment."},
    {"PREFIX", "..", PRE "QUEEN_S3_PREFIX=.. has an empty or relative segment."},
    {"PREFIX", "a\xFF", PRE "QUEEN_S3_PREFIX is not valid UTF-8"},
    {"ACCESS_KEY", NULL, PRE "QUEEN_S3_ACCESS_KEY is not set: it is "},
    {"SECRET_KEY", "", PRE "QUEEN_S3_SECRET_KEY is not set: it is "},
    {"SECRET_KEY", "xyzzy\xFF", PRE "QUEEN_S3_SECRET_KEY is not valid UTF-8."},
    {"PATH_STYLE", "2", PRE "QUEEN_S3_PATH_STYLE=2 is not a boolean. It is `true` or `false`$"},
    {"SSE", "OFF", PRE "QUEEN_S3_SSE=off is not a mode. It is `AES256` or `aws:kms`$"},
    {"SSE_KMS_KEY_ID", "key-1", PRE "QUEEN_S3_SSE_KMS_KEY_ID is set but QUEEN_S3_SSE=off."},
    {"FORMAT", "CSV", PRE "QUEEN_S3_FORMAT=csv is not a format. It is `jsonl` or `parquet`$"},
    {"COMPRESSION", "lz4",
     PRE "QUEEN_S3_COMPRESSION=lz4 is not a codec. It is `zstd`, `gzip` or `none`$"},
    {"PARQUET_CODEC", "GZip",
     PRE "QUEEN_S3_PARQUET_CODEC=gzip is not a codec. It is `zstd` or `snappy`$"},
    {"LAYOUT", "split",
     PRE "QUEEN_S3_LAYOUT=split is not a layout. It is `merged` or "
         "`per-partition`$"},
    {"ALIGN", "week", PRE "QUEEN_S3_ALIGN=week is not a alignment. It is `hour`, `day` or `none`$"},
    {"START", "middle", PRE "QUEEN_S3_START=middle is not a start. It is `latest` or `earliest`$"},
    {"TARGET_MB", "0", PRE "QUEEN_S3_TARGET_MB=0 is outside 1..=5120. It is "},
    {"TARGET_MB", "5121", PRE "QUEEN_S3_TARGET_MB=5121 is outside 1..=5120. It is "},
    {"TARGET_MB", "128.0", PRE "QUEEN_S3_TARGET_MB=128.0 is not a whole number. It is "},
    {"TARGET_MB", "-1", PRE "QUEEN_S3_TARGET_MB=-1 is not a whole number. It is "},
    {"TARGET_MB", "0x10", PRE "QUEEN_S3_TARGET_MB=0x10 is not a whole number. It is "},
    {"TARGET_MB", "18446744073709551616",
     PRE "QUEEN_S3_TARGET_MB=18446744073709551616 is not a whole number. It is "},
    {"MAX_WINDOW_MS", "50",
     PRE "QUEEN_S3_MAX_WINDOW_MS=50 is outside 100..=86400000. It is how long a window may stay "
         "open; the lag SLO is about this plus the safe lag$"},
    {"MAX_WINDOW_MS", "86400001", PRE "QUEEN_S3_MAX_WINDOW_MS=86400001 is outside 100..=86400000."},
    {"MAX_WINDOW_MS", "5m",
     PRE "QUEEN_S3_MAX_WINDOW_MS=5m is not a whole number. It is how long a window may stay open; "
         "the lag SLO is about this plus the safe lag, in 100..=86400000$"},
};

TEST(every_wrong_value_has_its_sentence)
{
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        struct env e = http_env();
        set(&e, refusals[i].name, refusals[i].value);
        check_refused(e, refusals[i].want);
    }
}

/* The same of a bucket in a folder: what does not name a server is checked alike. */
TEST(file_endpoints_are_checked_too)
{
    static const struct {
        const char *name, *value, *want;
    } cases[] = {
        {"BUCKET", NULL, PRE "QUEEN_S3_BUCKET is not set: it is "},
        {"BUCKET", "..", PRE "QUEEN_S3_BUCKET=.. is not a bucket name."},
        {"SSE", "AES256", PRE "QUEEN_S3_SSE=AES256 does not go with a file:// endpoint."},
        {"SSE", "KMS", PRE "QUEEN_S3_SSE=aws:kms does not go with a file:// endpoint."},
        {"SSE", "rot13", PRE "QUEEN_S3_SSE=rot13 is not a mode."},
        {"SSE_KMS_KEY_ID", "k", PRE "QUEEN_S3_SSE_KMS_KEY_ID is set but QUEEN_S3_SSE=off."},
        {"PATH_STYLE", "x", PRE "QUEEN_S3_PATH_STYLE=x is not a boolean."},
        {"PREFIX", ".queen-tmp/a", PRE "QUEEN_S3_PREFIX=.queen-tmp/a is the sink's own folder"},
        {"FORMAT", "xml", PRE "QUEEN_S3_FORMAT=xml is not a format."},
        {"LAYOUT", "both", PRE "QUEEN_S3_LAYOUT=both is not a layout."},
        {"MAX_WINDOW_MS", "50", PRE "QUEEN_S3_MAX_WINDOW_MS=50 is outside 100..=86400000."},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct env e = file_env();
        set(&e, cases[i].name, cases[i].value);
        check_refused(e, cases[i].want);
    }
    char segment[300];
    memset(segment, 'p', 256);
    segment[256] = '\0';
    struct env e = file_env();
    set(&e, "PREFIX", segment);
    check_refused(e, PRE "QUEEN_S3_PREFIX has a segment longer than 255 bytes");
    e = file_env();
    set(&e, "BUCKET", segment);
    check_refused(e, PRE "QUEEN_S3_BUCKET=ppp");
}

TEST(what_is_not_built_is_refused_apart)
{
    static const char *const layouts[] = {"PER_PARTITION", "per-partition", "PerPartition"};
    struct env e = http_env();
    set(&e, "FORMAT", "Parquet");
    check_not_built(e, PRE "QUEEN_S3_FORMAT=parquet is not built yet; accepted now: jsonl$");
    for (size_t i = 0; i < 3; i++) {
        e = file_env();
        set(&e, "LAYOUT", layouts[i]);
        check_not_built(e, PRE "QUEEN_S3_LAYOUT=per-partition is not built yet; accepted now: "
                               "merged$");
    }
    e = file_env();
    struct sink_boot_settings b = read_ok(&e);
    CHECK_EQ(sink_settings_check_built(&b, NULL), ERR_OK);
    sink_boot_settings_deinit(&b);
    e = embedded(); /* without a sink of the environment */
    b = read_ok(&e);
    CHECK_EQ(sink_settings_check_built(&b, NULL), ERR_OK);
    sink_boot_settings_deinit(&b);
}

TEST(a_long_prefix_is_refused)
{
    char prefix[1000];
    for (size_t i = 0; i < sizeof(prefix); i++)
        prefix[i] = i % 100 == 99 ? '/' : 'p';
    prefix[769] = '\0';
    struct env e = file_env();
    set(&e, "PREFIX", prefix);
    check_refused(e, PRE "QUEEN_S3_PREFIX is longer than 768 bytes$");
    prefix[768] = '\0';
    struct sink_boot_settings b = read_ok(&e);
    CHECK_EQ(strlen(b.sink.prefix), 768);
    sink_boot_settings_deinit(&b);
}

/* settings.md 3.3: first wrong one in this order. Method: everything wrong, then one after another
 * is put right. */
TEST(the_order_of_checks)
{
    static const struct {
        const char *name, *wrong, *right;
    } order[] = {
        {"THREADS", "x", NULL},
        {"SHUTDOWN_GRACE_MS", "x", NULL},
        {"CHECKPOINT_EVERY", "x", NULL},
        {"MEMORY_MB", "x", NULL},
        {"FETCH_CONCURRENCY", "x", NULL},
        {"DISCOVERY_INTERVAL_MS", "x", NULL},
        {"SAFE_GUARD_MS", "x", NULL},
        {"LEASE_TTL_MS", "x", NULL},
        {"MULTIPART_THRESHOLD_MB", "x", NULL},
        {"INSTANCE", "\xFF", NULL},
        {"CRASH_AT", "x", NULL},
        {"QUEUES", ",", "orders"},
        {"SINK", "!", NULL},
        {"KEY_SEGMENT_MAX", "x", NULL},
        {"JSONL_QUOTE_UNREADABLE", "x", NULL},
        {"PARTITIONS", "x", NULL},
        {"ENDPOINT", "x", "http://h"},
        {"REGION", NULL, "r"},
        {"BUCKET", "/", "b"},
        {"PREFIX", "/", NULL},
        {"ACCESS_KEY", NULL, "a"},
        {"PATH_STYLE", "x", NULL},
        {"SSE", "x", NULL},
        {"FORMAT", "x", NULL},
        {"COMPRESSION", "x", NULL},
        {"PARQUET_CODEC", "x", NULL},
        {"LAYOUT", "x", NULL},
        {"ALIGN", "x", NULL},
        {"START", "x", NULL},
        {"TARGET_MB", "x", NULL},
        {"MAX_WINDOW_MS", "x", NULL},
        {"SECRET_KEY", NULL, "s"},
    };
    enum { N = sizeof(order) / sizeof(order[0]) };
    for (size_t right = 0; right < N; right++) {
        struct env e = embedded();
        char want[80];
        for (size_t i = 0; i < N; i++)
            set(&e, order[i].name, i < right ? order[i].right : order[i].wrong);
        (void)snprintf(want, sizeof(want), PRE "QUEEN_S3_%s", order[right].name);
        check_refused(e, want);
    }
}

/* settings.md 3.3: without QUEUES nothing else of a sink may be set. */
TEST(the_on_off_rule)
{
    static const char *const order[] = {
        "PARTITIONS",     "ENDPOINT",        "REGION",
        "BUCKET",         "PREFIX",          "ACCESS_KEY",
        "SECRET_KEY",     "PATH_STYLE",      "SSE",
        "SSE_KMS_KEY_ID", "FORMAT",          "COMPRESSION",
        "PARQUET_CODEC",  "LAYOUT",          "ALIGN",
        "START",          "TARGET_MB",       "MAX_WINDOW_MS",
        "SINK",           "KEY_SEGMENT_MAX", "JSONL_QUOTE_UNREADABLE",
    };
    enum { N = sizeof(order) / sizeof(order[0]) };
    for (size_t first = 0; first < N; first++) {
        struct env e = embedded();
        char want[120];
        set(&e, "QUEUES", "  ");
        for (size_t i = first; i < N; i++)
            set(&e, order[i], "xyzzy"); /* never looked at, never printed */
        (void)snprintf(want, sizeof(want),
                       PRE "QUEEN_S3_%s is set but QUEEN_S3_QUEUES is not: ", order[first]);
        check_refused(e, want);
    }
    struct env e = embedded();
    for (size_t i = 0; i < N; i++)
        set(&e, order[i], " \t"); /* blank is unset */
    set(&e, "MEMORY_MB", "7");
    set(&e, "LISTEN", "0.0.0.0:1");
    struct sink_boot_settings b = read_ok(&e);
    CHECK(!b.has_sink);
    CHECK_EQ(b.node.memory_mb, 7);
    CHECK(b.ignored == NULL); /* only with a sink of the environment */
    sink_boot_settings_deinit(&b);
}

TEST(blank_is_unset_for_every_variable)
{
    struct env e = file_env();
    for (unsigned i = S_ACCESS_KEY; i < SETTING_COUNT; i++)
        set(&e, setting_row((enum setting_id)i)->variable + strlen("QUEEN_S3_"), " \r\n");
    struct sink_boot_settings b = read_ok(&e);
    CHECK_EQ(b.node.threads, 2);
    CHECK_EQ(b.sink.max_window_ms, 300000);
    CHECK(b.node.instance_generated);
    sink_boot_settings_deinit(&b);
}

TEST(queues_are_a_star_or_a_list)
{
    struct env e = file_env();
    set(&e, "QUEUES", " * ");
    struct sink_boot_settings b = read_ok(&e);
    CHECK(b.sink.all_queues);
    CHECK_EQ(b.sink.n_queues, 0);
    sink_boot_settings_deinit(&b);

    set(&e, "QUEUES",
        " b ,,a c,\xC2\xA0"
        "a\xC2\xA0, b,*,b");
    b = read_ok(&e);
    CHECK(!b.sink.all_queues);
    static const char *const want[] = {"b", "a c", "a", "*"};
    CHECK_EQ(b.sink.n_queues, 4);
    for (size_t i = 0; i < 4; i++)
        CHECK(strcmp(b.sink.queues[i], want[i]) == 0);
    sink_boot_settings_deinit(&b);
}

/* As many as fit into one variable, each twice: no cost that grows with their square. */
TEST(a_long_list_of_queues_is_read_soon)
{
    struct env e = file_env();
    struct buf list = BUF_INIT;
    for (unsigned i = 0; i < 20000; i++)
        buf_printf(&list, "%x,%x,", i, i);
    buf_putc(&list, '\0');
    set(&e, "QUEUES", (const char *)list.ptr);
    struct sink_boot_settings b = read_ok(&e);
    CHECK_EQ(b.sink.n_queues, 20000);
    CHECK(strcmp(b.sink.queues[19999], "4e1f") == 0);
    sink_boot_settings_deinit(&b);
    buf_deinit(&list);
}

TEST(spellings_ignore_case)
{
    static const struct {
        const char *name, *value;
        int want;
    } cases[] = {
        {"FORMAT", "JSON", SINK_JSONL},
        {"FORMAT", "ndjson", SINK_JSONL},
        {"COMPRESSION", "ZST", SINK_ZSTD},
        {"COMPRESSION", "gz", SINK_GZIP},
        {"COMPRESSION", "Gzip", SINK_GZIP},
        {"COMPRESSION", "off", SINK_NONE},
        {"COMPRESSION", "none", SINK_NONE},
        {"ALIGN", "HOURLY", SINK_ALIGN_HOUR},
        {"ALIGN", "daily", SINK_ALIGN_DAY},
        {"ALIGN", "day", SINK_ALIGN_DAY},
        {"ALIGN", "off", SINK_ALIGN_NONE},
        {"ALIGN", "none", SINK_ALIGN_NONE},
        {"START", "Now", SINK_LATEST},
        {"START", "end", SINK_LATEST},
        {"START", "beginning", SINK_EARLIEST},
        {"START", "earliest", SINK_EARLIEST},
        {"LAYOUT", "MERGED", SINK_MERGED},
        {"PARQUET_CODEC", "SNAP", 0},
        {"CRASH_AT", "None", SINK_CRASH_NEVER},
        {"CRASH_AT", "off", SINK_CRASH_NEVER},
        {"CRASH_AT", "MID_UPLOAD", SINK_CRASH_MID_UPLOAD},
        {"CRASH_AT", "after_commit", SINK_CRASH_AFTER_COMMIT},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct env e = file_env();
        set(&e, cases[i].name, cases[i].value);
        struct sink_boot_settings b = read_ok(&e);
        int got = 0;
        if (strcmp(cases[i].name, "FORMAT") == 0)
            got = (int)b.sink.format;
        else if (strcmp(cases[i].name, "COMPRESSION") == 0)
            got = (int)b.sink.compression;
        else if (strcmp(cases[i].name, "ALIGN") == 0)
            got = (int)b.sink.align;
        else if (strcmp(cases[i].name, "START") == 0)
            got = (int)b.sink.start;
        else if (strcmp(cases[i].name, "CRASH_AT") == 0)
            got = (int)b.node.crash_at;
        CHECK_EQ(got, cases[i].want);
        sink_boot_settings_deinit(&b);
    }
}

TEST(ranges_include_their_ends)
{
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        const struct setting *row = setting_row((enum setting_id)i);
        if (row->kind != KIND_INT)
            continue;
        for (unsigned end = 0; end < 2; end++) {
            char value[24];
            struct env e = file_env();
            (void)snprintf(value, sizeof(value), "%llu",
                           (unsigned long long)(end == 0 ? row->min : row->max));
            set(&e, row->variable + strlen("QUEEN_S3_"), value);
            struct sink_boot_settings b = read_ok(&e);
            sink_boot_settings_deinit(&b);
        }
    }
}

TEST(keys_and_region_of_a_file_endpoint_are_ignored)
{
    struct env e = file_env();
    set(&e, "ACCESS_KEY", "xyzzy");
    set(&e, "SECRET_KEY", "xyzzy");
    set(&e, "REGION", "eu");
    set(&e, "PATH_STYLE", "true");
    set(&e, "KEY_SEGMENT_MAX", "1000");
    set(&e, "JSONL_QUOTE_UNREADABLE", "No");
    struct sink_boot_settings b = read_ok(&e);
    CHECK(b.sink.region == NULL);
    CHECK(b.sink.access_key == NULL);
    CHECK(b.sink.secret_key == NULL);
    CHECK_EQ(b.sink.key_segment_max, 255);
    CHECK(!b.sink.quote_unreadable);
    sink_boot_settings_deinit(&b);
}

TEST(file_paths_are_taken_literally)
{
    static const char *const cases[][2] = {
        {"file:///srv/lake", "file:///srv/lake"},
        {"file:///srv/lake///", "file:///srv/lake"},
        {"file:///", "file:///"},
        {"file:////", "file:///"},
        {"file:///a%20b/\xC3\xA8 c?d#e", "file:///a%20b/\xC3\xA8 c?d#e"},
        {" file:///a ", "file:///a"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct env e = file_env();
        set(&e, "ENDPOINT", cases[i][0]);
        struct sink_boot_settings b = read_ok(&e);
        CHECK(strcmp(b.sink.endpoint, cases[i][1]) == 0);
        CHECK(b.sink.is_file);
        sink_boot_settings_deinit(&b);
    }
}

TEST(prefixes_lose_their_outer_slashes)
{
    struct env e = file_env();
    set(&e, "PREFIX", "//lake/queen x/");
    struct sink_boot_settings b = read_ok(&e);
    CHECK(strcmp(b.sink.prefix, "lake/queen x") == 0);
    sink_boot_settings_deinit(&b);
}

TEST(the_instance_names_the_node)
{
    static const struct {
        const char *instance, *hostname, *want;
    } cases[] = {
        {NULL, NULL, "node-3@host-a"},        {" ", "  ", "node-3@host-a"},
        {NULL, " pod-7 ", "node-3@pod-7"},    {"blue", "pod-7", "blue/node-3"},
        {"blue/node-3", NULL, "blue/node-3"}, {"blue/node-33", NULL, "blue/node-33/node-3"},
        {"node-3", NULL, "node-3/node-3"},    {"/node-3", NULL, "/node-3"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct env e = embedded();
        set(&e, "INSTANCE", cases[i].instance);
        set(&e, "HOSTNAME", cases[i].hostname);
        struct sink_boot_settings b = read_ok(&e);
        CHECK(strcmp(b.node.instance, cases[i].want) == 0);
        CHECK(b.node.instance_generated == (i < 3));
        sink_boot_settings_deinit(&b);
    }
}

TEST(leftovers_of_the_standalone_sink_are_named_once)
{
    static const char *const cases[][3] = {
        {"0.0.0.0:1", "json", "QUEEN_S3_LISTEN, QUEEN_S3_LOG_FORMAT"},
        {NULL, "json", "QUEEN_S3_LOG_FORMAT"},
        {"x", " ", "QUEEN_S3_LISTEN"},
    };
    for (size_t i = 0; i < 3; i++) {
        struct env e = file_env();
        set(&e, "LISTEN", cases[i][0]);
        set(&e, "LOG_FORMAT", cases[i][1]);
        struct sink_boot_settings b = read_ok(&e);
        CHECK(b.ignored != NULL && strcmp(b.ignored, cases[i][2]) == 0);
        sink_boot_settings_deinit(&b);
    }
}

static void capture(void *ctx, struct span line)
{
    buf_put_span(ctx, line);
}

/* The line without its time; NUL-terminated. */
static const char *start_line(struct buf *line, const struct sink_settings *s,
                              const struct sink_node_settings *n, struct span tenant, bool json)
{
    buf_reset(line);
    log_install(capture, NULL, line, json);
    sink_settings_log(s, n, tenant);
    log_install(NULL, NULL, NULL, false);
    buf_putc(line, '\0');
    return strchr((const char *)line->ptr, json ? ',' : ' ') + 1;
}

TEST(the_start_line_of_a_file_endpoint)
{
    struct env e = file_env();
    struct buf line = BUF_INIT;
    struct sink_boot_settings b = read_ok(&e);
    struct span tenant = SPAN_LIT("00000000-0000-0000-0000-000000000001");
    CHECK_TEXT(
        span_str(start_line(&line, &b.sink, &b.node, tenant, false)),
        "INFO queen-s3: queen-s3 2.0.0 tenant=00000000-0000-0000-0000-000000000001 sink=default "
        "key_segment_max=255 jsonl_quote_unreadable=true "
        "instance=node-3@host-a(generated) queues=orders partitions=discovery "
        "s3=file:///srv/lake bucket=lake prefix=queen region=- addressing=file sse=off "
        "format=jsonl compression=zstd layout=merged align=hour target_mb=128 "
        "max_window_ms=300000 start=latest checkpoint_every=20 memory_mb=512 "
        "fetch_concurrency=4 discovery_interval_ms=2000 safe_guard_ms=5000 "
        "lease_ttl_ms=30000 multipart_threshold_mb=64 crash_at=never\n");
    sink_boot_settings_deinit(&b);
    buf_deinit(&line);
}

TEST(an_http_endpoint_is_read)
{
    struct env e = http_env();
    set(&e, "PATH_STYLE", "yes");
    set(&e, "SSE", "kms");
    set(&e, "SSE_KMS_KEY_ID", "alias/lake");
    struct sink_boot_settings b = read_ok(&e);
    CHECK(!b.sink.is_file && b.sink.path_style && b.has_sink);
    CHECK(strcmp(b.sink.endpoint, "http://minio:9000") == 0);
    CHECK(strcmp(b.sink.region, "us-east-1") == 0);
    CHECK(strcmp(b.sink.access_key, "AKID-xyzzy") == 0);
    CHECK(strcmp(b.sink.secret_key, "S3CR3T-xyzzy") == 0);
    CHECK(strcmp(b.sink.sse, "aws:kms") == 0);
    CHECK(strcmp(b.sink.sse_kms_key_id, "alias/lake") == 0);
    CHECK_EQ(b.sink.key_segment_max, 1024);
    sink_boot_settings_deinit(&b);
}

TEST(the_start_line_hides_keys)
{
    char *queues[] = {(char[]){"a"}, (char[]){"b"}};
    struct sink_settings s = {
        .queues = queues,
        .n_queues = 2,
        .endpoint = (char[]){"https://s3"},
        .region = (char[]){"eu"},
        .bucket = (char[]){"b"},
        .prefix = (char[]){"p"},
        .access_key = (char[]){"xyzzy"},
        .secret_key = (char[]){"xyzzy"},
        .sse = (char[]){"aws:kms"},
        .sse_kms_key_id = (char[]){"arn:xyzzy-1234"},
        .sink = (char[]){"s"},
        .compression = SINK_GZIP,
        .align = SINK_ALIGN_DAY,
        .start = SINK_EARLIEST,
    };
    struct sink_node_settings n = {.instance = (char[]){"i/node-1"},
                                   .crash_at = SINK_CRASH_MID_UPLOAD};
    struct buf line = BUF_INIT;
    const char *text = start_line(&line, &s, &n, SPAN_LIT("t"), false);
    CHECK(strstr(text, "xyzzy") == NULL);
    CHECK(strstr(text, " instance=i/node-1 queues=a,b partitions=") != NULL);
    CHECK(strstr(text, " region=eu addressing=virtual-host sse=aws:kms(\xE2\x80\xA6"
                       "1234) "
                       "format=jsonl compression=gzip layout=merged align=day ") != NULL);
    CHECK(strstr(text, " start=earliest ") != NULL);
    CHECK(strstr(text, " crash_at=mid_upload") != NULL);
    s.path_style = true;
    s.sse_kms_key_id = (char[]){"k\xC3\xA8"};
    text = start_line(&line, &s, &n, SPAN_LIT("t"), false);
    CHECK(strstr(text, " addressing=path-style sse=aws:kms(\xE2\x80\xA6k\xC3\xA8) ") != NULL);
    queues[0] = (char[]){"odd \"name\"\n"};
    text = start_line(&line, &s, &n, SPAN_LIT("t"), false);
    CHECK(strstr(text, " queues=\"odd \\\"name\\\"\\n,b\" partitions=discovery ") != NULL);
    text = start_line(&line, &s, &n, SPAN_LIT("t"), true);
    CHECK(strstr(text, "\"message\":\"queen-s3 2.0.0\",\"tenant\":\"t\",\"sink\":\"s\",") != NULL);
    CHECK(strstr(text, "xyzzy") == NULL);
    buf_deinit(&line);
}

TEST(every_variable_is_documented)
{
    struct buf docs = BUF_INIT;
    setting_put_docs(&docs);
    buf_putc(&docs, '\0');
    for (unsigned i = 0; i < SETTING_COUNT; i++) {
        char want[80];
        (void)snprintf(want, sizeof(want), "| `%s` |", setting_row((enum setting_id)i)->variable);
        CHECK(strstr((const char *)docs.ptr, want) != NULL);
    }
    CHECK(strstr((const char *)docs.ptr,
                 "| `QUEEN_S3_MAX_WINDOW_MS` | maxWindowMs | int, 100..=86400000 | `300000` | ") !=
          NULL);
    buf_deinit(&docs);
}

TEST_MAIN()
