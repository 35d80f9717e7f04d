/* From what a failed bucket request shows to the sentence that an operator needs: what is wrong,
 * and which setting to change (docs/operations.md, "When the bucket does not answer"). Pure.
 *
 * Sentences hold settings' names and, of their values, only endpoint, region, bucket and
 * encryption; what the server said stands in them as bucket_clue cleaned it. */
#ifndef SINK_BUCKET_HINT_H
#define SINK_BUCKET_HINT_H

#include "s3/bucket.h"
#include "sink/settings.h"

enum bucket_cause {
    CAUSE_UNKNOWN,
    CAUSE_STORE,      /* the store's own trouble: 5xx, 429 */
    CAUSE_PERMISSION, /* the key may not do that */
    CAUSE_OBJECT,     /* this object: its encryption or its key */
    /* What fails every request, until somebody changes a setting, a certificate or a clock: */
    CAUSE_REGION,
    CAUSE_ADDRESSING, /* path or virtual-host style */
    CAUSE_KEYS,       /* access or secret key */
    CAUSE_CLOCK,
    CAUSE_BUCKET,   /* there is none of that name */
    CAUSE_ENDPOINT, /* no way to it, its certificate, or what is there is no S3 store */
};

static inline bool bucket_cause_is_fatal(enum bucket_cause cause)
{
    return cause >= CAUSE_REGION;
}

struct bucket_symptom {
    const char *op;  /* bucket_attempt_label() */
    unsigned status; /* HTTP; 0: no answer */
    struct span error, key;
    const struct bucket_clue *clue;
    int64_t now_us;       /* our wall clock, when the answer came */
    bool answered_before; /* the endpoint gave an HTTP answer since the start */
    bool list_works;      /* a LIST beside it succeeded */
};

/* Appends the sentence, or nothing when there is nothing to say. */
enum bucket_cause bucket_hint_put(struct buf *out, const struct sink_settings *set,
                                  const struct bucket_symptom *s);

/* Is virtual-host style asked for in front of an IP address? That never works. */
bool bucket_hint_needs_path_style(const struct sink_settings *set);

#endif
