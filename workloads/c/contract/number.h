/* Numbers of the command line. Each ends the process with BAD_ARGUMENTS and a sentence where the text is none. */
#ifndef CONTRACT_NUMBER_H
#define CONTRACT_NUMBER_H

#include <stdint.h>

/* A whole number, with K, M or G for the powers of 1024. */
uint64_t number_of(const char *option, const char *text);

/* A number above zero, perhaps with a fraction; `what` says of what: "seconds". */
double positive_of(const char *option, const char *text, const char *what);

#endif
