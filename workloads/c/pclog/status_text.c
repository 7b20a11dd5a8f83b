#include "pclog.h"

static const char *const SENTENCES[] = {
    [PCLOG_OK] = "nothing went wrong",
    [PCLOG_SYSTEM] = "a system call failed, errno says why",
    [PCLOG_INVALID] = "an argument or an option makes no sense",
    [PCLOG_TOO_LARGE] = "the record is too long, or the log would be",
    [PCLOG_NO_SPACE] = "the disk or the quota is full, the record was not written",
    [PCLOG_TRUNCATED] = "somebody cut the file under its writers; open the log anew",
    [PCLOG_FOREIGN] = "the file beside the log is not its metadata, or is damaged; remove it when no writer is alive",
    [PCLOG_OTHER_VERSION] = "the log was made by another version of this library",
    [PCLOG_OTHER_OPTIONS] = "the log was made with other options than those asked for",
    [PCLOG_STALE] =
        "the metadata speak of another file, and writers of that one are alive; open the log anew when they are gone",
    [PCLOG_LIVE_WRITERS] = "a writer is open that may still write beyond the end",
    [PCLOG_UNDECIDED] = "a hole belongs to a writer that is alive, or may be; recover again when it is done or dead",
    [PCLOG_TOO_MANY] = "too many writers are open",
    [PCLOG_BUSY] = "another process holds the log alone and is not running; try again",
    [PCLOG_OTHER_NAMESPACE] =
        "the log's writers live in another pid namespace, from here nobody can tell whether they are alive",
};

const char *pclog_explain(int status) {
    int known = sizeof SENTENCES / sizeof *SENTENCES;
    return status >= 0 && status < known ? SENTENCES[status] : "no status of this library";
}
