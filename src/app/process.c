/* Limits of the process, and name resolution. */
#include "app/process.h"

#include "base/buf.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

void process_begin(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) == -1) /* open() takes the lowest free number: this one */
            ASSERT(open("/dev/null", O_RDWR) == fd);
    }
}

unsigned process_prepare(void)
{
    /* Best effort all of it: a container may forbid any. */
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    struct rlimit files = {.rlim_cur = 1024, .rlim_max = 1024};
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        struct rlimit raised = {.rlim_cur = files.rlim_max, .rlim_max = files.rlim_max};
        if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
            files = raised;
    }
    return files.rlim_cur > UINT32_MAX ? UINT32_MAX : (unsigned)files.rlim_cur;
}

void process_hide(void)
{
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

enum err address_resolve(const char *host, char **out, struct error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    char text[INET6_ADDRSTRLEN] = "";
    int failed = getaddrinfo(host, NULL, &hints, &list);
    if (failed == 0)
        failed = getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof(text), NULL, 0,
                             NI_NUMERICHOST);
    if (list != NULL)
        freeaddrinfo(list);
    if (failed != 0)
        return error_set(error, ERR_INVALID, "%s is no address of this machine: %s", host,
                         gai_strerror(failed));
    *out = span_dup(span_str(text));
    return ERR_OK;
}
