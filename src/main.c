/* The program: reads the settings, wires the modules together, stops them in order.
 *
 * Boot: log writer, settings, process limits, signals, disk, node (recovery), API, bucket, sink,
 * listener. Each may refuse, in one FATAL line with exit code 1. An open port means that recovery
 * finished.
 *
 * Stop, from the first SIGTERM or SIGINT on (docs/operations.md): the sink's drain begins; beside
 * it the listener closes, the API answers what waits and requests in flight finish; then the sink
 * is awaited up to the grace, which counts from the signal; then the node ends with a last
 * checkpoint. The process ends with code 0 within the grace and a second, whatever is stuck.
 *
 * A storage failure while it runs stops the node, not the process: /health answers 503. */
#include "api/api.h"
#include "app/process.h"
#include "app/push.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "io/executor.h"
#include "io/pool.h"
#include "manual.h"
#include "s3/bucket.h"
#include "s3/s3_client.h"
#include "sink/settings_table.h"
#include "sink/sink.h"

#include <unistd.h>

#define BLOCK_CACHE_BYTES (64u * 1024 * 1024)  /* state database: reads of rows not in memory */
#define WRITE_BUFFER_BYTES (16u * 1024 * 1024) /* small, to recover soon from a full disk */
#define CONNECTIONS_MAX 16384u                 /* their buffers alone are 256 MiB */
#define LOG_FILES_MAX 512u                     /* of queue logs kept open */
#define DB_FILES_MAX 256u
#define BALLAST_BYTES (128u * 1024 * 1024) /* given up when the disk is full */
#define READER_THREADS 4u
#define TRANSFER_THREADS 2u /* of a bucket in a folder: they wait for the disk */
#define GRACE_MS 10000      /* without a sink: to answer what is in flight, and a checkpoint */
#define OVERTIME_US 800000  /* after the grace; the promise is one second */
#define DRAIN_POLL_US 5000

#ifdef QUEEN_JEMALLOC
extern const char *malloc_conf;
const char *malloc_conf = "background_thread:true"; /* freed memory goes back off the hot paths */
#endif

extern char **environ;

/* Everything of a running broker, in the order it is made. */
struct broker {
    struct config config;
    struct sink_boot_settings sink_settings;
    unsigned cores;
    struct {
        unsigned connections, logs, db;
    } files; /* shares of what may be open at once */
    char *address;
    char *db_path;
    struct disk *disk;
    struct node *node;
    struct pool *builds, *transfers; /* of the sink: so that a long build holds up no upload */
    struct pool_executor build_executor, transfer_executor;
    struct sink *sink;
    struct api *api;
    struct http_server *http;
};

/* --- settings --- */

static struct config_env environment(void)
{
    struct config_env env = {.list = (const char *const *)environ};
    entropy_fill(entropy_real(), &env.random, sizeof(env.random));
    return env;
}

/* The one line of a refused boot, whatever the log filter says. */
static int fatal(const struct error *error)
{
    (void)log_set_filter(SPAN_LIT("error"));
    log_msg(LOG_ERROR, "boot", "FATAL: %s", error->text);
    return 1;
}

static void add_name(struct buf *list, struct span name)
{
    buf_puts(list, list->len == 0 ? "" : ", ");
    buf_put_span(list, name);
}

static bool is_sink_setting(struct span name)
{
    for (unsigned id = 0; id < SETTING_COUNT; id++) {
        if (span_eq(name, span_str(setting_row((enum setting_id)id)->variable)))
            return true;
    }
    return false;
}

/* Ours by the look of its name, and told of by nobody else. Kubernetes makes others for a service
 * called "queen-s3". */
static bool is_unknown_sink_setting(struct span name)
{
    static const char *const others[] = {"QUEEN_S3_EMBEDDED", "QUEEN_S3_LISTEN",
                                         "QUEEN_S3_LOG_FORMAT"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (span_eq(name, span_str(others[i])))
            return false;
    }
    return span_starts_with(name, SPAN_LIT("QUEEN_S3_")) && !is_sink_setting(name) &&
           !span_starts_with(name, SPAN_LIT("QUEEN_S3_SERVICE_")) &&
           !span_starts_with(name, SPAN_LIT("QUEEN_S3_PORT"));
}

