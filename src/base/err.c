/* Texts of the error codes, and messages in the caller's storage.
 *
 * Messages are formatted into a scratch copy first, so an argument may be the text of the same
 * struct error. What does not fit is cut. assert_failed() is the one place of base that writes: a
 * process that is about to abort has nobody left to hand the text to. */
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *err_text(enum err code)
{
    switch (code) {
#define ERR_TEXT(name, text, retryable)                                                            \
    case name:                                                                                     \
        return text;
        ERR_LIST(ERR_TEXT)
#undef ERR_TEXT
    }
    return "unknown error";
}

bool err_retryable(enum err code)
{
    switch (code) {
#define ERR_RETRYABLE(name, text, retryable)                                                       \
    case name:                                                                                     \
        return retryable;
        ERR_LIST(ERR_RETRYABLE)
#undef ERR_RETRYABLE
    }
    return false;
}

enum err error_set(struct error *error, enum err code, const char *format, ...)
{
    if (error == NULL)
        return code;
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args); /* cut to fit on purpose */
    va_end(args);
    error->code = code;
    memcpy(error->text, text, strlen(text) + 1);
    return code;
}

void error_wrap(struct error *error, const char *format, ...)
{
    if (error == NULL)
        return;
    char text[ERROR_TEXT_MAX];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    char whole[2 * ERROR_TEXT_MAX + 2];
    (void)snprintf(whole, sizeof(whole), "%s: %s", text, error->text);
    whole[ERROR_TEXT_MAX - 1] = '\0';
    memcpy(error->text, whole, strlen(whole) + 1);
}

void assert_failed(const char *condition, const char *file, int line)
{
    (void)fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    (void)fflush(stderr);
    abort();
}
