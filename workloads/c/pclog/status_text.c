#include "pclog.h"

static const char *const SENTENCES[] = {
    [PCLOG_OK] = "the call succeeded",
    [PCLOG_SYSTEM] = "a system call failed (see errno)",
    [PCLOG_INVALID] = "an argument or an option is invalid",
    [PCLOG_TOO_LARGE] = "the record is too long, or would make the log too long",
    [PCLOG_NO_SPACE] = "the disk or the quota is full; the record was not written",
    [PCLOG_TRUNCATED] = "another process truncated the file while writers were open; reopen the log",
    [PCLOG_FOREIGN] = "the file beside the log is not its metadata, or is damaged; remove it when no writer is alive",
    [PCLOG_OTHER_VERSION] = "the log was made by another version of this library",
    [PCLOG_OTHER_OPTIONS] = "the log was made with other options than those requested",
    [PCLOG_STALE] = "the metadata describes another file, whose writers are alive; reopen the log when they are gone",
    [PCLOG_LIVE_WRITERS] = "a writer that may still write beyond the end is open",
    [PCLOG_UNDECIDED] = "the owner of a hole is, or may be, alive; recover again when it is done or dead",
    [PCLOG_TOO_MANY] = "too many writers are open",
    [PCLOG_BUSY] = "another process has exclusive access to the log and is stopped; try again",
    [PCLOG_OTHER_NAMESPACE] = "the log's writers run in another pid namespace, so whether they are alive is unknown",
};

const char *pclog_explain(int status) {
    int known = sizeof SENTENCES / sizeof *SENTENCES;
    return status >= 0 && status < known ? SENTENCES[status] : "not a status of this library";
}
