/* Framing of entries and commands; the tables are in command.h. A reader trusts nothing: what does
 * not fit is ERR_CORRUPT, and the node stops rather than guess. */
#include "store/command.h"

enum { VERSION_AT = 0, FLAGS_AT = 1, RESERVED_AT = 2, COUNT_AT = 4, CLOCK_AT = 8 };

void entry_header_put(struct buf *out, uint32_t count, int64_t clock)
{
    ASSERT(clock > 0);
    buf_putc(out, ENTRY_VERSION);
    buf_putc(out, 0);
    buf_put_le16(out, 0);
    buf_put_le32(out, count);
    buf_put_le64(out, (uint64_t)clock);
}

void command_header_put(struct buf *out, enum command_type type, uint32_t body_len)
{
    buf_putc(out, (uint8_t)type);
    buf_append(out, "\0\0\0", 3);
    buf_put_le32(out, body_len);
}

enum err entry_reader_init(struct entry_reader *r, struct span payload)
{
    if (payload.len < ENTRY_HEADER_SIZE)
        return ERR_CORRUPT;
    if (payload.ptr[VERSION_AT] != ENTRY_VERSION || payload.ptr[FLAGS_AT] != 0 ||
        le16_get(payload.ptr + RESERVED_AT) != 0)
        return ERR_CORRUPT;
    uint32_t count = le32_get(payload.ptr + COUNT_AT);
    uint64_t clock = le64_get(payload.ptr + CLOCK_AT);
    if (clock == 0 || clock > (uint64_t)INT64_MAX - count) /* now = clock + position must fit */
        return ERR_CORRUPT;
    if (count > (payload.len - ENTRY_HEADER_SIZE) / COMMAND_HEADER_SIZE)
        return ERR_CORRUPT;
    *r = (struct entry_reader){
        .in = {span_sub(payload, ENTRY_HEADER_SIZE, payload.len), false},
        .count = count,
        .clock = (int64_t)clock,
    };
    return ERR_OK;
}

static bool type_known(uint8_t type)
{
    switch ((enum command_type)type) {
    case COMMAND_PUSH:
    case COMMAND_CONFIGURE:
    case COMMAND_QUEUE_DELETE:
    case COMMAND_KV:
        return true;
    }
    return false;
}

enum err entry_next(struct entry_reader *r, enum command_type *type_out, struct span *body_out)
{
    if (r->at == r->count)
        return r->in.in.len == 0 ? ERR_NOT_FOUND : ERR_CORRUPT;
    uint32_t head = cursor_le32(&r->in);
    uint32_t len = cursor_le32(&r->in);
    struct span body = cursor_bytes(&r->in, len);
    if (r->in.bad || head > UINT8_MAX || !type_known((uint8_t)head))
        return ERR_CORRUPT;
    r->at++;
    *type_out = (enum command_type)head;
    *body_out = body;
    return ERR_OK;
}
