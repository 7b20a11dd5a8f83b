/* Numbers on the command line. Both functions exit with BAD_ARGUMENTS and a message if the text is
 * invalid. */
#ifndef CONTRACT_NUMBER_H
#define CONTRACT_NUMBER_H

#include <stdint.h>

/* Parses a whole number with an optional suffix K, M or G (powers of 1024). */
uint64_t number_of(const char *option, const char *text);

/* Parses a number above zero, with an optional fraction; `what` is its unit for messages, as in
 * "seconds". */
double positive_of(const char *option, const char *text, const char *what);

#endif
