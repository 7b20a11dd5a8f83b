/* Memory that stands twice behind itself, so that what wraps around its end is still in one piece. */
#ifndef PCAPPEND_RING_BUFFER_H
#define PCAPPEND_RING_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* Two views of so many bytes (whole pages) in a row, its pages faulted in; ends the process without memory. */
uint8_t *ring_buffer_new(size_t bytes);
void ring_buffer_free(uint8_t *buffer, size_t bytes);

#endif
