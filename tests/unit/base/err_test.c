#include "base/err.h"

#include "lib/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(codes_have_texts)
{
    assert_string_equal(err_text(ERR_OK), "ok");
    assert_string_equal(err_text(ERR_TOO_DEEP), "nested too deep");
    assert_string_equal(err_text((enum err)9999), "unknown error");
    CHECK(err_retryable(ERR_OVERLOADED));
    CHECK(!err_retryable(ERR_OK));
    CHECK(!err_retryable(ERR_CORRUPT));
    CHECK(!err_retryable((enum err)9999));
}

TEST(messages_take_context_in_front)
{
    struct error error;
    CHECK_EQ(error_set(&error, ERR_IO, "read at %d", 42), ERR_IO);
    CHECK_EQ(error.code, ERR_IO);
    assert_string_equal(error.text, "read at 42");
    error_wrap(&error, "segment %s", "a.wal");
    assert_string_equal(error.text, "segment a.wal: read at 42");
    CHECK_EQ(error.code, ERR_IO);
    CHECK_EQ(error_set(NULL, ERR_IO, "nobody %s", "asked"), ERR_IO);
    error_wrap(NULL, "nobody");
}

TEST(a_message_may_quote_itself)
{
    struct error error;
    (void)error_set(&error, ERR_IO, "inner");
    CHECK_EQ(error_set(&error, ERR_CORRUPT, "outer: %s", error.text), ERR_CORRUPT);
    assert_string_equal(error.text, "outer: inner");
}

/* Goal: text that does not fit is cut, never written past the end. */
TEST(long_messages_are_cut)
{
    char text[2 * ERROR_TEXT_MAX];
    struct error error;
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    (void)error_set(&error, ERR_IO, "%s", text);
    CHECK_EQ(strlen(error.text), ERROR_TEXT_MAX - 1);
    error_wrap(&error, "y");
    CHECK_EQ(strlen(error.text), ERROR_TEXT_MAX - 1);
    CHECK(strncmp(error.text, "y: xxx", 6) == 0);
    error_wrap(&error, "%s", text);
    CHECK_EQ(strlen(error.text), ERROR_TEXT_MAX - 1);
    CHECK_EQ(error.text[0], 'x');
    CHECK_EQ(error.text[ERROR_TEXT_MAX - 2], 'x');
}

static enum err fail_at(int *steps, int bad)
{
    TRY(bad == 0 ? ERR_SHORT : ERR_OK);
    ++*steps;
    TRY(bad == 1 ? ERR_CORRUPT : ERR_OK);
    ++*steps;
    return ERR_OK;
}

TEST(try_returns_the_first_failure)
{
    int steps = 0;
    CHECK_EQ(fail_at(&steps, 0), ERR_SHORT);
    CHECK_EQ(steps, 0);
    CHECK_EQ(fail_at(&steps, 1), ERR_CORRUPT);
    CHECK_EQ(steps, 1);
    CHECK_EQ(fail_at(&steps, 2), ERR_OK);
    CHECK_EQ(steps, 3);
}

/* Goal: a failed assertion names its place and aborts. Method: in a child that writes to a pipe. */
TEST(a_failed_assertion_aborts)
{
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)dup2(ends[1], STDERR_FILENO);
        (void)signal(SIGABRT, SIG_DFL);
        int one = 1;
        ASSERT(one == 2);
        _exit(0);
    }
    (void)close(ends[1]);
    char text[512] = {0};
    ssize_t len = read(ends[0], text, sizeof(text) - 1);
    (void)close(ends[0]);
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status));
    CHECK(len > 0);
    CHECK(strstr(text, "err_test.c:") != NULL);
    CHECK(strstr(text, "one == 2") != NULL);
}

TEST_MAIN()
