/* Memory that stands twice behind itself, so that what wraps around its end is still in one piece. */
#ifndef PCAPPEND_MIRROR_H
#define PCAPPEND_MIRROR_H

#include <stddef.h>
#include <stdint.h>

/* Two views of so many bytes (whole pages) in a row, its pages faulted in; ends the process without memory. */
uint8_t *mirror_new(size_t bytes);
void mirror_free(uint8_t *mirror, size_t bytes);

#endif
