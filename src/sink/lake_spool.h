/* Where the text of an object goes: compressor, digest, memory, and beyond a limit an unlinked
 * file. */
#ifndef SINK_LAKE_SPOOL_H
#define SINK_LAKE_SPOOL_H

#include "sink/lake.h"

struct lake_spool {
    struct lake_compressor *compressor;
    struct sha256_stream *sha256;
    struct buf out; /* compressed, not yet in the file */
    int fd;         /* -1: everything is in out */
    uint64_t size;  /* compressed bytes so far */
    uint64_t memory_max;
    const char *dir; /* borrowed */
};

void lake_spool_init(struct lake_spool *s, enum sink_compression c, uint64_t memory_max,
                     const char *dir);
void lake_spool_deinit(struct lake_spool *s);
/* ERR_NO_SPACE or ERR_IO, naming the folder. */
ERR_CHECK enum err lake_spool_write(struct lake_spool *s, struct span text, struct error *error);
/* Ends the stream and moves bytes or fd, size and digest to o. */
ERR_CHECK enum err lake_spool_finish(struct lake_spool *s, struct lake_object *o,
                                     struct error *error);

#endif
