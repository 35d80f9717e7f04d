/* What the files of the lake share, and what its tests look at. */
#ifndef SINK_LAKE_INTERNAL_H
#define SINK_LAKE_INTERNAL_H

#include "sink/lake.h"

/* The constant parts of the lines of one run, escaped once. */
struct lake_line_parts {
    struct buf head; /* {"partition":"...","offset": */
    struct buf ts;   /* ,"ts":"...","payload": */
};

void lake_line_parts_set(struct lake_line_parts *p, struct span partition, int64_t stamp);
void lake_line_parts_deinit(struct lake_line_parts *p);
/* lake_jsonl_line() of a record of that run. */
void lake_line_put(struct buf *out, const struct lake_line_parts *p, const struct lake_record *r,
                   bool raw, bool *quoted_out);

/* What a build did, beside its object. */
struct lake_build_stats {
    uint64_t passes;   /* over the window's run heads, to choose what to write next */
    uint64_t streamed; /* partitions too large for the index, written by one more scan each */
    uint64_t index_bytes_max; /* most that the index took */
};

ERR_CHECK enum err lake_build_counted(const struct lake_build_options *options,
                                      struct lake_object *out, struct lake_build_stats *stats_out,
                                      struct error *error);

#endif
