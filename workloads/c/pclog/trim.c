#define _GNU_SOURCE

#include "handle.h"

#include <sys/stat.h>
#include <unistd.h>

int pclog_trim(pclog *log) {
    struct stat file;
    int status = pclog_exclusive_begin(log);
    if (status != PCLOG_OK) {
        return status;
    }
    PCLOG_TEST_POINT(trim_truncating);
    uint64_t end = pclog_end(log);
    /* Never extends the file, which another process may have truncated. */
    if (fstat(log->file, &file) != 0 || ((uint64_t)file.st_size > end && ftruncate(log->file, (off_t)end) != 0)) {
        status = PCLOG_SYSTEM;
    }
    int ended = pclog_exclusive_end(log);
    return status != PCLOG_OK ? status : ended;
}

/* If a raw log ends with a zero byte, only its cursor separates it from space that was grown ahead.
 * To survive a crash of the machine the cursor must then be on the disk, too. */
static bool ends_with_zero(const pclog *log) {
    unsigned char last = 0;
    uint64_t end = pclog_end(log);
    return end > 0 && (pread(log->file, &last, 1, (off_t)(end - 1)) != 1 || last == 0);
}

int pclog_sync(pclog *log) {
    bool cursor_too = log->options.mode == PCLOG_RAW && ends_with_zero(log);
    if (fdatasync(log->file) != 0 || (cursor_too && fdatasync(log->meta_file) != 0)) {
        return PCLOG_SYSTEM;
    }
    return PCLOG_OK;
}
