/* The process itself: where its log lines go, what it may leave behind, its signals. */
#ifndef APP_PROCESS_H
#define APP_PROCESS_H

#include "base/err.h"
#include "base/span.h"

/* Opens /dev/null for those of the three standard files that are closed: else a file of the store
 * would take their number, and log lines would go into it. Call first of all. */
void process_begin(void);

/* Log lines go to standard output, each in one write(2): a crash loses no line before it. Call
 * before anything that logs. */
void output_install(bool json);

/* Raises the limit of open files as far as it goes and turns transparent huge pages off (they stall
 * allocations of a busy broker for seconds). Returns the number of files this process may open. */
unsigned process_prepare(void);
/* No core dump, no debugger, no reading of /proc/<pid>/environ by others of this user. */
void process_hide(void);

/* SIGTERM and SIGINT are taken by a thread, SIGPIPE is ignored. Call before any thread is started.
 * Until signals_wait() a signal ends the process at once with code 0: nothing was promised yet. */
void signals_begin(void);
/* Blocks until the first signal; its time on the monotonic clock. Later signals are only logged. */
int64_t signals_wait(void);
/* From now on the process ends with code 0 at this time, whatever still runs. */
void signals_set_deadline(int64_t mono_us);
void signals_end(void); /* after signals_wait(): the deadline is off */

/* The address itself, or the first one of a host name. *out is released with mem_free(). Blocks. */
ERR_CHECK enum err address_resolve(const char *host, char **out, struct error *error);

#endif
