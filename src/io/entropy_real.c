/* The kernel's random bytes, fetched a block at a time per thread: a message id needs eight of them
 * and must not cost a system call. Used bytes are wiped, so no id can be read back from memory. */
#include "io/clock.h"

#include "base/err.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define BLOCK_SIZE 256 /* getrandom() gives up to 256 bytes whole, never interrupted */

static _Thread_local struct {
    uint8_t bytes[BLOCK_SIZE];
    size_t left; /* unused ones, at the end */
} block;

static void fetch(uint8_t *out)
{
    ssize_t n;
    do {
        n = getrandom(out, BLOCK_SIZE, 0);
    } while (n < 0 && errno == EINTR);
    ASSERT(n == BLOCK_SIZE);
}

static void fill(struct entropy *e, void *out, size_t len)
{
    (void)e;
    uint8_t *to = out;
    while (len > 0) {
        if (block.left == 0) {
            fetch(block.bytes);
            block.left = BLOCK_SIZE;
        }
        size_t take = len < block.left ? len : block.left;
        uint8_t *from = block.bytes + BLOCK_SIZE - block.left;
        memcpy(to, from, take);
        explicit_bzero(from, take);
        block.left -= take;
        to += take;
        len -= take;
    }
}

struct entropy *entropy_real(void)
{
    static struct entropy real = {fill};
    return &real;
}
