/* Connections that were answered before their body was read: read on for a while before they are
 * closed, or the kernel answers what still arrives with a reset, which may destroy the answer on
 * its way (RFC 9112 9.6). */
#ifndef HTTP_LINGER_H
#define HTTP_LINGER_H

struct http_linger;

struct http_linger *http_linger_new(void); /* starts a thread */
/* Takes fd, a socket whose sending half is or will soon be shut: what comes is thrown away until
 * the peer closes it, for LINGER_MS and LINGER_BYTES at most. Any thread, never blocks. */
void http_linger_take(struct http_linger *l, int fd);
void http_linger_free(struct http_linger *l); /* closes the rest; NULL is allowed */

#endif
