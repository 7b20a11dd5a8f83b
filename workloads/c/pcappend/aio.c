/* The kernel's asynchronous I/O by direct system calls. Without O_DIRECT, io_submit(2) writes the
 * record before it returns, so that nothing is asynchronous at any depth. */
#define _GNU_SOURCE

#include "method_tables.h"
#include "in_flight.h"

#include "contract/failure.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct aio {
    struct in_flight in_flight;
    aio_context_t context;
    struct iocb *blocks; /* one per slot */
};

static void create_aio(struct job *job) {
    job->note = "through the page cache: io_submit(2) writes the record itself before it returns";
}

/* Waits for one completion. */
static int reap_aio(struct writer *writer) {
    struct aio *own = writer->own;
    struct io_event event;
    long count = 0;
    do {
        count = syscall(SYS_io_getevents, own->context, 1L, 1L, &event, NULL);
    } while (count < 0 && errno == EINTR);
    if (count != 1) {
        fail(FAILED, "a write in flight did not complete (io_getevents): %s", count < 0 ? strerror(errno) : "no event");
    }
    return in_flight_complete(writer, (uint32_t)event.data, event.res);
}

static int submit_aio(struct writer *writer, uint32_t slot) {
    struct aio *own = writer->own;
    struct iocb *block = &own->blocks[slot];
    *block = (struct iocb){
        .aio_data = slot,
        .aio_lio_opcode = IOCB_CMD_PWRITE,
        .aio_fildes = (uint32_t)writer->file,
        .aio_buf = (uint64_t)(uintptr_t)own->in_flight.slots[slot].record,
        .aio_nbytes = own->in_flight.slots[slot].bytes,
    };
    long count = 0;
    do {
        count = syscall(SYS_io_submit, own->context, 1L, &block);
    } while (count < 0 && (errno == EINTR || errno == EAGAIN));
    return count == 1 ? 0 : in_flight_complete(writer, slot, -(count < 0 ? errno : EIO));
}

static void open_aio(struct writer *writer) {
    uint32_t depth = (uint32_t)writer->job->plan->depth;
    struct aio *own = calloc(1, sizeof *own);
    struct iocb *blocks = calloc(depth, sizeof *blocks);
    if (own == NULL || blocks == NULL) {
        fail(FAILED, "not enough memory for %u writes in flight", depth);
    }
    if (syscall(SYS_io_setup, depth, &own->context) != 0) {
        fail(CANNOT_HERE, "asynchronous I/O is not available here (io_setup): %s", strerror(errno));
    }
    own->blocks = blocks;
    own->in_flight = in_flight_new(writer->job);
    own->in_flight.submit = submit_aio;
    own->in_flight.reap = reap_aio;
    writer->own = own;
    writer->file = open_log(writer->job, O_WRONLY | O_APPEND);
}

static void close_aio(struct writer *writer) {
    struct aio *own = writer->own;
    syscall(SYS_io_destroy, own->context);
    in_flight_free(&own->in_flight);
    free(own->blocks);
    free(own);
}

const struct method method_aio = {
    .name = "aio",
    .summary = "io_submit(2) with O_APPEND, --depth writes in flight",
    .create = create_aio,
    .open = open_aio,
    .append = in_flight_append,
    .flush = in_flight_flush,
    .close = close_aio,
};
