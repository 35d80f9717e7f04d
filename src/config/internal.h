/* The table of settings, shared by the files of this module. */
#ifndef CONFIG_INTERNAL_H
#define CONFIG_INTERNAL_H

#include "config/config.h"

enum config_group {
    CONFIG_SERVER,
    CONFIG_STORAGE,
    CONFIG_AUTH,
    CONFIG_SECURITY,
    CONFIG_KV_TIMERS,
    CONFIG_EPHEMERAL,
    CONFIG_LOGGING,
    CONFIG_GROUP_COUNT
};

extern const char *const config_group_names[CONFIG_GROUP_COUNT];

/* How a value is read. Blank means trimmed to nothing. */
enum config_kind {
    CONFIG_BOOL, /* blank = default; a bad spelling is refused */
    CONFIG_INT,  /* lenient: not a number = default, outside = the nearer end; both warned about */
    CONFIG_STRICT,  /* blank = default; not a number, or outside: refused */
    CONFIG_PORT,    /* like INT, but outside = default */
    CONFIG_PERCENT, /* decimals; not a number, or outside: default, warned about */
    CONFIG_TEXT,    /* as given, a present empty value included */
    CONFIG_HOST,    /* a host or address without a port; blank is refused */
    CONFIG_FOLDER,  /* a path; blank is refused */
    CONFIG_SECRET,  /* text that is never printed; blank = unset */
    CONFIG_NODE_ID, /* a number from 1 on, or "ordinal": 1 + the digits that end HOSTNAME */
};

bool config_is_text(enum config_kind kind); /* its field is an owned string */

enum config_effect {
    CONFIG_BINDS,     /* read into struct config */
    CONFIG_NOT_BUILT, /* a value that asks for what is not there yet is refused */
    CONFIG_IGNORED,   /* named in one INFO line when set */
    CONFIG_ELSEWHERE, /* read and documented by the sink; here for its place in the boot log */
};

struct config_row {
    const char *name;  /* the variable; a last '*' stands for every variable that starts so */
    const char *alias; /* read when `name` is unset; NULL */
    enum config_effect effect;
    enum config_kind kind;
    enum config_group group;
    const char *fallback; /* the default, as text. NOT_BUILT: the value that asks for nothing */
    uint64_t min, max;    /* INT, STRICT, PORT, PERCENT */
    size_t at;            /* BINDS: offset in struct config */
    const char *text; /* for people: BINDS: effect; NOT_BUILT: what is missing, after "asks for" */
};

extern const struct config_row config_rows[];
extern const size_t config_row_count;

/* The row of a variable, exact before prefix; NULL. */
const struct config_row *config_row_find(struct span name);

#endif
