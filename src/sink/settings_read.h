/* What the files that read the sink's settings share: settings_value.c, settings_place.c and
 * settings.c. Everything that returns an error has put the sentence an operator sees into
 * in->error. */
#ifndef SINK_SETTINGS_READ_H
#define SINK_SETTINGS_READ_H

#include "sink/settings.h"
#include "sink/settings_table.h"

#define FILE_SEGMENT_MAX 255 /* bytes of a file's name: decisions.md 2 */
#define FILE_SCHEME "file://"

struct reading {
    env_get_fn get;
    void *ctx;
    struct error *error;
};

#define ROW(id) setting_row(id)->variable
#define RAW(span) SPAN_ARG(span)

/* settings_value.c */
enum err settings_refuse(const struct reading *in, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
struct span settings_trim(struct span s); /* Unicode white space at both ends */
struct span settings_value(const struct reading *in,
                           enum setting_id id); /* trimmed; empty: unset */
bool settings_is_set(const struct reading *in, enum setting_id id);
bool settings_parse_bool(struct span value, bool *out);
enum err settings_bool(const struct reading *in, enum setting_id id, bool *out);
enum err settings_int(const struct reading *in, enum setting_id id, uint64_t *out);
enum err settings_broker_int(const struct reading *in, enum setting_id id, uint64_t fallback,
                             uint64_t *out);
enum err settings_enum(const struct reading *in, enum setting_id id, int *out,
                       const char **spelling_out);
enum err settings_required(const struct reading *in, enum setting_id id, char **out);
bool settings_has_control(struct span s);
enum err settings_header_text(const struct reading *in, enum setting_id id, struct span value);
bool settings_is_name(struct span s); /* A-Z a-z 0-9 . _ - */

/* settings_place.c */
enum err settings_read_endpoint(const struct reading *in, struct sink_settings *s);
enum err settings_read_bucket(const struct reading *in, struct sink_settings *s);
enum err settings_read_path_style(const struct reading *in, struct sink_settings *s);
enum err settings_read_prefix(const struct reading *in, struct sink_settings *s);
enum err settings_read_sse(const struct reading *in, struct sink_settings *s);

#endif
