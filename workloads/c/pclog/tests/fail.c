/* Full disks, and files that are truncated while writers are open. */
#define _GNU_SOURCE

#include "check.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Enters a file system of two megabytes that has no mount point, so that it ends with this process
 * and also works in a chroot. Without root it needs a user namespace. */
static void enter_a_small_disk(void) {
    CHECK(geteuid() == 0 || unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0);
    int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
    CHECK(context >= 0);
    CHECK(fsconfig(context, FSCONFIG_SET_STRING, "size", "2m", 0) == 0);
    CHECK(fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0);
    int disk = fsmount(context, FSMOUNT_CLOEXEC, 0);
    CHECK(disk >= 0 && fchdir(disk) == 0);
    close(disk);
    close(context);
}

/* Leaves room for about `bytes`. */
static void fill_but(uint64_t bytes) {
    static unsigned char block[65536];
    int file = open("ballast", O_WRONLY | O_CREAT, 0644);
    CHECK(file >= 0);
    memset(block, 'b', sizeof block);
    while (write(file, block, sizeof block) > 0) {
    }
    EQUAL(errno, ENOSPC);
    close(file);
    CHECK(truncate("ballast", (off_t)(size_of("ballast") - bytes)) == 0);
}

/* Appends until the disk is full; returns the number of the record that failed. */
static uint32_t append_until_full(pclog_writer *writer, size_t bytes, uint32_t from) {
    static unsigned char record[65536];
    for (uint32_t number = from;; number++) {
        int status = pclog_append(writer, record, make_record(record, 0, number, bytes), NULL);
        if (status != PCLOG_OK) {
            EQUAL(status, PCLOG_NO_SPACE);
            EQUAL(errno, ENOSPC);
            return number;
        }
        CHECK(number < 100000);
    }
}

static void check_raw(uint32_t records, size_t bytes) {
    size_t have;
    unsigned char *text = read_file(LOG, &have);
    EQUAL(have, records * bytes);
    for (uint32_t at = 0; at < records; at++) {
        EQUAL(number_of(text + at * bytes), at);
        CHECK(record_is_whole(text + at * bytes, bytes));
    }
    free(text);
}

