#include "help.h"

#include "method.h"

#include <stdio.h>

static const char OPTIONS[] =
    "Appends records to one file from several processes and threads, and verifies that it has each of them.\n\n"
    "  --dir DIR               directory for the file, which is removed at the end\n"
    "  --method NAME           how to append a record, see below\n"
    "  --procs N               number of processes (4)\n"
    "  --threads N             number of threads per process (1)\n"
    "  --ops N                 records per writer (100000)\n"
    "  --bytes N | N..M        length of a record (128); from 16 bytes on it holds its writer and number\n"
    "  --fsync none|every|N|group   fdatasync(2) never, after each record, after N records of a writer, or one for\n"
    "                          all waiting writers: each waits for a sync that began after its record\n"
    "  --rate R                records per second of all writers, at fixed times, from which late_* is counted\n"
    "  --max-seconds S         stop after this time\n"
    "  --keep                  keep the file\n"
    "  --no-handshake          start without waiting for `go`, and exit at the end\n\n"
    "Only for `pclog`:\n"
    "  --framing raw|framed    the records alone, or each with its length and CRC (raw)\n"
    "  --window N              bytes mapped at a time\n"
    "  --growth fallocate|ftruncate   how to grow the file (fallocate)\n"
    "  --growth-bytes N        minimum growth step\n"
    "  --growth-percent N      growth step as a share of the file's size; the larger step applies\n"
    "  --prefault-bytes N      bytes that a helper thread in each process populates ahead\n"
    "Only for `aio` and `uring`:\n"
    "  --depth N               writes in flight per writer (1)\n"
    "Only for `batch`:\n"
    "  --batch-bytes N         bytes to collect before writing (64K)\n\n"
    "Sizes accept the suffixes K, M and G (powers of 1024). Methods:\n";

static const char EXAMPLES[] =
    "\nExamples:\n"
    "  pcappend --dir /data --method pclog --no-handshake\n"
    "  pcappend --dir /data --method write --procs 2 --threads 2 --bytes 1 --no-handshake\n"
    "  pcappend --dir /data --method pclog --framing framed --rate 20000 --max-seconds 10 --no-handshake\n"
    "  pcappend --dir /data --method write --fsync group --ops 5000 --no-handshake\n\n"
    "Exit codes: 0 done, 1 failed or a record lost, duplicated, torn or out of order, 2 bad arguments,\n"
    "77 not possible on this host.\n";

void help_print(void) {
    fputs(OPTIONS, stdout);
    for (const struct method *const *each = methods; *each != NULL; each++) {
        printf("  %-18s %s\n", (*each)->name, (*each)->summary);
    }
    fputs(EXAMPLES, stdout);
}
