/* The sink's KV documents (spec/sink.md 4, decisions.md 13): keys, JSON, parsing.
 *
 * Namespace "queen-s3", in the tenant of the queue. Values are written in the KV store's normal
 * form (compact, keys sorted). Parsed documents are what a restart or another node left behind:
 * nothing of them is trusted. */
#ifndef SINK_DOCUMENTS_H
#define SINK_DOCUMENTS_H

#include "sink/lake.h"

#define SINK_NAMESPACE SPAN_LIT("queen-s3")

/* s3:<sink>:<esc queue>:lease|intent|committed */
void sink_key_lease(struct buf *out, struct span sink, struct span queue);
void sink_key_intent(struct buf *out, struct span sink, struct span queue);
void sink_key_committed(struct buf *out, struct span sink, struct span queue);
/* s3:<sink>:node= and, with the instance behind it, the key of one presence row. */
void sink_key_presence_prefix(struct buf *out, struct span sink);
void sink_key_presence(struct buf *out, struct span sink, struct span instance);

/* Lease and presence rows. */
struct sink_lease {
    struct span instance, incarnation;
    int64_t since_ms; /* wall clock of the claim */
    struct buf text;  /* owned by a parsed one: what the spans point into */
};

void sink_lease_put(struct buf *out, const struct sink_lease *lease);
ERR_CHECK enum err sink_lease_parse(struct span value, struct sink_lease *out); /* ERR_INVALID */
void sink_lease_deinit(struct sink_lease *lease);

/* Fixes a window before anything of it is uploaded. k = 0: T0 of start=latest, t_start = t_end =
 * T0. */
struct sink_intent {
    uint64_t k;
    int64_t t_start, t_end;
    enum sink_format format;
    enum sink_compression compression;
    enum sink_layout layout;
    enum sink_align align;
    struct span writer, endpoint, bucket, prefix;
    uint32_t segment_max;
    uint64_t queue_id;
    bool lost_only;
    bool unknown;    /* parsed: names a format, compression, layout or align of a newer version */
    struct buf text; /* as above */
};

void sink_intent_put(struct buf *out, const struct sink_intent *intent);
/* ERR_INVALID. */
ERR_CHECK enum err sink_intent_parse(struct span value, struct sink_intent *out);
void sink_intent_deinit(struct sink_intent *intent);
bool sink_intent_raw(const struct sink_intent *intent); /* quoting was off: told by the writer */

/* The commit pointer. */
struct sink_committed {
    uint64_t k;
    int64_t t_end;
    struct span manifest; /* key */
    uint64_t records, bytes;
    int64_t committed_at_ms; /* wall */
    struct buf text;         /* as above */
};

void sink_committed_put(struct buf *out, const struct sink_committed *committed);
/* tEnd as ISO string or as integer microseconds. ERR_INVALID. */
ERR_CHECK enum err sink_committed_parse(struct span value, struct sink_committed *out);
void sink_committed_deinit(struct sink_committed *committed);

#endif
