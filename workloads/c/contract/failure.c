#define _GNU_SOURCE

#include "failure.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static _Atomic uint32_t *shared_word;

void fail_together(_Atomic uint32_t *word) {
    shared_word = word;
}

bool fail_may_report(void) {
    return shared_word == NULL || atomic_exchange(shared_word, 1) == 0;
}

/* Uses a single write(2), so that the messages of several processes do not mix. */
void fail(enum exit_code code, const char *format, ...) {
    char sentence[8192], *end = sentence + sizeof sentence - 1;
    va_list values;
    va_start(values, format);
    char *at = sentence + snprintf(sentence, sizeof sentence, "%s: ", program_name);
    at += vsnprintf(at, (size_t)(end - at), format, values);
    va_end(values);
    at = at < end ? at : end - 1; /* truncated if too long */
    *at++ = '\n';
    if (fail_may_report()) {
        ssize_t ignored = write(STDERR_FILENO, sentence, (size_t)(at - sentence));
        (void)ignored;
    }
    exit(code);
}
