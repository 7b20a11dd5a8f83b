/* pcgate: waits for `go` inside a container and then becomes the image's own program.
 *
 * It is bound into a container as its entry point, because an image need not have a shell. It
 * prints an empty line, reads one line, and execs its arguments. It reads byte by byte, so that
 * the rest of standard input is the program's. A program that the image lacks ends it before the
 * empty line. Exit codes are those of a shell: 127 without the program, 126 if it cannot run.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WITHOUT_GO = 1, NO_ARGUMENTS = 2, CANNOT_RUN = 126, NOT_FOUND = 127 };

/* The engines' own for an image that sets none. */
static const char default_path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

static bool is_program(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISREG(status.st_mode) && access(path, X_OK) == 0;
}

/* Puts the program's path into `found`, of PATH_MAX bytes, as runc does (Go's exec.LookPath). */
static bool find_program(const char *name, char *found) {
    if (strchr(name, '/') != NULL) {
        return snprintf(found, PATH_MAX, "%s", name) < PATH_MAX && is_program(found);
    }
    const char *set = getenv("PATH");
    const char *folder = set != NULL ? set : default_path;
    while (*name != '\0') {
        int length = (int)strcspn(folder, ":");
        const char *shown = length > 0 ? folder : "."; /* an empty entry is the current folder */
        int written = snprintf(found, PATH_MAX, "%.*s/%s", length > 0 ? length : 1, shown, name);
        if (written < PATH_MAX && is_program(found)) {
            return true;
        }
        if (folder[length] == '\0') {
            break;
        }
        folder += length + 1;
    }
    return false;
}

static bool wait_for_go(void) {
    char byte = 0;
    while (byte != '\n') {
        ssize_t got = read(STDIN_FILENO, &byte, 1);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            return false;
        }
    }
    return true;
}

int main(int count, char **words) {
    static char program[PATH_MAX];
    if (count < 2) {
        fprintf(stderr, "usage: pcgate PROGRAM [ARGUMENT...]\n");
        return NO_ARGUMENTS;
    }
    if (!find_program(words[1], program)) {
        fprintf(stderr, "there is no program %s in the image\n", words[1]);
        return NOT_FOUND;
    }
    if (write(STDOUT_FILENO, "\n", 1) != 1 || !wait_for_go()) {
        return WITHOUT_GO;
    }
    execv(program, words + 1);
    fprintf(stderr, "%s: %s\n", words[1], strerror(errno));
    return CANNOT_RUN;
}
