/* Accepts connections on a thread of its own and hands them to the library's threads.
 *
 * libmicrohttpd 0.9.75 can listen by itself, but stops listening (MHD_quiesce_daemon) by taking the socket out of
 * each worker's epoll set from the caller's thread, while a worker may do the same: one of them then finds it gone
 * and aborts the process. With the socket ours, to stop accepting is to end one thread. */
#ifndef HTTP_ACCEPTOR_H
#define HTTP_ACCEPTOR_H

struct MHD_Daemon;
struct http_acceptor;

/* listen_fd is nonblocking; taken. connections_max: no more are accepted at a time; newcomers wait in the backlog. */
struct http_acceptor *http_acceptor_start(int listen_fd, struct MHD_Daemon *daemon,
                                          unsigned connections_max);
/* Ends the thread and closes the socket: newcomers are refused. Once; before the daemon is stopped. Blocks shortly.
 * NULL is allowed. */
void http_acceptor_stop(struct http_acceptor *a);

#endif
