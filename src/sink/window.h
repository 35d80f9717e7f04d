/* The window being filled: what is known of its records, and the rules of closing it (spec/sink.md
 * 12).
 *
 * The log of a queue is sorted by stamp, so a window needs no index while it fills: it is a range
 * of the log, from `from` to `position`, and a few sums. `frontier` says how far time has been
 * looked at: every record of the queue with t_prev <= stamp < frontier is counted. Pure. */
#ifndef SINK_WINDOW_H
#define SINK_WINDOW_H

#include "sink/settings.h"

#include <stdint.h>

#define WINDOW_NO_START INT64_MIN /* t_prev of start=earliest before the first window */
#define WINDOW_NEVER INT64_MAX

struct window_rules {
    enum sink_align align;
    int64_t guard_us, window_us;
    int64_t gather_us; /* a window that is old already still waits this long for more records */
    uint64_t target_weight;
};

struct window {
    int64_t t_prev;   /* end of the window before, or the boundary reached by skipping */
    int64_t frontier; /* WINDOW_NO_START until something was looked at */
    bool positioned;  /* from and position are known */
    uint64_t from, position;
    uint64_t records, weight; /* of [t_prev, frontier) */
    int64_t first_stamp;      /* when records > 0 */
    bool size_reached; /* the scan stopped because weight reached the target; frontier is tEnd */
    bool next_known;   /* there is a record at or above the frontier, at `position` */
    int64_t next_stamp;
    bool unread; /* the log holds records that no scan has met: too young for the last cap */
    int64_t unread_stamp; /* theirs is about this or less */
    bool forced;          /* memory or drain: stays armed until a window closes */
};

enum window_verdict { WINDOW_WAIT, WINDOW_SKIP, WINDOW_CLOSE };

void window_init(struct window *w, int64_t t_prev);
/* The window after one that ended at t_end: the position and what lies at it stay. */
void window_next(struct window *w, int64_t t_end);
/* How far the window may reach when the closing clock is `safe_time`: min(safe_time - guard, next
 * boundary). */
int64_t window_cap(const struct window *w, const struct window_rules *rules, int64_t safe_time);
/* Is there something between the frontier and the cap that a scan has to look at? log_end: end of
 * the log, read after safe_time. When not, the frontier moves to the cap. */
bool window_scan_due(struct window *w, int64_t cap, uint64_t log_end);
/* Before waiting: does the log go on behind what was scanned? safe_time and log_end of one look. */
void window_note_unread(struct window *w, int64_t safe_time, uint64_t log_end);
/* Where that scan has to stop: the cap, or at once (WINDOW_NO_START) when under start=earliest the
 * first record must be seen before its alignment boundary is known. */
int64_t window_scan_limit(const struct window *w, int64_t cap);
/* CLOSE: window [*t_start_out, *t_end_out). SKIP: t_prev was moved, judge again. */
enum window_verdict window_judge(struct window *w, const struct window_rules *rules,
                                 int64_t safe_time, int64_t *t_start_out, int64_t *t_end_out);
/* The broker time at which this window can close at the earliest with what is known to lie in the
 * log, for the clock entry of a quiet broker; WINDOW_NEVER when it holds nothing. */
int64_t window_due(const struct window *w, const struct window_rules *rules);
/* 0 for align=none. */
int64_t window_unit(enum sink_align align);

#endif
