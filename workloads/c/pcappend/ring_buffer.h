/* Memory that is mapped twice in a row, so that data that wraps around its end is contiguous. */
#ifndef PCAPPEND_RING_BUFFER_H
#define PCAPPEND_RING_BUFFER_H

#include <stddef.h>
#include <stdint.h>

/* Maps `bytes` (whole pages) twice and populates them; exits on failure. */
uint8_t *ring_buffer_new(size_t bytes);
void ring_buffer_free(uint8_t *buffer, size_t bytes);

#endif
