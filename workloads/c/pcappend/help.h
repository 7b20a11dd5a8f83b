/* The text of `pcappend --help`. */
#ifndef PCAPPEND_HELP_H
#define PCAPPEND_HELP_H

void help_print(void);

#endif
