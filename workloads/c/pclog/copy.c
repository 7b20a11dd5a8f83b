#define _GNU_SOURCE

#include "handle.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef PCLOG_TEST_POINTS
void pclog_copy_bytes(unsigned char *target, const void *source, size_t bytes) {
    memcpy(target, source, bytes / 2);
    PCLOG_TEST_POINT(mid_copy);
    memcpy(target + bytes / 2, (const unsigned char *)source + bytes / 2, bytes - bytes / 2);
}
#endif

static int write_all(int file, const unsigned char *source, size_t bytes, uint64_t offset) {
    while (bytes > 0) {
        ssize_t done = pwrite(file, source, bytes, (off_t)offset);
        if (done < 0 && errno != EINTR) {
            return pclog_errno_status();
        }
        if (done > 0) {
            source += done;
            bytes -= (size_t)done;
            offset += (uint64_t)done;
        }
    }
    return PCLOG_OK;
}

/* The size is checked first: pwrite(2) would extend a truncated file again, with zeros in
 * between. */
int pclog_write_at(pclog *log, const void *source, size_t bytes, uint64_t offset) {
    struct stat status;
    if (fstat(log->file, &status) != 0) {
        return PCLOG_SYSTEM;
    }
    if ((uint64_t)status.st_size < offset + bytes) {
        atomic_store(&log->truncated, true);
        return PCLOG_TRUNCATED;
    }
    return write_all(log->file, source, bytes, offset);
}

int pclog_copy(pclog_writer *writer, const void *source, size_t bytes, uint64_t offset) {
    const unsigned char *rest = source;
    pclog *log = writer->log;
    if (bytes > log->options.window_bytes / 2) {
        return pclog_write_at(log, source, bytes, offset);
    }
    while (bytes > 0) {
        if (!pclog_window_enter(writer, offset)) {
            return pclog_write_at(log, rest, bytes, offset);
        }
        pclog_populate_ahead(writer, offset, bytes);
        size_t at = offset - writer->from;
        size_t part = writer->room - at < bytes ? writer->room - at : bytes;
        pclog_copy_bytes(writer->base + at, rest, part);
        int status = pclog_area_lost(&writer->window->area, at, part) ? pclog_write_at(log, rest, part, offset) : 0;
        if (status != PCLOG_OK) {
            writer->room = 0;
            return status;
        }
        rest += part;
        bytes -= part;
        offset += part;
    }
    return PCLOG_OK;
}
