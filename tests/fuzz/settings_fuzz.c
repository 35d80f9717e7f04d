/* Fuzz target of the settings: lines NAME=value as environment, of the broker and of the sink. What is
 * accepted is within limits; what is refused is one line that says why. */
#include "fuzz/fuzz.h"

#include "config/config.h"
#include "sink/settings.h"

#include "base/mem.h"

#define LINES_MAX 64u

struct lines {
    const char *list[LINES_MAX + 1];
    size_t n;
};

/* Cuts `text` up; a line ends at a NUL too, as the environment's do. */
static void cut(char *text, size_t len, struct lines *out)
{
    *out = (struct lines){0};
    for (size_t at = 0; at < len && out->n < LINES_MAX;) {
        char *line = text + at;
        size_t end = strcspn(line, "\n");
        at += end + 1;
        line[end] = 0;
        if (strchr(line, '=') != NULL)
            out->list[out->n++] = line;
    }
}

static void check_refusal(const struct error *error)
{
    ASSERT(error->text[0] != 0);
    ASSERT(strchr(error->text, '\n') == NULL);
}

static void check_broker(const struct config_env *env)
{
    struct config c = {0};
    struct error error = {0};
    if (config_read(env, &c, &error) == ERR_OK) {
        ASSERT(c.port <= 65535);
        ASSERT(c.max_json_depth >= 64 && c.max_json_depth <= 10000);
        ASSERT(c.disk_low_pct <= c.disk_high_pct);
    } else {
        check_refusal(&error);
    }
    config_deinit(&c);
}

static void check_sink(struct config_env *env)
{
    struct sink_boot_settings s = {0};
    struct error error = {0};
    if (sink_settings_read(config_env_get, env, 1, "host", 2, &s, &error) == ERR_OK)
        ASSERT(!s.has_sink || (s.sink.bucket[0] != 0 && s.sink.endpoint[0] != 0));
    else
        check_refusal(&error);
    sink_boot_settings_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = span_dup(span_make(data, size));
    struct lines lines;
    cut(text, size, &lines);
    struct config_env env = {.list = lines.list, .random = 1};
    check_broker(&env);
    check_sink(&env);
    mem_free(text);
    return 0;
}
