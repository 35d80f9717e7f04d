/* Whether a request line and headers are what RFC 9112 calls well-formed, and what they say about
 * the body: the library (0.9.75) is lenient where two readers of the same bytes could disagree. */
#ifndef HTTP_FRAMING_H
#define HTTP_FRAMING_H

#include "base/span.h"

struct MHD_Connection;

struct http_framing {
    const char *wrong; /* NULL: fine; else the text of the 400 */
    bool has_body;
    bool chunked;
    uint64_t length; /* announced; UINT64_MAX when chunked */
};

/* target: of the request line, as it came; target_at, version: where the library has it and what
 * follows it. */
struct http_framing http_framing_read(struct MHD_Connection *connection, struct span target,
                                      const char *target_at, const char *version);

#endif