/* A sink that does not do what was meant, for want of one word, is heard of here only. */
static void log_sink_names(const struct broker *b, const struct config_env *env)
{
    struct buf unread = BUF_INIT, unknown = BUF_INIT;
    bool embedded = b->sink_settings.node.embedded;
    for (const char *const *entry = env->list; *entry != NULL; entry++) {
        const char *equals = strchr(*entry, '=');
        if (equals == NULL || span_trim(span_str(equals + 1)).len == 0)
            continue;
        struct span name = span_make(*entry, (size_t)(equals - *entry));
        if (is_sink_setting(name) && !embedded)
            add_name(&unread, name);
        else if (is_unknown_sink_setting(name))
            add_name(&unknown, name);
    }
    if (unknown.len > 0)
        log_msg(LOG_WARN, "boot", "unknown settings, ignored: " SPAN_FMT,
                SPAN_ARG(buf_span(&unknown)));
    if (unread.len > 0)
        log_msg(LOG_WARN, "boot",
                "QUEEN_S3_EMBEDDED is not true, so there is no sink to read " SPAN_FMT,
                SPAN_ARG(buf_span(&unread)));
    if (embedded && !b->sink_settings.has_sink)
        log_msg(LOG_WARN, "boot",
                "QUEEN_S3_EMBEDDED is true, but QUEEN_S3_QUEUES is not set: "
                "nothing is mirrored");
    buf_deinit(&unread);
    buf_deinit(&unknown);
}

/* Reads and shows the settings; both halves are refused before anything is touched. */
static enum err read_settings(struct broker *b, struct error *error)
{
    struct config_env env = environment();
    char host[256] = "";
    (void)gethostname(host, sizeof(host) - 1); /* display only: an empty name is survived */
    output_install(config_peek_log_json(&env));
    b->cores = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    TRY(config_read(&env, &b->config, error));
    TRY(sink_settings_read(config_env_get, &env, b->config.node_id, host, b->cores,
                           &b->sink_settings, error));
    TRY(config_check_built(&env, error));
    TRY(sink_settings_check_built(&b->sink_settings, error));
    bool filter_good = log_set_filter(span_str(b->config.log_filter));
    config_log(&b->config, &env);
    log_sink_names(b, &env);
    if (!filter_good)
        log_msg(LOG_WARN, "boot", "log filter \"%s\" does not parse: \"info\" is used",
                b->config.log_filter);
    return ERR_OK;
}

/* --- boot --- */

static unsigned at_most(unsigned a, unsigned max)
{
    return a < max ? a : max;
}

/* Half of the open files for clients, an eighth each for queue logs and the database, and the rest
 * for everything else: a node that runs out of them inside an entry has to stop. */
static void share_files(struct broker *b, unsigned files)
{
    b->files.logs = at_most(files / 8, LOG_FILES_MAX);
    b->files.db = at_most(files / 8, DB_FILES_MAX);
    b->files.connections = at_most(files / 2, CONNECTIONS_MAX);
}

static enum err open_db(void *ctx, struct db **out, struct error *error)
{
    const struct broker *b = ctx;
    const struct db_rocks_options options = {
        .path = b->db_path,
        .block_cache_bytes = BLOCK_CACHE_BYTES,
        .write_buffer_bytes = node_write_buffer_bytes(b->disk, BALLAST_BYTES, WRITE_BUFFER_BYTES),
        .open_files_max = b->files.db,
    };
    return db_rocks_open(&options, out, error);
}

/* A disk that is too full to open anything on it is waited for; a signal ends that. */
static enum err open_node(struct broker *b, const struct node_options *options, struct error *error)
{
    for (bool said = false;; said = true) {
        enum err err = node_open(options, &b->node, error);
        if (err != ERR_NO_SPACE)
            return err;
        if (!said)
            log_msg(LOG_ERROR, "boot", "the disk is full, waiting for room: %s", error->text);
        (void)nanosleep(&(const struct timespec){.tv_sec = 1}, NULL);
    }
}

