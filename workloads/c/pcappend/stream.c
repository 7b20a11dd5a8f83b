#define _GNU_SOURCE

#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool stream_open(struct stream *stream, const char *path, size_t min_bytes, size_t read_bytes) {
    *stream = (struct stream){.file = open(path, O_RDONLY | O_CLOEXEC), .room = min_bytes + read_bytes};
    stream->buffer = malloc(stream->room);
    if (stream->file >= 0 && stream->buffer != NULL) {
        return true;
    }
    int error = errno;
    stream_close(stream);
    errno = error;
    return false;
}

bool stream_fill(struct stream *stream, size_t min_bytes) {
    if (stream_available(stream) >= min_bytes || stream->ended) {
        return true;
    }
    memmove(stream->buffer, stream_at(stream), stream_available(stream));
    stream->to -= stream->from;
    stream->from = 0;
    while (!stream->ended && stream->to < min_bytes) {
        ssize_t more = read(stream->file, stream->buffer + stream->to, stream->room - stream->to);
        if (more < 0 && errno != EINTR) {
            return false;
        }
        stream->ended = more == 0;
        stream->to += more > 0 ? (size_t)more : 0;
    }
    return true;
}

void stream_close(struct stream *stream) {
    if (stream->file >= 0) {
        close(stream->file);
    }
    free(stream->buffer);
}
