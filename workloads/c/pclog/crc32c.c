#include "crc32c.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define POLYNOMIAL 0x82f63b78u /* bits reversed, like the CRCs */

static _Atomic(uint32_t) table[256];

/* Concurrent threads store the same numbers. The last entry is stored last: it is never 0 in a full
 * table. */
static void fill_table(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc & 1 ? crc >> 1 ^ POLYNOMIAL : crc >> 1;
        }
        atomic_store_explicit(&table[byte], crc, byte == 255 ? memory_order_release : memory_order_relaxed);
    }
}

uint32_t pclog_crc32c_by_table(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *at = data;
    if (atomic_load_explicit(&table[255], memory_order_acquire) == 0) {
        fill_table();
    }
    crc = ~crc;
    for (; bytes > 0; bytes--) {
        crc = crc >> 8 ^ atomic_load_explicit(&table[(crc ^ *at++) & 0xff], memory_order_relaxed);
    }
    return ~crc;
}

#if defined(__x86_64__)
#define INSTRUCTIONS __attribute__((target("sse4.2")))
#define CRC_8(crc, word) ((uint32_t)__builtin_ia32_crc32di((crc), (word)))
#define CRC_1(crc, byte) __builtin_ia32_crc32qi((crc), (byte))
static bool has_instruction(void) {
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#define INSTRUCTIONS __attribute__((target("+crc")))
#define CRC_8(crc, word) __builtin_aarch64_crc32cx((crc), (word))
#define CRC_1(crc, byte) __builtin_aarch64_crc32cb((crc), (byte))
static bool has_instruction(void) {
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

#ifdef INSTRUCTIONS
static INSTRUCTIONS uint32_t by_instruction(uint32_t crc, const void *data, size_t bytes) {
    const unsigned char *at = data;
    crc = ~crc;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        crc = CRC_8(crc, word);
    }
    for (; bytes > 0; bytes--) {
        crc = CRC_1(crc, *at++);
    }
    return ~crc;
}

uint32_t pclog_crc32c(uint32_t crc, const void *data, size_t bytes) {
    static _Atomic(int) supported; /* 1 or -1; 0 before the first call */
    int answer = atomic_load_explicit(&supported, memory_order_relaxed);
    if (answer == 0) {
        answer = has_instruction() ? 1 : -1;
        atomic_store_explicit(&supported, answer, memory_order_relaxed);
    }
    return answer > 0 ? by_instruction(crc, data, bytes) : pclog_crc32c_by_table(crc, data, bytes);
}
#else
uint32_t pclog_crc32c(uint32_t crc, const void *data, size_t bytes) {
    return pclog_crc32c_by_table(crc, data, bytes);
}
#endif
