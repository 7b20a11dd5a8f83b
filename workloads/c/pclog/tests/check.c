#define _GNU_SOURCE

#include "check.h"

#include "../identity.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

void failed(const char *file, int line, const char *what, long long seen, long long wanted) {
    fprintf(stderr, "%s:%d: not true: %s (%lld, not %lld)\n", file, line, what, seen, wanted);
    _exit(1);
}

pclog *open_log(const struct pclog_options *options) {
    pclog *log = NULL;
    EQUAL(pclog_open(&log, LOG, options), PCLOG_OK);
    return log;
}

pclog_writer *open_writer(pclog *log) {
    pclog_writer *writer = NULL;
    EQUAL(pclog_writer_open(log, &writer), PCLOG_OK);
    return writer;
}

void close_both(pclog *log, pclog_writer *writer) {
    EQUAL(pclog_writer_close(writer), PCLOG_OK);
    EQUAL(pclog_close(log), PCLOG_OK);
}

pid_t begin_child(int (*work)(void *), void *context) {
    fflush(NULL);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no process */
        _exit(work(context));
    }
    return pid;
}

int end_child(pid_t pid) {
    int status;
    EQUAL(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int in_child(int (*work)(void *), void *context) {
    return end_child(begin_child(work, context));
}

static int send_self(void *pipe_end) {
    uint64_t self = pclog_self();
    return write(*(int *)pipe_end, &self, sizeof self) == sizeof self ? 0 : 1;
}

uint64_t dead_identity(void) {
    int ends[2];
    uint64_t identity = 0;
    CHECK(pipe(ends) == 0);
    EQUAL(in_child(send_self, &ends[1]), 0);
    EQUAL(read(ends[0], &identity, sizeof identity), sizeof identity);
    close(ends[0]);
    close(ends[1]);
    return identity;
}

uint64_t size_of(const char *path) {
    struct stat status;
    CHECK(stat(path, &status) == 0);
    return (uint64_t)status.st_size;
}

unsigned char *read_file(const char *path, size_t *bytes) {
    *bytes = size_of(path);
    unsigned char *text = malloc(*bytes + 1);
    int file = open(path, O_RDONLY);
    CHECK(text != NULL && file >= 0);
    for (size_t have = 0; have < *bytes;) {
        ssize_t more = read(file, text + have, *bytes - have);
        CHECK(more > 0);
        have += (size_t)more;
    }
    close(file);
    return text;
}

void write_file(const char *path, const void *bytes, size_t count) {
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(file >= 0);
    EQUAL(write(file, bytes, count), count);
    close(file);
}

struct pclog_meta *map_meta(void) {
    int file = open(META, O_RDWR);
    CHECK(file >= 0);
    struct pclog_meta *meta = mmap(NULL, sizeof *meta, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(meta != MAP_FAILED);
    close(file);
    return meta;
}

size_t make_record(unsigned char *to, uint32_t who, uint32_t number, size_t bytes) {
    CHECK(bytes >= 8);
    memcpy(to, &who, 4);
    memcpy(to + 4, &number, 4);
    for (size_t at = 8; at < bytes; at++) {
        to[at] = (unsigned char)(1 + (who * 31 + number * 7 + at) % 255);
    }
    return bytes;
}

uint32_t writer_of(const unsigned char *record) {
    uint32_t who;
    memcpy(&who, record, 4);
    return who;
}

uint32_t number_of(const unsigned char *record) {
    uint32_t number;
    memcpy(&number, record + 4, 4);
    return number;
}

bool record_is_whole(const unsigned char *record, size_t bytes) {
    for (size_t at = 8; at < bytes; at++) {
        if (record[at] != (unsigned char)(1 + (writer_of(record) * 31 + number_of(record) * 7 + at) % 255)) {
            return false;
        }
    }
    return bytes >= 8;
}

struct count {
    uint32_t writers, each, next[64];
};

static int count(const struct pclog_record *record, void *context) {
    struct count *count = context;
    CHECK(record_is_whole(record->data, record->bytes));
    uint32_t who = writer_of(record->data);
    CHECK(who < count->writers);
    EQUAL(number_of(record->data), count->next[who]);
    count->next[who]++;
    return 0;
}

void check_framed(uint32_t writers, uint32_t each, struct pclog_report *report) {
    struct count seen = {.writers = writers, .each = each};
    EQUAL(pclog_scan(LOG, count, &seen, report), PCLOG_OK);
    for (uint32_t who = 0; who < writers; who++) {
        EQUAL(seen.next[who], each);
    }
}
