#include "handle.h"

void pclog_ahead_start(pclog *log) {
    (void)log;
}

void pclog_ahead_stop(pclog *log) {
    (void)log;
}
