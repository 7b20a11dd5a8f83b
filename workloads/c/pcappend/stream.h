/* A file read from its beginning in large pieces, of which so many bytes at least are in memory at once. */
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

/* False with errno where it cannot be opened. */
bool stream_open(struct stream *stream, const char *path, size_t at_once, size_t read_bytes);

/* Reads until so many bytes are there, or the file ends; false with errno where it cannot be read. */
bool stream_fill(struct stream *stream, size_t at_once);

static inline const uint8_t *stream_at(const struct stream *stream) {
    return stream->buffer + stream->from;
}

static inline size_t stream_have(const struct stream *stream) {
    return stream->to - stream->from;
}

static inline void stream_pass(struct stream *stream, size_t bytes) {
    stream->from += bytes;
}

void stream_close(struct stream *stream);

#endif