static enum err start_node(struct broker *b, struct error *error)
{
    const struct config *c = &b->config;
    struct node_options options;
    struct buf path = BUF_INIT;
    buf_printf(&path, "%s/state", c->dir);
    b->db_path = span_dup(buf_span(&path));
    buf_deinit(&path);

    node_options_default(&options);
    enum err err = disk_real_open(c->dir, &b->disk, error);
    if (err == ERR_OK) {
        options.disk = b->disk;
        options.open_db = open_db;
        options.db_ctx = b;
        options.clock = clock_real();
        options.entropy = entropy_real();
        options.segment_bytes = c->segment_bytes;
        options.durable_every_ms = c->durable_every_ms;
        options.durable_every_bytes = c->durable_every_bytes;
        options.entry_max_bytes = c->entry_max_bytes;
        options.batch_max_commands = (uint32_t)c->batch_max_commands;
        options.batch_max_bytes = c->batch_max_bytes;
        options.disk_high_pct = c->disk_high_pct;
        options.disk_low_pct = c->disk_low_pct;
        options.log_handles_max = b->files.logs;
        options.ballast_bytes = BALLAST_BYTES;
        options.open_behind = true;
        err = open_node(b, &options, error);
    }
    if (err != ERR_OK)
        error_wrap(error, "QUEEN_RAFT_DIR=%s", c->dir);
    return err;
}

static enum err open_folder(struct broker *b, struct bucket **out, struct error *error)
{
    const struct sink_boot_settings *s = &b->sink_settings;
    const struct file_bucket_options options = {
        .path = span_str(s->sink.endpoint + strlen("file://")),
        .bucket = span_str(s->sink.bucket),
        .instance = span_str(s->node.instance),
        .executor = &b->transfer_executor.base,
        .clock = clock_real(),
        .entropy = entropy_real(),
    };
    return file_bucket_open(&options, out, error);
}

static struct span text_or_empty(const char *text)
{
    return text != NULL ? span_str(text) : (struct span){NULL, 0};
}

static enum s3_sse sse_of(const struct sink_settings *s)
{
    if (s->sse == NULL)
        return S3_SSE_OFF;
    return strcmp(s->sse, "AES256") == 0 ? S3_SSE_AES256 : S3_SSE_KMS;
}

/* SSL_CERT_FILE and SSL_CERT_DIR as everywhere with OpenSSL: the authorities to trust, instead of
 * the system's file and folder. */
static enum err open_s3(struct broker *b, struct bucket **out, struct error *error)
{
    const struct sink_boot_settings *boot = &b->sink_settings;
    const struct sink_settings *s = &boot->sink;
    const struct s3_client_options options = {
        .endpoint = span_str(s->endpoint),
        .region = span_str(s->region),
        .bucket = span_str(s->bucket),
        .access_key = span_str(s->access_key),
        .secret_key = span_str(s->secret_key),
        .path_style = s->path_style,
        .sse = sse_of(s),
        .kms_key_id = text_or_empty(s->sse_kms_key_id),
        .multipart_threshold = boot->node.multipart_threshold_mb << 20,
        .ca_file = text_or_empty(getenv("SSL_CERT_FILE")),
        .ca_dir = text_or_empty(getenv("SSL_CERT_DIR")),
        .clock = clock_real(),
        .entropy = entropy_real(),
    };
    enum err err = s3_client_open(&options, out, error);
    if (err != ERR_OK)
        error_wrap(error, "QUEEN_S3_EMBEDDED=true: QUEEN_S3_ENDPOINT");
    return err;
}

static enum err open_bucket(struct broker *b, struct bucket **out, struct error *error)
{
    return b->sink_settings.sink.is_file ? open_folder(b, out, error) : open_s3(b, out, error);
}

/* Production: the line is written by the sink, the state left behind is what a crash leaves. */
static void crash(void *ctx, enum sink_crash_point point)
{
    (void)ctx;
    (void)point;
    abort();
}

