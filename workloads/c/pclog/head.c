#define _GNU_SOURCE

#include "crc32c.h"
#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static uint32_t crc_of(const struct pclog_head *head) {
    return pclog_crc32c(pclog_crc32c(0, &head->version, sizeof head->version), &head->log_id, sizeof head->log_id);
}

/* Derives the id from the inode and its creation time (statx(2); 0 if the file system has none). */
static int derive_id(int file, uint64_t *id) {
    struct statx status;
    if (statx(file, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &status) != 0) {
        return PCLOG_SYSTEM;
    }
    uint64_t words[3] = {status.stx_ino, 0, 0};
    if (status.stx_mask & STATX_BTIME) {
        words[1] = (uint64_t)status.stx_btime.tv_sec;
        words[2] = status.stx_btime.tv_nsec;
    }
    *id = (uint64_t)pclog_crc32c(1, words, sizeof words) << 32 | pclog_crc32c(2, words, sizeof words);
    return PCLOG_OK;
}

static int write_head(int file, struct pclog_parameters *parameters) {
    struct pclog_head head = {.version = PCLOG_VERSION};
    int status = derive_id(file, &head.log_id);
    if (status != PCLOG_OK) {
        return status;
    }
    memcpy(head.magic, PCLOG_FILE_MAGIC, sizeof head.magic);
    head.crc = crc_of(&head);
    parameters->log_id = head.log_id;
    ssize_t done = pwrite(file, &head, sizeof head, 0);
    if (done == sizeof head) {
        return PCLOG_OK;
    }
    return done >= 0 ? PCLOG_NO_SPACE : pclog_errno_status();
}

int pclog_head_read(int file, uint64_t *log_id) {
    struct pclog_head head;
    ssize_t have = pread(file, &head, sizeof head, 0);
    if (have < 0) {
        return PCLOG_SYSTEM;
    }
    if (have < (ssize_t)sizeof head || memcmp(head.magic, PCLOG_FILE_MAGIC, sizeof head.magic) != 0) {
        return PCLOG_FOREIGN;
    }
    if (head.version != PCLOG_VERSION) {
        return PCLOG_OTHER_VERSION;
    }
    *log_id = head.log_id;
    return head.crc == crc_of(&head) ? PCLOG_OK : PCLOG_FOREIGN;
}

/* True for an empty file, and for zeros: a head that a crash of the machine kept from the disk. */
static bool is_blank(int file) {
    struct pclog_head head;
    static const struct pclog_head NOTHING;
    memset(&head, 0, sizeof head);
    return pread(file, &head, sizeof head, 0) >= 0 && memcmp(&head, &NOTHING, sizeof head) == 0;
}

int pclog_head_ensure(int file, struct pclog_parameters *parameters) {
    int status = PCLOG_FOREIGN;
    /* Twice, because another process may write the head in between. */
    for (int attempt = 0; status == PCLOG_FOREIGN && attempt < 2; attempt++) {
        status = pclog_head_read(file, &parameters->log_id);
        if (status == PCLOG_OK) {
            parameters->mode = PCLOG_FRAMED;
            return PCLOG_OK;
        }
        if (status == PCLOG_FOREIGN && parameters->mode == PCLOG_RAW) {
            return PCLOG_OK;
        }
        if (status == PCLOG_FOREIGN && is_blank(file)) {
            return write_head(file, parameters);
        }
    }
    return status == PCLOG_FOREIGN ? PCLOG_OTHER_OPTIONS : status;
}
