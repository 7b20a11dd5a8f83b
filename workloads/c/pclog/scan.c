#define _GNU_SOURCE

#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool pclog_text_open(struct pclog_text *text, int file, uint64_t bytes, int protection, uint32_t seed) {
    *text = (struct pclog_text){.end = bytes / 8 * 8, .seed = seed};
    void *base = mmap(NULL, bytes, protection, MAP_SHARED, file, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    text->area = (struct pclog_area){.base = base, .bytes = bytes};
    if (pclog_area_watch(&text->area)) {
        return true;
    }
    munmap(base, bytes);
    errno = ENOMEM;
    return false;
}

void pclog_text_close(struct pclog_text *text) {
    pclog_area_forget(&text->area);
    munmap(text->area.base, text->area.bytes);
}

void pclog_report_add(struct pclog_report *report, const struct pclog_seen *seen) {
    if (seen->kind == PCLOG_IS_FRAME) {
        report->records++;
        report->record_bytes += seen->record_bytes;
    } else if (seen->kind == PCLOG_IS_CLOSED) {
        report->tombstones++;
        report->tombstone_bytes += seen->total_bytes;
    }
}

/* Behind the last word that is not zero; `offset` where all are from there on. */
static uint64_t after_all(const struct pclog_text *text, uint64_t offset) {
    uint64_t end = text->end;
    while (end > offset && pclog_frame_at(text, end - 8).kind == PCLOG_IS_OPEN) {
        end -= 8;
    }
    return end;
}

uint64_t pclog_after_broken(const struct pclog_text *text, uint64_t offset) {
    uint64_t next = pclog_next_frame(text, offset + 8, text->end);
    return next < text->end ? next : after_all(text, offset + 8);
}

static int walk(const struct pclog_text *text, pclog_visit visit, void *context, struct pclog_report *report) {
    uint64_t offset = PCLOG_HEAD_BYTES;
    while (offset < text->end) {
        struct pclog_seen seen = pclog_frame_at(text, offset);
        if (seen.kind == PCLOG_IS_OPEN) {
            break;
        }
        if (seen.kind == PCLOG_IS_BROKEN) {
            uint64_t next = pclog_after_broken(text, offset);
            report->corrupt_bytes += next - offset;
            offset = next;
            continue;
        }
        pclog_report_add(report, &seen);
        struct pclog_record record = {offset, text->area.base + offset + PCLOG_FRAME_BYTES, seen.record_bytes,
                                      seen.writer, seen.epoch};
        offset += seen.total_bytes;
        if (seen.kind == PCLOG_IS_FRAME && visit != NULL && visit(&record, context) != 0) {
            break;
        }
    }
    report->end = offset;
    return atomic_load(&text->area.any_lost) ? PCLOG_TRUNCATED : PCLOG_OK;
}

static int scan_file(int file, pclog_visit visit, void *context, struct pclog_report *report) {
    struct pclog_text text;
    struct stat status;
    uint64_t log_id;
    int head = pclog_head_read(file, &log_id);
    if (head != PCLOG_OK) {
        return head;
    }
    if (fstat(file, &status) != 0 ||
        !pclog_text_open(&text, file, (uint64_t)status.st_size, PROT_READ, pclog_frames_seed(log_id))) {
        return PCLOG_SYSTEM;
    }
    int result = walk(&text, visit, context, report);
    pclog_text_close(&text);
    return result;
}

int pclog_scan(const char *path, pclog_visit visit, void *context, struct pclog_report *report) {
    struct pclog_report nobody;
    if (path == NULL) {
        return PCLOG_INVALID;
    }
    report = report != NULL ? report : &nobody;
    *report = (struct pclog_report){0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return PCLOG_SYSTEM;
    }
    int status = scan_file(file, visit, context, report);
    close(file);
    return status;
}

static void survey(const struct pclog_text *text, uint64_t until, struct pclog_found *found) {
    uint64_t offset = pclog_next_frame(text, PCLOG_HEAD_BYTES, until);
    while (offset < until) {
        struct pclog_seen seen = pclog_frame_at(text, offset);
        if (seen.kind == PCLOG_IS_FRAME) {
            found->epoch = seen.epoch > found->epoch ? seen.epoch : found->epoch;
            found->writers = seen.writer > found->writers ? seen.writer : found->writers;
        }
        found->end = offset + seen.total_bytes > found->end ? offset + seen.total_bytes : found->end;
        offset = pclog_next_frame(text, offset + seen.total_bytes, until);
    }
}

/* A record that ends in zeros reaches beyond the last byte that is none, and what is not zero need not be a frame: both
 * count. */
int pclog_frames_survey(int file, uint64_t log_id, uint64_t at_least, struct pclog_found *found) {
    struct pclog_text text;
    uint64_t until = pclog_round_up(at_least, 8);
    if (!pclog_text_open(&text, file, found->size, PROT_READ, pclog_frames_seed(log_id))) {
        return PCLOG_SYSTEM;
    }
    found->end = until > PCLOG_HEAD_BYTES ? until : PCLOG_HEAD_BYTES;
    survey(&text, until < text.end ? until : text.end, found);
    int status = atomic_load(&text.area.any_lost) ? PCLOG_TRUNCATED : PCLOG_OK;
    pclog_text_close(&text);
    return status;
}