static enum err start_sink(struct broker *b, struct error *error)
{
    struct bucket *bucket = NULL;
    if (!b->sink_settings.node.embedded)
        return ERR_OK;
    b->builds = pool_new("queen-s3", (unsigned)b->sink_settings.node.threads);
    b->transfers = pool_new("queen-s3", TRANSFER_THREADS);
    pool_executor_init(&b->build_executor, b->builds);
    pool_executor_init(&b->transfer_executor, b->transfers);
    if (b->sink_settings.has_sink)
        TRY(open_bucket(b, &bucket, error));
    const struct sink_options options = {
        .node = b->node,
        .clock = clock_real(),
        .entropy = entropy_real(),
        .executor = &b->build_executor.base,
        .bucket = bucket,
        .settings = &b->sink_settings,
        .spool_dir = b->config.dir,
        .crash = crash,
    };
    return sink_start(&options, &b->sink, error);
}

static void sink_status(void *ctx, struct buf *out)
{
    const struct broker *b = ctx;
    sink_status_put(b->sink, out);
}

static void sink_metrics(void *ctx, struct buf *out)
{
    const struct broker *b = ctx;
    sink_metrics_put(b->sink, out);
}

/* Before the sink: whoever has a hook in the node adds it before the first command. The sink is
 * asked for its parts only once there is a listener. */
static void make_api(struct broker *b)
{
    const struct config *c = &b->config;
    bool with_sink = b->sink_settings.node.embedded;
    const struct api_options options = {
        .node = b->node,
        .clock = clock_real(),
        .entropy = entropy_real(),
        .sink_status = with_sink ? sink_status : NULL,
        .sink_metrics = with_sink ? sink_metrics : NULL,
        .sink_ctx = b,
        .json_depth_max = (unsigned)c->max_json_depth,
        .admit_max_bytes = c->admit_max_mb * 1024 * 1024,
        .admit_hold_ms = c->admit_hold_ms,
        .request_timeout_ms = c->request_timeout_ms,
        .entry_max_bytes = c->entry_max_bytes,
        .reader_threads = READER_THREADS,
        .kv_value_max = (uint32_t)c->kv_value_max,
        .kv_ops_max = (uint32_t)c->kv_ops_max,
        .kv_keys_max = (uint32_t)c->kv_keys_max,
        .kv_read_rate = c->kv_read_rate,
        .kv_read_burst = c->kv_read_burst,
        .kv_write_rate = c->kv_write_rate,
        .kv_write_burst = c->kv_write_burst,
        .version = QUEEN_VERSION,
    };
    b->api = api_new(&options);
}

static enum err start_listener(struct broker *b, struct error *error)
{
    const struct http_options options = {
        .address = b->address,
        .port = (uint16_t)b->config.port,
        .threads = b->cores,
        .body_max = b->config.max_body_bytes,
        .connections_max = b->files.connections,
        .handler = api_handle,
        .admit = api_admit,
        .arriving = api_arriving,
        .aborted = api_aborted,
        .ctx = b->api,
    };
    enum err err = http_server_start(&options, &b->http, error);
    if (err != ERR_OK)
        error_wrap(error, "PORT=%u", (unsigned)b->config.port);
    return err;
}

static enum err resolve_address(struct broker *b, struct error *error)
{
    enum err err = address_resolve(b->config.bind_addr, &b->address, error);
    if (err != ERR_OK)
        error_wrap(error, "QUEEN_BIND_ADDR");
    return err;
}

static enum err start(struct broker *b, struct error *error)
{
    TRY(resolve_address(b, error));
    TRY(start_node(b, error));
    make_api(b);
    TRY(start_sink(b, error));
    return start_listener(b, error);
}

/* --- stop --- */

/* Until every request was answered; not past `until`, when the sink needs what is left of the
 * grace. */
static void await_requests(struct broker *b, int64_t until)
{
    while (http_server_inflight(b->http) > 0 && clock_mono_us(clock_real()) < until)
        (void)usleep(DRAIN_POLL_US);
    size_t left = http_server_inflight(b->http);
    if (left > 0)
        log_msg(LOG_WARN, "shutdown", "%zu requests are not answered yet", left);
}

/* Whatever was made; also after a refused boot. The node ends first, and is freed last: it calls
 * into the API and the sink, and they read from it. */
