#include "number.h"

#include "failure.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint64_t number_of(const char *option, const char *text) {
    char *end = NULL;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const char *suffixes = "KMG";
    const char *suffix = *end != '\0' ? strchr(suffixes, *end) : NULL;
    if (*text < '0' || *text > '9' || (*end != '\0' && (suffix == NULL || end[1] != '\0'))) {
        fail(BAD_ARGUMENTS, "'%s' is not a number for %s (see `%s --help`)", text, option, program_name);
    }
    int shift = suffix == NULL ? 0 : 10 * (int)(suffix - suffixes + 1);
    if (errno == ERANGE || value > UINT64_MAX >> shift) {
        fail(BAD_ARGUMENTS, "'%s' is too large for %s", text, option);
    }
    return value << shift;
}

double positive_of(const char *option, const char *text, const char *what) {
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value > 0.0) || isinf(value)) {
        fail(BAD_ARGUMENTS, "'%s' is not a number of %s for %s (see `%s --help`)", text, what, option, program_name);
    }
    return value;
}
