/* CRC32C (Castagnoli), as iSCSI and ext4 have it: by the processor's instruction where there is one. */
#ifndef PCLOG_CRC32C_H
#define PCLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, which is 0 to begin with: crc32c(crc32c(0, a), b) is that of a and b joined. */
uint32_t pclog_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same by a table, for processors without the instruction. */
uint32_t pclog_crc32c_by_table(uint32_t crc, const void *data, size_t bytes);

#endif