static void stop(struct broker *b)
{
    http_server_stop(b->http);
    node_end(b->node);
    sink_free(b->sink);
    api_free(b->api);
    pool_free(b->builds);
    pool_free(b->transfers);
    node_close(b->node);
    disk_real_close(b->disk);
}

static void shut_down(struct broker *b, int64_t signal_us)
{
    uint64_t grace_ms = b->sink != NULL ? b->sink_settings.node.shutdown_grace_ms : GRACE_MS;
    int64_t grace_us = (int64_t)grace_ms * 1000;
    int64_t deadline = signal_us + grace_us;
    int64_t kept_back =
        grace_us / 4 < 1000000 ? grace_us / 4 : 1000000; /* sink_wait()'s last part */
    signals_set_deadline(deadline + OVERTIME_US);
    if (b->sink != NULL)
        sink_drain(b->sink);
    http_server_quiesce(b->http);
    api_drain(b->api);
    await_requests(b, deadline - kept_back);
    log_msg(LOG_INFO, "shutdown", "listener closed");
    if (b->sink != NULL)
        (void)sink_wait(b->sink, deadline); /* it says itself when it was cut */
    stop(b);
}

static void deinit(struct broker *b)
{
    sink_boot_settings_deinit(&b->sink_settings);
    config_deinit(&b->config);
    mem_free(b->address);
    mem_free(b->db_path);
}

/* --- commands --- */

static void log_listening(const struct broker *b)
{
    struct log_line l;
    log_begin(&l, LOG_INFO, "boot", "listening");
    log_str(&l, "address", span_str(b->address));
    log_u64(&l, "port", http_server_port(b->http));
    log_str(&l, "version", span_str(QUEEN_VERSION));
    log_end(&l);
}

static int serve(void)
{
    struct broker b = {0};
    struct error error = {0};
    enum err err = read_settings(&b, &error);
    if (err != ERR_OK) {
        deinit(&b);
        return fatal(&error);
    }
    share_files(&b, process_prepare());
    if (b.config.has_secrets && !b.config.core_dumps)
        process_hide();
    signals_begin();
    err = start(&b, &error);
    if (err != ERR_OK) {
        stop(&b);
        deinit(&b);
        return fatal(&error);
    }
    log_listening(&b);
    int64_t signal_us = signals_wait();
    shut_down(&b, signal_us);
    log_msg(LOG_INFO, "shutdown", "done");
    signals_end();
    deinit(&b);
    return 0;
}

static int check_config(void)
{
    struct broker b = {0};
    struct error error = {0};
    enum err err = read_settings(&b, &error);
    if (err == ERR_OK)
        err = resolve_address(&b, &error);
    if (err == ERR_OK && b.sink_settings.has_sink)
        sink_settings_log(&b.sink_settings.sink, &b.sink_settings.node,
                          SPAN_LIT("00000000-0000-0000-0000-000000000001"));
    deinit(&b);
    if (err != ERR_OK)
        return fatal(&error);
    log_msg(LOG_INFO, "boot", "the settings are accepted");
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } commands[] = {
        {"check-config", check_config},
        {"--help", manual_help},
        {"-h", manual_help},
        {"help", manual_help},
        {"--version", manual_version},
        {"-V", manual_version},
        {"version", manual_version},
        {"--settings-doc", manual_settings},
        {"--api-doc", manual_api},
        {"--metrics-doc", manual_metrics},
    };
    process_begin();
    if (argc < 2)
        return serve();
    const char *name = argv[1], *why = "unknown command";
    if (strcmp(name, "push") == 0) {
        const char *port = getenv("PORT");
        return push_command(argc - 2, argv + 2, port != NULL && port[0] != 0 ? port : "6632");
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(name, commands[i].name) != 0)
            continue;
        if (argc == 2)
            return commands[i].run();
        if (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)
            return manual_help();
        why = "takes no arguments";
    }
    if (strcmp(name, "lake") == 0)
        why = "not built yet";
    fprintf(stderr, "queen: %s: %s; see queen --help\n", name, why);
    return 2;
}
