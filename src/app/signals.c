/* Signals, taken by a thread of their own so that no handler ever runs inside other code.
 *
 *   booting ──signals_wait()──► serving ──first signal──► stopping ──signals_end()──► ended
 *      └── signal: exit 0 at once                            └── deadline: exit 0 at once
 *
 * Ending at once is safe in both places: what was acknowledged is in the write-ahead log, and a
 * start after it is a start after a crash. */
#include "app/process.h"

#include "base/log.h"
#include "io/clock.h"
#include "io/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 20000000 /* 20 ms: how exact the deadline is */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum { BOOTING, SERVING, STOPPING, ENDED } state;
    int64_t first_us;    /* of the first signal; 0 = none */
    int64_t deadline_us; /* INT64_MAX = none */
    struct thread *thread;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .deadline_us = INT64_MAX};

static void on_signal(int number)
{
    const char *name = number == SIGINT ? "SIGINT" : "SIGTERM";
    if (shared.state == BOOTING) {
        log_msg(LOG_INFO, "shutdown", "%s during the boot: nothing to finish", name);
        _exit(0);
    }
    if (shared.first_us > 0) {
        log_msg(LOG_INFO, "shutdown", "%s again: the shutdown goes on", name);
        return;
    }
    log_msg(LOG_INFO, "shutdown", "%s: shutting down", name);
    shared.first_us = clock_mono_us(clock_real());
    shared.state = STOPPING;
    pthread_cond_broadcast(&shared.changed);
}

static void signals_main(void *ctx)
{
    const sigset_t *set = ctx;
    bool ended = false, stopping = false;
    while (!ended) {
        int number = sigtimedwait(set, NULL, stopping ? &(struct timespec){0, POLL_NS} : NULL);
        pthread_mutex_lock(&shared.lock);
        if (number > 0)
            on_signal(number);
        stopping = shared.state >= STOPPING;
        ended = shared.state == ENDED;
        bool late = !ended && clock_mono_us(clock_real()) >= shared.deadline_us;
        pthread_mutex_unlock(&shared.lock);
        if (late) {
            log_msg(LOG_WARN, "shutdown",
                    "out of time: ending as after a crash, which loses nothing");
            _exit(0);
        }
    }
}

void signals_begin(void)
{
    static sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    ASSERT(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0); /* inherited by every thread */
    (void)signal(SIGPIPE, SIG_IGN);
    cond_init_mono(&shared.changed);
    shared.thread = thread_start("signals", signals_main, &set);
}

int64_t signals_wait(void)
{
    pthread_mutex_lock(&shared.lock);
    if (shared.state == BOOTING)
        shared.state = SERVING;
    while (shared.first_us == 0)
        pthread_cond_wait(&shared.changed, &shared.lock);
    int64_t at = shared.first_us;
    pthread_mutex_unlock(&shared.lock);
    return at;
}

void signals_set_deadline(int64_t mono_us)
{
    pthread_mutex_lock(&shared.lock);
    shared.deadline_us = mono_us;
    pthread_mutex_unlock(&shared.lock);
}

void signals_end(void)
{
    pthread_mutex_lock(&shared.lock);
    shared.state = ENDED;
    pthread_mutex_unlock(&shared.lock);
    thread_join(shared.thread);
    shared.thread = NULL;
}
