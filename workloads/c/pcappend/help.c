#include "help.h"

#include "method.h"

#include <stdio.h>

static const char OPTIONS[] =
    "Appends records to one file from several processes and threads at once, and proves that each is in it.\n\n"
    "  --dir DIR               where its file is made, and removed at the end\n"
    "  --method NAME           how a record is appended, see below\n"
    "  --procs N               so many processes (4)\n"
    "  --threads N             so many threads in each (1)\n"
    "  --ops N                 so many records a writer (100000)\n"
    "  --bytes N | N..M        length of a record (128); of 16 bytes or more it says whose it is, and which\n"
    "  --fsync none|every|N|group   fdatasync(2) never, after each record, after N of a writer, or one for all that\n"
    "                          wait: whoever comes first syncs, the others wait for a sync that began after theirs\n"
    "  --rate R                records a second over all writers, at fixed times; late_* counts from these times\n"
    "  --max-seconds S         stop after so long\n"
    "  --keep                  leave the file\n"
    "  --no-handshake          start at once and leave at once\n\n"
    "of `pclog` only\n"
    "  --framing raw|framed    nothing but the records, or each with its length and CRC (raw)\n"
    "  --window N              mapped at a time\n"
    "  --growth fallocate|ftruncate   how the file grows (fallocate)\n"
    "  --growth-bytes N        ... and by how much\n"
    "  --growth-percent N      ... or by this share of its size where that is more\n"
    "  --prefault-bytes N      a helper in each process makes so much ready ahead\n"
    "of `aio` and `uring` only\n"
    "  --depth N               writes in flight of each writer (1)\n"
    "of `batch` only\n"
    "  --batch-bytes N         collected before they are written (64K)\n\n"
    "Sizes take K, M, G for the powers of 1024. Methods:\n";

static const char EXAMPLES[] =
    "\nExamples:\n"
    "  pcappend --dir /data --method pclog --no-handshake\n"
    "  pcappend --dir /data --method write --procs 2 --threads 2 --bytes 1 --no-handshake\n"
    "  pcappend --dir /data --method pclog --framing framed --rate 20000 --max-seconds 10 --no-handshake\n"
    "  pcappend --dir /data --method write --fsync group --ops 5000 --no-handshake\n\n"
    "Exit codes: 0 done, 1 failed or a record lost, doubled, torn or out of order, 2 bad arguments, 77 cannot on this "
    "host.\n";

void help_print(void) {
    fputs(OPTIONS, stdout);
    for (const struct method *const *each = methods; *each != NULL; each++) {
        printf("  %-18s %s\n", (*each)->name, (*each)->summary);
    }
    fputs(EXAMPLES, stdout);
}
