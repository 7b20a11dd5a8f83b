#define _GNU_SOURCE

#include "frames.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

bool pclog_mapping_open(struct pclog_mapping *mapping, int file, uint64_t bytes, int protection, uint32_t seed) {
    *mapping = (struct pclog_mapping){.end = bytes / 8 * 8, .seed = seed};
    void *base = mmap(NULL, bytes, protection, MAP_SHARED, file, 0);
    if (base == MAP_FAILED) {
        return false;
    }
    mapping->area = (struct pclog_area){.base = base, .bytes = bytes};
    if (pclog_area_register(&mapping->area)) {
        return true;
    }
    munmap(base, bytes);
    errno = ENOMEM;
    return false;
}

void pclog_mapping_close(struct pclog_mapping *mapping) {
    pclog_area_unregister(&mapping->area);
    munmap(mapping->area.base, mapping->area.bytes);
}

void pclog_report_add(struct pclog_report *report, const struct pclog_entry *entry) {
    if (entry->kind == PCLOG_ENTRY_RECORD) {
        report->records++;
        report->record_bytes += entry->record_bytes;
    } else if (entry->kind == PCLOG_ENTRY_TOMBSTONE) {
        report->tombstones++;
        report->tombstone_bytes += entry->total_bytes;
    }
}

/* Returns the offset behind the last non-zero word; `offset` if all words from there on are
 * zero. */
static uint64_t after_last_nonzero(const struct pclog_mapping *mapping, uint64_t offset) {
    uint64_t end = mapping->end;
    while (end > offset && pclog_entry_at(mapping, end - 8).kind == PCLOG_ENTRY_UNCOMMITTED) {
        end -= 8;
    }
    return end;
}

uint64_t pclog_after_damage(const struct pclog_mapping *mapping, uint64_t offset) {
    uint64_t next = pclog_next_frame(mapping, offset + 8, mapping->end);
    return next < mapping->end ? next : after_last_nonzero(mapping, offset + 8);
}

static int scan_entries(const struct pclog_mapping *mapping, pclog_visit visit, void *context,
                        struct pclog_report *report) {
    uint64_t offset = PCLOG_HEAD_BYTES;
    while (offset < mapping->end) {
        struct pclog_entry entry = pclog_entry_at(mapping, offset);
        if (entry.kind == PCLOG_ENTRY_UNCOMMITTED) {
            break;
        }
        if (entry.kind == PCLOG_ENTRY_DAMAGED) {
            uint64_t next = pclog_after_damage(mapping, offset);
            report->corrupt_bytes += next - offset;
            offset = next;
            continue;
        }
        pclog_report_add(report, &entry);
        struct pclog_record record = {offset, mapping->area.base + offset + PCLOG_FRAME_BYTES, entry.record_bytes,
                                      entry.writer, entry.epoch};
        offset += entry.total_bytes;
        if (entry.kind == PCLOG_ENTRY_RECORD && visit != NULL && visit(&record, context) != 0) {
            break;
        }
    }
    report->end = offset;
    return atomic_load(&mapping->area.any_lost) ? PCLOG_TRUNCATED : PCLOG_OK;
}

static int scan_file(int file, pclog_visit visit, void *context, struct pclog_report *report) {
    struct pclog_mapping mapping;
    struct stat status;
    uint64_t log_id;
    int head = pclog_head_read(file, &log_id);
    if (head != PCLOG_OK) {
        return head;
    }
    if (fstat(file, &status) != 0 ||
        !pclog_mapping_open(&mapping, file, (uint64_t)status.st_size, PROT_READ, pclog_frames_seed(log_id))) {
        return PCLOG_SYSTEM;
    }
    int result = scan_entries(&mapping, visit, context, report);
    pclog_mapping_close(&mapping);
    return result;
}

int pclog_scan(const char *path, pclog_visit visit, void *context, struct pclog_report *report) {
    struct pclog_report ignored;
    if (path == NULL) {
        return PCLOG_INVALID;
    }
    report = report != NULL ? report : &ignored;
    *report = (struct pclog_report){0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return PCLOG_SYSTEM;
    }
    int status = scan_file(file, visit, context, report);
    close(file);
    return status;
}

static void summarise(const struct pclog_mapping *mapping, uint64_t until, struct pclog_contents *contents) {
    uint64_t offset = pclog_next_frame(mapping, PCLOG_HEAD_BYTES, until);
    while (offset < until) {
        struct pclog_entry entry = pclog_entry_at(mapping, offset);
        if (entry.kind == PCLOG_ENTRY_RECORD) {
            contents->epoch = entry.epoch > contents->epoch ? entry.epoch : contents->epoch;
            contents->writers = entry.writer > contents->writers ? entry.writer : contents->writers;
        }
        contents->end = offset + entry.total_bytes > contents->end ? offset + entry.total_bytes : contents->end;
        offset = pclog_next_frame(mapping, offset + entry.total_bytes, until);
    }
}

/* The end is behind the last frame and behind the last non-zero byte: a record may end in zeros,
 * and non-zero bytes need not be a frame. */
int pclog_frames_summarise(int file, uint64_t log_id, uint64_t at_least, struct pclog_contents *contents) {
    struct pclog_mapping mapping;
    uint64_t until = pclog_round_up(at_least, 8);
    if (!pclog_mapping_open(&mapping, file, contents->size, PROT_READ, pclog_frames_seed(log_id))) {
        return PCLOG_SYSTEM;
    }
    contents->end = until > PCLOG_HEAD_BYTES ? until : PCLOG_HEAD_BYTES;
    summarise(&mapping, until < mapping.end ? until : mapping.end, contents);
    int status = atomic_load(&mapping.area.any_lost) ? PCLOG_TRUNCATED : PCLOG_OK;
    pclog_mapping_close(&mapping);
    return status;
}
