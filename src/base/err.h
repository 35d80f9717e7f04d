/* Error codes and messages, used by every module.
 *
 * Fallible functions return enum err. Where an operator needs detail the last parameter is a
 * struct error (may be NULL): the place that detects the failure writes what only it knows. */
#ifndef BASE_ERR_H
#define BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

#define ERR_CHECK __attribute__((warn_unused_result))

/* code, text, retryable: one row per code. */
#define ERR_LIST(X)                                                                                \
    X(ERR_OK, "ok", false)                                                                         \
    X(ERR_NOMEM, "out of memory", true)                                                            \
    X(ERR_SHORT, "input ends too early", false)                                                    \
    X(ERR_CORRUPT, "damaged data", false)                                                          \
    X(ERR_INVALID, "invalid input", false)                                                         \
    X(ERR_TOO_LARGE, "too large", false)                                                           \
    X(ERR_TOO_DEEP, "nested too deep", false)                                                      \
    X(ERR_NOT_FOUND, "not found", false)                                                           \
    X(ERR_EXISTS, "exists already", false)                                                         \
    X(ERR_IO, "input/output error", false)                                                         \
    X(ERR_NO_SPACE, "no space left", true)                                                         \
    X(ERR_STORAGE_FULL, "storage full", true)                                                      \
    X(ERR_OVERLOADED, "overloaded", true)                                                          \
    X(ERR_TIMEOUT, "timeout", true)                                                                \
    X(ERR_STOPPED, "stopped", true)                                                                \
    X(ERR_LOCKED, "in use by another process", false)                                              \
    X(ERR_VERSION, "unknown format version", false)                                                \
    X(ERR_UNSUPPORTED, "not built yet", false)                                                     \
    X(ERR_AGAIN, "try again", true)

enum err {
#define ERR_ENUM(code, text, retryable) code,
    ERR_LIST(ERR_ENUM)
#undef ERR_ENUM
};

#define ERROR_TEXT_MAX 768

struct error {
    enum err code;
    char text[ERROR_TEXT_MAX]; /* NUL-terminated, cut to fit */
};

const char *err_text(enum err code);
bool err_retryable(enum err code);

/* Formats the message into *error (NULL is allowed) and returns code. */
enum err error_set(struct error *error, enum err code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<context>: " in front of the message. NULL is allowed. */
void error_wrap(struct error *error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Returns from the calling function when the expression fails: only where nothing is held. */
#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum err try_err_ = (expression);                                                          \
        if (try_err_ != ERR_OK)                                                                    \
            return try_err_;                                                                       \
    } while (0)

/* For our own mistakes; stays on in release builds; prints the place and aborts. */
#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            assert_failed(#condition, __FILE__, __LINE__);                                         \
    } while (0)
_Noreturn void assert_failed(const char *condition, const char *file, int line);

#endif
