/* The table of open connections: how many there may be, and how long each may take.
 *
 * The library's own timer only starts anew with every byte, so a byte a minute keeps a connection
 * for ever. Here each phase of a request has its time, and a body and an answer a least speed:
 *
 *   between requests   the library's idle time; with bytes that never become a request line, the
 *                      idle and the progress time together
 *   headers            the progress time in all
 *   body, answer       something within the progress time, and least_bytes_s a second over each
 *                      such time; answers nobody takes for PRESSED_US go when answers fill memory
 *   in the handler     no limit here: it has deadlines of its own
 *
 * Who has ended its half in the middle of a request is ended too.
 *
 * At the limit a newcomer gets the place of the connection that has waited longest without a
 * request under way: first those that never had an answer, then those between two requests. */
#ifndef HTTP_CONNS_H
#define HTTP_CONNS_H

#include <stdbool.h>
#include <stdint.h>

enum conn_phase { CONN_IDLE, CONN_HEADERS, CONN_BODY, CONN_HANDLED, CONN_ANSWER };

struct http_conns;
struct http_conn;

struct http_conns_options {
    unsigned max;
    unsigned idle_s, progress_s;
    unsigned least_bytes_s;
};

struct http_conns *http_conns_new(const struct http_conns_options *options);
void http_conns_free(struct http_conns *c); /* all closed; NULL is allowed */

/* --- the acceptor's thread --- */

/* Counts a newcomer, to be handed to the library; false: there are `max` already. */
bool http_conns_enter(struct http_conns *c);
/* It was not handed over after all. */
void http_conns_leave(struct http_conns *c);
/* Ends some of the connections that have no request under way; false when there are none. They are
 * gone a moment later. */
bool http_conns_shed(struct http_conns *c);
/* Ends what takes too long. About every http_conns_interval_ms(). */
void http_conns_reap(struct http_conns *c, bool pressed);
int http_conns_interval_ms(const struct http_conns *c);

/* --- the library's threads --- */

struct http_conn *http_conn_open(struct http_conns *c, int fd); /* it entered before */
/* Before fd is closed. */
void http_conn_close(struct http_conns *c, struct http_conn *conn);
void http_conn_set_phase(struct http_conn *conn, enum conn_phase phase);
enum conn_phase http_conn_phase(const struct http_conn *conn);

#endif
