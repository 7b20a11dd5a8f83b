/* Appending with ordinary system calls. With O_APPEND the kernel finds the end and writes there
 * in one step (open(2)), under the inode's lock, so that a record written by one call is
 * contiguous. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "method.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static void open_append(struct writer *writer) {
    writer->file = open_log(writer->job, O_WRONLY | O_APPEND);
}

static int append_write(struct writer *writer, const uint8_t *record, size_t bytes) {
    return write_all(writer->file, record, bytes);
}

const struct method method_write = {
    .name = "write",
    .summary = "write(2) with O_APPEND",
    .open = open_append,
    .append = append_write,
};

/* Writes two pieces, like the head and the text of a log line. After a short call write(2) appends
 * the rest. */
static int append_writev(struct writer *writer, const uint8_t *record, size_t bytes) {
    size_t head = bytes < RECORD_LABELLED_BYTES ? 0 : RECORD_LABELLED_BYTES;
    struct iovec pieces[2] = {{(void *)record, head}, {(void *)(record + head), bytes - head}};
    ssize_t done = writev(writer->file, pieces, 2);
    if (done < 0 && errno != EINTR) {
        return errno;
    }
    size_t written = done > 0 ? (size_t)done : 0;
    return written == bytes ? 0 : write_all(writer->file, record + written, bytes - written);
}

const struct method method_writev = {
    .name = "writev",
    .summary = "writev(2) with O_APPEND, label and body as two pieces",
    .open = open_append,
    .append = append_writev,
};

/* The default buffer of a stream is one block of the file (st_blksize). For a longer record the
 * stream writes whole blocks first and the rest at the flush, and another writer's record may come
 * between. With a buffer longer than the record it makes a single write(2). */
enum { OWN_BUFFER_BYTES = 4096 };

struct stream_writer {
    FILE *stream;
    char buffer[]; /* glibc's setvbuf(3) ignores the size unless it is given a buffer */
};

static void create_fwrite(struct job *job) {
    if (job->lengths.high > OWN_BUFFER_BYTES) {
        job->note = "each stream has a buffer longer than a record: its own of one block would tear such records";
    }
}

static void open_fwrite(struct writer *writer) {
    size_t room = writer->job->lengths.high + OWN_BUFFER_BYTES;
    struct stream_writer *own = malloc(sizeof *own + room);
    FILE *stream = fopen(writer->job->path, "ae");
    if (own == NULL || stream == NULL || setvbuf(stream, own->buffer, _IOFBF, room) != 0) {
        fail(FAILED, "cannot open %s: %s", writer->job->path, strerror(errno));
    }
    memset(own->buffer, 0, room); /* populates its pages */
    own->stream = stream;
    writer->own = own;
    writer->file = dup(fileno(stream)); /* for fdatasync(2), because the stream closes its own */
    if (writer->file < 0) {
        fail(FAILED, "cannot open %s: %s", writer->job->path, strerror(errno));
    }
}

static int append_fwrite(struct writer *writer, const uint8_t *record, size_t bytes) {
    FILE *stream = ((struct stream_writer *)writer->own)->stream;
    if (fwrite(record, 1, bytes, stream) == bytes && fflush(stream) == 0) {
        return 0;
    }
    int error = errno;
    __fpurge(stream); /* otherwise the next record would include the failed one */
    clearerr(stream);
    return error;
}

static void close_fwrite(struct writer *writer) {
    struct stream_writer *own = writer->own;
    fclose(own->stream);
    free(own);
}

const struct method method_fwrite = {
    .name = "fwrite",
    .summary = "an appending FILE stream, flushed after each record",
    .create = create_fwrite,
    .open = open_fwrite,
    .append = append_fwrite,
    .close = close_fwrite,
};

/* The records that a writer has collected. */
struct batch {
    size_t room, held;
    uint8_t bytes[];
};

static void create_batch(struct job *job) {
    job->note = "not immediate: a process that dies takes the records with it that it has not written yet";
}

static void open_batch(struct writer *writer) {
    size_t room = writer->job->plan->batch_bytes;
    room = room > writer->job->lengths.high ? room : writer->job->lengths.high;
    struct batch *batch = malloc(sizeof *batch + room);
    if (batch == NULL) {
        fail(FAILED, "not enough memory for a batch of %zu bytes", room);
    }
    memset(batch->bytes, 0, room); /* populates its pages */
    batch->room = room;
    batch->held = 0;
    writer->own = batch;
    open_append(writer);
}

static int flush_batch(struct writer *writer) {
    struct batch *batch = writer->own;
    size_t held = batch->held;
    batch->held = 0;
    return held == 0 ? 0 : write_all(writer->file, batch->bytes, held);
}

static int append_batch(struct writer *writer, const uint8_t *record, size_t bytes) {
    struct batch *batch = writer->own;
    int error = bytes > batch->room - batch->held ? flush_batch(writer) : 0;
    memcpy(batch->bytes + batch->held, record, bytes);
    batch->held += bytes;
    return error;
}

static void close_batch(struct writer *writer) {
    free(writer->own);
}

const struct method method_batch = {
    .name = "batch",
    .summary = "collected by each writer, then write(2): not immediate",
    .create = create_batch,
    .open = open_batch,
    .append = append_batch,
    .flush = flush_batch,
    .close = close_batch,
};

static void open_reserve(struct writer *writer) {
    writer->file = open_log(writer->job, O_WRONLY);
}

/* A failure leaves a hole, because the space is already reserved. */
static int append_reserved(struct writer *writer, const uint8_t *record, size_t bytes) {
    uint64_t offset = atomic_fetch_add(&writer->job->memory->cursor, bytes);
    for (size_t done = 0; done < bytes;) {
        ssize_t more = pwrite(writer->file, record + done, bytes - done, (off_t)(offset + done));
        if (more < 0 && errno != EINTR) {
            return errno;
        }
        done += more > 0 ? (size_t)more : 0;
    }
    return 0;
}

const struct method method_reserve_pwrite = {
    .name = "reserve-pwrite",
    .summary = "space reserved by atomic addition, then pwrite(2)",
    .open = open_reserve,
    .append = append_reserved,
};
