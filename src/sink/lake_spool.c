/* The output side of a build. The file is unlinked from the start: a crash leaves nothing behind.
 * It is never synced: the intent can always be built again, so no failure here is more than
 * ERR_AGAIN; ERR_IO of a build is the queue log's. */
#include "sink/lake_spool.h"

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLUSH_SIZE (1u << 20) /* written to the file at once */

void lake_spool_init(struct lake_spool *s, enum sink_compression c, uint64_t memory_max,
                     const char *dir)
{
    *s = (struct lake_spool){
        .compressor = lake_compressor_new(c),
        .sha256 = sha256_stream_new(),
        .fd = -1,
        .memory_max = memory_max,
        .dir = dir,
    };
}

void lake_spool_deinit(struct lake_spool *s)
{
    lake_compressor_free(s->compressor);
    sha256_stream_free(s->sha256);
    buf_deinit(&s->out);
    if (s->fd >= 0)
        (void)close(s->fd); /* unlinked */
}

static enum err fail(const struct lake_spool *s, const char *call, struct error *error)
{
    int code = errno;
    const char *text = strerrordesc_np(code);
    return error_set(error, code == ENOSPC || code == EDQUOT ? ERR_NO_SPACE : ERR_AGAIN,
                     "spool: %s in %s: %s", call, s->dir, text != NULL ? text : "unknown error");
}

/* O_TMPFILE, or on file systems without it a file that is unlinked at once. */
static enum err open_file(struct lake_spool *s, struct error *error)
{
    s->fd = open(s->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd >= 0)
        return ERR_OK;
    if (errno != EOPNOTSUPP && errno != EISDIR)
        return fail(s, "create", error);
    struct buf path = BUF_INIT;
    buf_printf(&path, "%s/.queen-spool-XXXXXX", s->dir);
    buf_putc(&path, '\0');
    s->fd = mkostemp((char *)path.ptr, O_CLOEXEC);
    if (s->fd >= 0)
        (void)unlink((const char *)path.ptr); /* else one empty name stays behind */
    enum err err = s->fd >= 0 ? ERR_OK : fail(s, "create", error);
    buf_deinit(&path);
    return err;
}

static enum err flush(struct lake_spool *s, struct error *error)
{
    struct span left = buf_span(&s->out);
    while (left.len > 0) {
        ssize_t n = write(s->fd, left.ptr, left.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail(s, "write", error);
        left = span_sub(left, (size_t)n, left.len);
    }
    buf_reset(&s->out);
    return ERR_OK;
}

/* Behind the compressor: `before` is the length of out before it ran. */
static enum err take_output(struct lake_spool *s, size_t before, struct error *error)
{
    struct span fresh = span_sub(buf_span(&s->out), before, s->out.len);
    if (fresh.len > 0)
        sha256_stream_update(s->sha256, fresh);
    s->size += fresh.len;
    if (s->fd < 0 && s->out.len > s->memory_max) {
        TRY(open_file(s, error));
        TRY(flush(s, error));
        buf_deinit(&s->out); /* it may have grown to memory_max */
    } else if (s->fd >= 0 && s->out.len >= FLUSH_SIZE) {
        TRY(flush(s, error));
    }
    return ERR_OK;
}

enum err lake_spool_write(struct lake_spool *s, struct span text, struct error *error)
{
    size_t before = s->out.len;
    lake_compressor_write(s->compressor, text, &s->out);
    return take_output(s, before, error);
}

enum err lake_spool_finish(struct lake_spool *s, struct lake_object *o, struct error *error)
{
    size_t before = s->out.len;
    lake_compressor_end(s->compressor, &s->out);
    TRY(take_output(s, before, error));
    if (s->fd >= 0)
        TRY(flush(s, error));
    sha256_stream_final(s->sha256, o->sha256);
    o->bytes = s->out;
    o->fd = s->fd;
    o->size = s->size;
    s->out = BUF_INIT;
    s->fd = -1;
    return ERR_OK;
}
