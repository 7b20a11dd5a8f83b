#define _GNU_SOURCE

#include "handle.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

uint64_t pclog_page_bytes(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

int pclog_errno_status(void) {
    return errno == ENOSPC || errno == EDQUOT ? PCLOG_NO_SPACE : PCLOG_SYSTEM;
}

void pclog_sleep_us(long us) {
    struct timespec duration = {.tv_nsec = us * 1000};
    nanosleep(&duration, NULL);
}
