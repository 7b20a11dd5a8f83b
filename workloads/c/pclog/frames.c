#include "frames.h"

#include "crc32c.h"

uint32_t pclog_frames_seed(uint64_t log_id) {
    return pclog_crc32c(0, &log_id, sizeof log_id);
}

int pclog_frames_survey(int file, uint64_t log_id, uint64_t at_least, struct pclog_found *found) {
    (void)file, (void)log_id, (void)at_least, (void)found;
    return PCLOG_INVALID;
}

int pclog_recover_old(pclog *log) {
    (void)log;
    return PCLOG_INVALID;
}
