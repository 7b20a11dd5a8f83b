#include "framed.h"
#include "handle.h"

#define LIKELY(condition) __builtin_expect(!!(condition), 1)

/* A lost page means a full disk that growing did not detect (ftruncate growth), or a truncated
 * file. */
static int release_on_failure(pclog_writer *writer, int status, size_t bytes, uint64_t offset) {
    if (status != PCLOG_OK) {
        pclog_release(writer->log, offset, bytes);
    }
    return status;
}

static int append_slow(pclog_writer *writer, const void *record, size_t bytes, uint64_t offset) {
    int status = pclog_grow_or_release(writer->log, offset, bytes);
    if (status != PCLOG_OK) {
        return status;
    }
    return release_on_failure(writer, pclog_copy(writer, record, bytes, offset), bytes, offset);
}

static int append_raw(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset) {
    *offset = atomic_fetch_add_explicit(writer->cursor, bytes, memory_order_relaxed);
    PCLOG_TEST_POINT(after_reserve);
    uint64_t at = *offset - writer->from;
    if (LIKELY(bytes <= writer->room && at <= writer->room - bytes)) {
        pclog_copy_bytes(writer->base + at, record, bytes);
        if (LIKELY(!pclog_area_lost(&writer->window->area, at, bytes))) {
            return PCLOG_OK;
        }
        return release_on_failure(writer, pclog_write_at(writer->log, record, bytes, *offset), bytes, *offset);
    }
    return append_slow(writer, record, bytes, *offset);
}

int pclog_append(pclog_writer *writer, const void *record, size_t bytes, uint64_t *offset) {
    uint64_t reserved;
    if (bytes == 0 || record == NULL) {
        return PCLOG_INVALID;
    }
    if (bytes > PCLOG_RECORD_MAX) {
        return PCLOG_TOO_LARGE;
    }
    int status = writer->framed ? pclog_append_framed(writer, record, bytes, &reserved)
                                : append_raw(writer, record, bytes, &reserved);
    PCLOG_TEST_POINT(after_commit);
    if (status == PCLOG_OK && offset != NULL) {
        *offset = reserved;
    }
    return status;
}
