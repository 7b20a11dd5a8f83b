/* The target for libFuzzer. Any bytes behind the head of a framed log are scanned, opened without
 * metadata, which recovers them, and scanned again. Recovery must end, keep every record that the
 * first scan found, and leave nothing to do for a second recovery.
 *
 * No mutation would ever guess a CRC, so frames whose low CRC bits are 0 receive the right one
 * first. */
#define _GNU_SOURCE

#include "../../crc32c.h"
#include "../../frames.h"
#include "../../pclog.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char path[64], meta[80];

static void need(int condition, const char *what) {
    if (!condition) {
        fprintf(stderr, "not true: %s\n", what);
        abort();
    }
}

int LLVMFuzzerInitialize(int *count, char ***words);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerInitialize(int *count, char ***words) {
    (void)count, (void)words;
    snprintf(path, sizeof path, "/dev/shm/pclog-fuzz-%d", (int)getpid());
    snprintf(meta, sizeof meta, "%s.pclog", path);
    return 0;
}

static int read_all(const struct pclog_record *record, void *context) {
    const volatile unsigned char *bytes = record->data;
    for (size_t at = 0; at < record->bytes; at++) {
        *(unsigned char *)context ^= bytes[at];
    }
    return 0;
}

static void recover_twice(const struct pclog_report *before) {
    struct pclog_report first, second;
    need(pclog_recover(path, &first) == PCLOG_OK, "no writer is alive, so every hole is closed");
    need(pclog_recover(path, &second) == PCLOG_OK, "a second recovery succeeds");
    need(first.records >= before->records, "no record is lost by recovering");
    need(second.records == first.records && second.tombstones == first.tombstones, "recovery is idempotent");
    unsigned char sum = 0;
    need(pclog_scan(path, read_all, &sum, &second) == PCLOG_OK, "a recovered log can be read");
    need(second.records == first.records, "a recovered log can be read to its end");
}

static struct pclog_head make_head(void) {
    struct pclog_head head = {.version = PCLOG_VERSION, .log_id = 0x1122334455667788};
    memcpy(head.magic, PCLOG_FILE_MAGIC, sizeof head.magic);
    head.crc = pclog_crc32c(pclog_crc32c(0, &head.version, sizeof head.version), &head.log_id, sizeof head.log_id);
    return head;
}

/* Sets the CRC of the frame at `offset`, and returns the distance to the next. */
static uint64_t repair(unsigned char *text, uint64_t offset, uint64_t end, uint32_t seed) {
    struct pclog_frame frame;
    memcpy(&frame, text + offset, sizeof frame);
    uint32_t length = (uint32_t)frame.commit, jump = length & ~PCLOG_TOMBSTONE;
    if (length == 0 || (frame.commit >> 32 & 3) != 0) {
        return 8;
    }
    if (length & PCLOG_TOMBSTONE) {
        frame.commit = pclog_tombstone(seed, offset, jump);
        memcpy(text + offset, &frame.commit, sizeof frame.commit);
        return jump >= 8 && jump % 8 == 0 && jump <= end - offset ? jump : 8;
    }
    if (pclog_frame_total(length) > end - offset) {
        return 8;
    }
    frame = pclog_frame_of(seed, offset, frame.writer, frame.epoch, text + offset + sizeof frame, length);
    memcpy(text + offset, &frame, sizeof frame);
    return pclog_frame_total(length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static unsigned char text[1 << 17];
    struct pclog_report report;
    unsigned char sum = 0;
    struct pclog_head head = make_head();
    if (bytes > sizeof text - sizeof head) {
        return 0;
    }
    memcpy(text, &head, sizeof head);
    memcpy(text + sizeof head, data, bytes);
    bytes = (bytes + sizeof head) / 8 * 8; /* growing would cost more than the rest */
    for (uint64_t at = sizeof head; at + PCLOG_FRAME_BYTES <= bytes;) {
        at += repair(text, at, bytes / 8 * 8, pclog_frames_seed(head.log_id));
    }
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    need(file >= 0 && write(file, text, bytes) == (ssize_t)bytes, "the input can be written");
    close(file);
    if (pclog_scan(path, read_all, &sum, &report) == PCLOG_OK) {
        recover_twice(&report);
    }
    unlink(path);
    unlink(meta);
    return 0;
}
