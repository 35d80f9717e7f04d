/* CRC32C (RFC 3720 appendix B.4), with SSE4.2 where the processor has it. */
#ifndef BASE_CRC32C_H
#define BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* crc is 0 for the first piece, then the value returned for the pieces before. Any thread. */
uint32_t crc32c(uint32_t crc, const void *ptr, size_t len);

/* The same by tables only: what processors without the instruction run; here for its test. */
uint32_t crc32c_portable(uint32_t crc, const void *ptr, size_t len);

#endif
