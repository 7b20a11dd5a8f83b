/* O_DIRECT: writes that bypass the page cache, in whole logical blocks of the disk, from aligned
 * memory. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "method.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { USUAL_BLOCK_BYTES = 4096 };

static void open_direct(struct writer *writer) {
    writer->file = open(writer->job->path, O_WRONLY | O_APPEND | O_DIRECT | O_CLOEXEC);
    if (writer->file < 0) {
        fail(errno == EINVAL ? CANNOT_HERE : FAILED, "cannot open %s with O_DIRECT: %s", writer->job->path,
             strerror(errno));
    }
}

/* Returns the alignment that statx(2) reports. Before Linux 6.1, or if the file system does not
 * report it, returns a page, which suits every disk. */
static size_t alignment(const char *path) {
    struct statx status;
    if (statx(AT_FDCWD, path, 0, STATX_DIOALIGN, &status) != 0) {
        fail(FAILED, "cannot inspect %s: %s", path, strerror(errno));
    }
    if ((status.stx_mask & STATX_DIOALIGN) == 0) {
        return USUAL_BLOCK_BYTES;
    }
    if (status.stx_dio_offset_align == 0) {
        fail(CANNOT_HERE, "the file system of %s does not support direct I/O", path);
    }
    return status.stx_dio_offset_align;
}

static void create_padded(struct job *job) {
    static char note[128];
    job->block_bytes = alignment(job->path);
    snprintf(note, sizeof note, "each record is padded with zeros to whole blocks of %zu bytes", job->block_bytes);
    job->note = note;
}

struct padded {
    size_t room;
    uint8_t *bytes; /* page-aligned; zero behind every record */
};

static void open_padded(struct writer *writer) {
    struct padded *own = malloc(sizeof *own);
    size_t block = writer->job->block_bytes;
    size_t room = (writer->job->lengths.high + block - 1) / block * block;
    size_t boundary = block > USUAL_BLOCK_BYTES ? block : USUAL_BLOCK_BYTES;
    if (own == NULL || posix_memalign((void **)&own->bytes, boundary, room) != 0) {
        fail(FAILED, "not enough memory for a record of %zu bytes", room);
    }
    own->room = room;
    memset(own->bytes, 0, room);
    writer->own = own;
    open_direct(writer);
}

static int append_padded(struct writer *writer, const uint8_t *record, size_t bytes) {
    const struct padded *own = writer->own;
    size_t block = writer->job->block_bytes, whole = (bytes + block - 1) / block * block;
    memcpy(own->bytes, record, bytes);
    memset(own->bytes + bytes, 0, whole - bytes);
    return write_all(writer->file, own->bytes, whole);
}

static void close_padded(struct writer *writer) {
    struct padded *own = writer->own;
    free(own->bytes);
    free(own);
}

const struct method method_direct = {
    .name = "direct",
    .summary = "write(2) with O_APPEND and O_DIRECT, each record padded to whole blocks",
    .create = create_padded,
    .open = open_padded,
    .append = append_padded,
    .close = close_padded,
};

static void create_misaligned(struct job *job) {
    static char note[192];
    size_t block = alignment(job->path);
    if (job->lengths.low % block != 0 || job->lengths.high % block != 0) {
        snprintf(note, sizeof note, "a record is no whole number of blocks of %zu bytes, which O_DIRECT asks for: %s",
                 block, "where such calls fail (EINVAL), their time is not that of writing");
        job->note = note;
    }
}

static int append_misaligned(struct writer *writer, const uint8_t *record, size_t bytes) {
    return write_all(writer->file, record, bytes);
}

const struct method method_direct_misaligned = {
    .name = "direct-misaligned",
    .summary = "the same without padding, as in the article: the kernel refuses most records",
    .create = create_misaligned,
    .open = open_direct,
    .append = append_misaligned,
};
