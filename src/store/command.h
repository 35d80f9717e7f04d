/* Commands and entries of the log, version 1.
 *
 * Entry payload, little-endian:
 *   offset size field
 *      0     1  version, 1
 *      1     1  flags, 0
 *      2     2  reserved, 0
 *      4     4  command count, 0 for a clock entry
 *      8     8  clock, us since the epoch, > 0
 *     16   ...  commands: u8 type, u8[3] 0, u32 body length, body
 *
 * A command's `now` is the entry's clock + its position in the entry (docs/architecture.md, Clock).
 */
#ifndef STORE_COMMAND_H
#define STORE_COMMAND_H

#include "base/buf.h"
#include "base/bytes.h"
#include "base/err.h"

#define ENTRY_VERSION 1u
#define ENTRY_HEADER_SIZE 16u
#define COMMAND_HEADER_SIZE 8u

enum command_type {
    COMMAND_PUSH = 1,         /* broker/push.h */
    COMMAND_CONFIGURE = 2,    /* broker/configure.h */
    COMMAND_QUEUE_DELETE = 3, /* broker/configure.h */
    COMMAND_KV = 4,           /* kv/kv.h */
};

/* Where an apply function stands in the log. */
struct apply_context {
    uint64_t index;   /* of the entry */
    uint32_t ordinal; /* of the command in it */
    int64_t now;      /* clock + ordinal */
    uint32_t
        minted; /* ids derived by this command so far (uuid_derive ordinals): internal counter */
};

void entry_header_put(struct buf *out, uint32_t count, int64_t clock);
void command_header_put(struct buf *out, enum command_type type, uint32_t body_len);

struct entry_reader {
    struct cursor in;
    uint32_t count, at;
    int64_t clock;
};

ERR_CHECK enum err entry_reader_init(struct entry_reader *r, struct span payload); /* ERR_CORRUPT */
/* ERR_NOT_FOUND at the end; ERR_CORRUPT. body borrows from the payload. */
ERR_CHECK enum err entry_next(struct entry_reader *r, enum command_type *type_out,
                              struct span *body_out);

#endif
