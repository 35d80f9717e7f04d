/* A small blocking HTTP client for the subcommands: one keep-alive connection, answers with a
 * length. */
#ifndef APP_CLIENT_H
#define APP_CLIENT_H

#include "base/buf.h"
#include "base/err.h"

struct client;

/* url: http://host[:port], nothing after. Connects. */
ERR_CHECK enum err client_open(struct span url, struct client **out, struct error *error);
void client_close(struct client *c); /* NULL is allowed */

/* Sends a JSON body and reads the answer into `answer` (reset first). ERR_IO when there is none. */
ERR_CHECK enum err client_post(struct client *c, const char *path, struct span body,
                               unsigned *status_out, struct buf *answer, struct error *error);

#endif
