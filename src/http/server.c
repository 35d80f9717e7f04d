/* The server's life: its socket, the library's threads, the acceptor, and the end of them. */
#include "http/internal.h"

#include "base/mem.h"
#include "http/acceptor.h"
#include "http/conns.h"
#include "http/linger.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

/* Of the library, per connection: larger headers are 431. */
#define CONNECTION_MEMORY (16u * 1024)
#define IDLE_TIMEOUT_S 75
#define PROGRESS_TIMEOUT_S 60
#define LEAST_BYTES_S 1024
#define ANSWERS_MAX (128u * 1024 * 1024)
#define STOP_WAIT_MS 5000 /* for answers that are still being written when the server stops */

static struct MHD_Daemon *start_daemon(struct http_server *s)
{
    const struct http_options *o = &s->options;
    /* A pool of one is not a pool: the library wants two threads at least for that option. */
    struct MHD_OptionItem pool[] = {
        {o->threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, (intptr_t)o->threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    return MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_NO_LISTEN_SOCKET, 0,
        NULL, NULL, http_on_call, s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_CONNECTION_LIMIT, 2 * o->connections_max + o->threads, /* ours comes first */
        MHD_OPTION_CONNECTION_TIMEOUT, o->idle_timeout_s, MHD_OPTION_NOTIFY_CONNECTION,
        http_connection_changed, s, MHD_OPTION_NOTIFY_COMPLETED, http_completed, s,
        MHD_OPTION_URI_LOG_CALLBACK, http_uri_received, s, MHD_OPTION_UNESCAPE_CALLBACK,
        http_keep_escapes, NULL, MHD_OPTION_ARRAY, pool, MHD_OPTION_END);
}

static void or_default(unsigned *option, unsigned value)
{
    if (*option == 0)
        *option = value;
}

static struct http_conns *make_conns(const struct http_options *o)
{
    const struct http_conns_options options = {.max = o->connections_max,
                                               .idle_s = o->idle_timeout_s,
                                               .progress_s = o->progress_timeout_s,
                                               .least_bytes_s = o->least_bytes_s};
    return http_conns_new(&options);
}

static bool answers_press(void *ctx)
{
    const struct http_server *s = ctx;
    return atomic_load(&s->answers) >= s->options.answers_max;
}

static void server_free(struct http_server *s)
{
    http_linger_free(s->linger);
    http_conns_free(s->conns);
    mem_free(s);
}

enum err http_server_start(const struct http_options *options, struct http_server **out,
                           struct error *error)
{
    struct http_server *s = mem_new(sizeof(*s));
    s->options = *options;
    or_default(&s->options.idle_timeout_s, IDLE_TIMEOUT_S);
    or_default(&s->options.progress_timeout_s, PROGRESS_TIMEOUT_S);
    or_default(&s->options.least_bytes_s, LEAST_BYTES_S);
    if (s->options.answers_max == 0)
        s->options.answers_max = ANSWERS_MAX;
    int listen_fd = -1;
    enum err err = http_listen(options->address, options->port, &listen_fd, &s->port, error);
    if (err != ERR_OK) {
        mem_free(s);
        return err;
    }
    sigset_t all,
        before; /* signals are the main thread's: the library's threads inherit the mask */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    s->conns = make_conns(&s->options);
    s->linger = http_linger_new();
    s->daemon = start_daemon(s);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (s->daemon == NULL) {
        (void)close(listen_fd);
        server_free(s);
        return error_set(error, ERR_IO, "the HTTP server did not start: %s",
                         strerrordesc_np(errno));
    }
    const struct http_acceptor_options acceptor = {.listen_fd = listen_fd,
                                                   .daemon = s->daemon,
                                                   .conns = s->conns,
                                                   .linger = s->linger,
                                                   .pressed = answers_press,
                                                   .ctx = s};
    s->acceptor = http_acceptor_start(&acceptor);
    *out = s;
    return ERR_OK;
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_quiesce(struct http_server *s)
{
    if (atomic_exchange(&s->quiescing, true))
        return;
    http_acceptor_stop(s->acceptor);
}

size_t http_server_inflight(const struct http_server *s)
{
    return atomic_load(&s->inflight);
}

static void sleep_ms(long ms)
{
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    (void)nanosleep(&pause, NULL);
}

void http_server_stop(struct http_server *s)
{
    if (s == NULL)
        return;
    http_server_quiesce(s);
    while (atomic_load(&s->unanswered) > 0)
        sleep_ms(1);
    for (unsigned waited = 0; atomic_load(&s->inflight) > 0 && waited < STOP_WAIT_MS; waited++)
        sleep_ms(1);
    MHD_stop_daemon(s->daemon);
    server_free(s);
}
