/* Accepts connections on a thread of its own and hands them to the library's threads.
 *
 * libmicrohttpd 0.9.75 can listen by itself, but stops listening (MHD_quiesce_daemon) by taking the socket out of
 * each worker's epoll set from the caller's thread, while a worker may do the same: one of them then finds it gone
 * and aborts the process. With the socket ours, to stop accepting is to end one thread. */
#ifndef HTTP_ACCEPTOR_H
#define HTTP_ACCEPTOR_H

#include "base/err.h"

#include <stdint.h>

struct MHD_Daemon;
struct http_acceptor;
struct http_conns;
struct http_linger;

/* A listening socket, nonblocking. port 0: any free one; *port_out is what it is. */
ERR_CHECK enum err http_listen(const char *address, uint16_t port, int *fd_out, uint16_t *port_out,
                               struct error *error);

struct http_acceptor_options {
    int listen_fd; /* taken */
    struct MHD_Daemon *daemon;
    struct http_conns *conns;   /* who is there, and how long they may be */
    struct http_linger *linger; /* for those that are told there is no room */
    /* Whether answers fill memory, so that what nobody takes must go. */
    bool (*pressed)(void *ctx);
    void *ctx;
};

struct http_acceptor *http_acceptor_start(const struct http_acceptor_options *options);
/* Ends the thread and closes the socket: newcomers are refused. Once; before the daemon is stopped.
 * Blocks shortly. NULL is allowed. */
void http_acceptor_stop(struct http_acceptor *a);

#endif
