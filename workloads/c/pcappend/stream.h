/* A file that is read sequentially in large pieces, with a minimum number of bytes in memory at
 * once. */
#ifndef PCAPPEND_STREAM_H
#define PCAPPEND_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stream {
    int file;
    uint8_t *buffer;
    size_t room, from, to;
    bool ended;
};

/* Returns false, with errno set, on failure. */
bool stream_open(struct stream *stream, const char *path, size_t min_bytes, size_t read_bytes);

/* Reads until `min_bytes` bytes are available or the file ends; false, with errno set, on
 * failure. */
bool stream_fill(struct stream *stream, size_t min_bytes);

static inline const uint8_t *stream_at(const struct stream *stream) {
    return stream->buffer + stream->from;
}

static inline size_t stream_available(const struct stream *stream) {
    return stream->to - stream->from;
}

static inline void stream_skip(struct stream *stream, size_t bytes) {
    stream->from += bytes;
}

void stream_close(struct stream *stream);

#endif
