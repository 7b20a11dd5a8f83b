/* Runs the tests whose name contains the argument, or all; --list prints their names. */
#define _GNU_SOURCE

#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct test *const THEMES[] = {APPEND_TESTS, FRAME_TESTS,   SHARE_TESTS, CREATE_TESTS, REBUILD_TESTS,
                                            TRIM_TESTS,   RECOVER_TESTS, FAIL_TESTS,  LIMIT_TESTS};

static int in_folder(void *context) {
    const struct test *test = context;
    char folder[] = "/tmp/pclog-test-XXXXXX";
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK(chmod(folder, 0755) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(300); /* seconds, many times what the slowest test needs */
        test->run();
        exit(0); /* the sanitizers report leaks and races in exit(3) */
    }
    int status = end_child(pid);
    CHECK(chdir("/") == 0);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(system(command) == 0);
    return status;
}

static bool passes(const struct test *test) {
    struct test copy = *test;
    int status = in_child(in_folder, &copy);
    printf("%s %s\n", status == 0 ? "ok    " : "FAILED", test->name);
    fflush(stdout);
    return status == 0;
}

int main(int count, char **words) {
    const char *wanted = count > 1 ? words[1] : "";
    int failures = 0, ran = 0;
    for (size_t theme = 0; theme < sizeof THEMES / sizeof *THEMES; theme++) {
        for (const struct test *test = THEMES[theme]; test->name != NULL; test++) {
            if (strcmp(wanted, "--list") == 0) {
                printf("%s\n", test->name);
                ran++;
            } else if (strstr(test->name, wanted) != NULL) {
                failures += !passes(test);
                ran++;
            }
        }
    }
    if (ran == 0) {
        fprintf(stderr, "no test has %s in its name\n", wanted);
    }
    return failures > 0 || ran == 0;
}
