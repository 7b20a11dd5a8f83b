#include "handle.h"

uint64_t pclog_end(const pclog *log) {
    return atomic_load(&log->meta->cursor);
}

bool pclog_release(pclog *log, uint64_t offset, uint64_t bytes) {
    uint64_t end = offset + bytes;
    return atomic_compare_exchange_strong(&log->meta->cursor, &end, offset);
}
