/* CRC32C (Castagnoli), as in iSCSI and ext4, with the processor's instruction if it has one. */
#ifndef PCLOG_CRC32C_H
#define PCLOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Continues from `crc`, initially 0: crc32c(crc32c(0, a), b) is the CRC of a and b concatenated. */
uint32_t pclog_crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same with a table, for processors without the instruction. */
uint32_t pclog_crc32c_by_table(uint32_t crc, const void *data, size_t bytes);

#endif