static void fill_and_free_the_disk(const struct pclog_options *options, size_t bytes) {
    enter_a_small_disk();
    pclog *log = open_log(options);
    pclog_writer *writer = open_writer(log);
    fill_but(200 << 10);
    uint32_t first = append_until_full(writer, bytes, 0);
    CHECK(first > 0);
    EQUAL(append_until_full(writer, bytes, first), first); /* and again */
    CHECK(unlink("ballast") == 0);
    fill_but(300 << 10);
    uint32_t second = append_until_full(writer, bytes, first);
    CHECK(second > first);
    CHECK(unlink("ballast") == 0);
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    if (options->mode == PCLOG_RAW) {
        EQUAL(pclog_trim(log), PCLOG_OK);
        check_raw(second, bytes);
    } else {
        struct pclog_report report;
        EQUAL(pclog_recover(LOG, &report), PCLOG_OK);
        EQUAL(report.records, second);
        check_framed(1, second, &report);
        CHECK(report.tombstone_bytes <= 3 * (bytes + 64)); /* one hole for many attempts */
    }
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void raw_on_a_full_disk(void) {
    fill_and_free_the_disk(&(struct pclog_options){.window_bytes = 65536, .growth_bytes = 16384}, 1000);
}

static void raw_on_a_full_disk_by_pwrite(void) {
    fill_and_free_the_disk(&(struct pclog_options){.window_bytes = 4096, .growth_bytes = 4096}, 5000);
}

static void framed_on_a_full_disk(void) {
    fill_and_free_the_disk(&(struct pclog_options){.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 16384},
                           1000);
}

/* The file grows without blocks, so that the store finds the disk full, which raises SIGBUS. */
static void framed_grown_without_blocks_on_a_full_disk(void) {
    fill_and_free_the_disk(
        &(struct pclog_options){.mode = PCLOG_FRAMED, .growth = PCLOG_FTRUNCATE, .window_bytes = 65536}, 1000);
}

static void raw_grown_without_blocks_on_a_full_disk(void) {
    fill_and_free_the_disk(&(struct pclog_options){.growth = PCLOG_FTRUNCATE, .window_bytes = 65536}, 1000);
}

static void metadata_on_a_full_disk(void) {
    pclog *log;
    enter_a_small_disk();
    write_file(LOG, "", 0);
    fill_but(8192);
    EQUAL(pclog_open(&log, LOG, NULL), PCLOG_NO_SPACE);
    CHECK(unlink("ballast") == 0);
    EQUAL(pclog_close(open_log(NULL)), PCLOG_OK);
}

static void several_on_a_full_disk(void) {
    struct pclog_options options = {.window_bytes = 65536, .growth_bytes = 4096};
    enter_a_small_disk();
    pclog *log = open_log(&options);
    pclog_writer *one = open_writer(log), *other = open_writer(log);
    unsigned char record[1000];
    uint32_t number = 0;
    fill_but(100 << 10);
    for (int full = 0; full < 10; number++) {
        int status =
            pclog_append(number % 2 ? one : other, record, make_record(record, 0, number, sizeof record), NULL);
        if (status != PCLOG_OK) {
            EQUAL(status, PCLOG_NO_SPACE);
            full++;
            number--;
        }
    }
    EQUAL(pclog_writer_close(one), PCLOG_OK);
    EQUAL(pclog_writer_close(other), PCLOG_OK);
    EQUAL(pclog_trim(log), PCLOG_OK);
    check_raw(number, sizeof record);
    EQUAL(pclog_close(log), PCLOG_OK);
}

/* Behind a truncation the page is gone: the store raises SIGBUS, the append returns a status, and
 * the file is not extended again. */
static void truncate_while_open(const struct pclog_options *options) {
    static unsigned char record[3000];
    pclog *log = open_log(options);
    pclog_writer *writer = open_writer(log);
    for (uint32_t at = 0; at < 10; at++) {
        EQUAL(pclog_append(writer, record, make_record(record, 0, at, sizeof record), NULL), PCLOG_OK);
    }
    CHECK(truncate(LOG, 8192) == 0);
    EQUAL(pclog_append(writer, record, sizeof record, NULL), PCLOG_TRUNCATED);
    EQUAL(pclog_append(writer, record, sizeof record, NULL), PCLOG_TRUNCATED);
    EQUAL(size_of(LOG), 8192);
    pclog *other;
    EQUAL(pclog_open(&other, LOG, NULL), PCLOG_STALE);
    close_both(log, writer);
    log = open_log(NULL);
    writer = open_writer(log);
    EQUAL(pclog_append(writer, record, make_record(record, 0, 2, sizeof record), NULL), PCLOG_OK);
    close_both(log, writer);
}

static void raw_truncated_while_open(void) {
    truncate_while_open(&(struct pclog_options){.window_bytes = 65536, .growth_bytes = 65536});
    pclog *log = open_log(NULL);
    EQUAL(pclog_end(log), 8192 + 3000);
    EQUAL(pclog_close(log), PCLOG_OK);
}

static void framed_truncated_while_open(void) {
    struct pclog_report report;
    truncate_while_open(&(struct pclog_options){.mode = PCLOG_FRAMED, .window_bytes = 65536, .growth_bytes = 65536});
    EQUAL(pclog_recover(LOG, &report), PCLOG_OK);
    check_framed(1, 3, &report); /* two before the cut, one after it */
}

static void truncated_while_growing(void) {
    pclog *log = open_log(&(struct pclog_options){.window_bytes = 4096, .growth_bytes = 4096});
    pclog_writer *writer = open_writer(log);
    unsigned char page[4096] = "x";
    EQUAL(pclog_append(writer, page, sizeof page, NULL), PCLOG_OK);
    CHECK(truncate(LOG, 100) == 0);
    EQUAL(pclog_append(writer, page, sizeof page, NULL), PCLOG_TRUNCATED);
    EQUAL(size_of(LOG), 100);
    close_both(log, writer);
}

static volatile sig_atomic_t heard;

static void hear(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    heard = 1;
    _exit(77);
}

static int fault_elsewhere(void *context) {
    struct sigaction before = {.sa_sigaction = hear, .sa_flags = SA_SIGINFO};
    if (context != NULL) {
        sigaction(SIGBUS, &before, NULL);
    }
    pclog *log = open_log(NULL);
    pclog_writer *writer = open_writer(log);
    EQUAL(pclog_append(writer, "x", 1, NULL), PCLOG_OK);
    int file = open("other", O_RDWR | O_CREAT, 0644);
    volatile char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    map[0] = 1; /* the file is empty */
    return 0;
}

static void other_bus_errors_are_passed_on(void) {
    EQUAL(in_child(fault_elsewhere, "handler"), 77);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* have handlers of their own */
    EQUAL(in_child(fault_elsewhere, NULL), 128 + SIGBUS);
#endif
}

const struct test FAIL_TESTS[] = {
    {"raw_on_a_full_disk", raw_on_a_full_disk},
    {"raw_on_a_full_disk_by_pwrite", raw_on_a_full_disk_by_pwrite},
    {"framed_on_a_full_disk", framed_on_a_full_disk},
    {"framed_grown_without_blocks_on_a_full_disk", framed_grown_without_blocks_on_a_full_disk},
    {"raw_grown_without_blocks_on_a_full_disk", raw_grown_without_blocks_on_a_full_disk},
    {"metadata_on_a_full_disk", metadata_on_a_full_disk},
    {"several_on_a_full_disk", several_on_a_full_disk},
    {"raw_truncated_while_open", raw_truncated_while_open},
    {"framed_truncated_while_open", framed_truncated_while_open},
    {"truncated_while_growing", truncated_while_growing},
    {"other_bus_errors_are_passed_on", other_bus_errors_are_passed_on},
    {NULL, NULL},
};
