#define _GNU_SOURCE

#include "failure.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void fail(enum exit_code code, const char *format, ...) {
    va_list values;
    va_start(values, format);
    flockfile(stderr);
    fprintf(stderr, "%s: ", program_name);
    vfprintf(stderr, format, values);
    fputc('\n', stderr);
    funlockfile(stderr);
    va_end(values);
    exit(code);
}
