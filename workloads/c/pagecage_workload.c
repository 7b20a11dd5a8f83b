#define _GNU_SOURCE

#include "pagecage_workload.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool (*may_report_failure)(void);

void pagecage_report_failures_if(bool (*may_report)(void)) {
    may_report_failure = may_report;
}

/* Uses a single write(2), so that the messages of several processes do not mix. */
void pagecage_fail(enum pagecage_exit code, const char *format, ...) {
    char sentence[8192], *end = sentence + sizeof sentence - 1;
    va_list values;
    va_start(values, format);
    char *at = sentence + snprintf(sentence, sizeof sentence, "%s: ", program_invocation_short_name);
    at += vsnprintf(at, (size_t)(end - at), format, values);
    va_end(values);
    at = at < end ? at : end - 1; /* truncated if too long */
    *at++ = '\n';
    if (may_report_failure == NULL || may_report_failure()) {
        ssize_t ignored = write(STDERR_FILENO, sentence, (size_t)(at - sentence));
        (void)ignored;
    }
    exit(code);
}

bool pagecage_wait_for_go(uint64_t evicted_bytes) {
    char word[16] = "";
    struct pagecage_message ready = pagecage_begin("ready");
    pagecage_count(&ready, "protocol", PAGECAGE_PROTOCOL_VERSION);
    pagecage_integer(&ready, "pid", getpid());
    if (evicted_bytes > 0) {
        pagecage_count(&ready, "evicted_bytes", evicted_bytes);
    }
    pagecage_send(&ready);
    if (fgets(word, sizeof word, stdin) == NULL) {
        return false;
    }
    if (strcmp(word, "go\n") != 0) {
        pagecage_fail(PAGECAGE_FAILED, "expected the line \"go\" on stdin");
    }
    return true;
}

void pagecage_wait_for_close(void) {
    while (getchar() != EOF) {
    }
}

void pagecage_stopped(void) {
    struct pagecage_message stopped = pagecage_begin("stopped");
    pagecage_send(&stopped);
}

static void append(struct pagecage_message *message, const char *text) {
    size_t length = strlen(text);
    if (message->capacity - message->length <= length) {
        message->capacity = 2 * (message->length + length + 64);
        message->text = realloc(message->text, message->capacity);
        if (message->text == NULL) {
            pagecage_fail(PAGECAGE_FAILED, "not enough memory for a message");
        }
    }
    memcpy(message->text + message->length, text, length + 1);
    message->length += length;
}

static void append_quoted(struct pagecage_message *message, const char *text) {
    append(message, "\"");
    for (const char *at = text; *at != '\0'; at++) {
        char piece[8] = {*at, '\0'};
        if ((unsigned char)*at < 0x20 || *at == '"' || *at == '\\') {
            snprintf(piece, sizeof piece, "\\u%04x", (unsigned)(unsigned char)*at);
        }
        append(message, piece);
    }
    append(message, "\"");
}

static void append_key(struct pagecage_message *message, const char *key) {
    if (message->needs_comma) {
        append(message, ",");
    }
    if (key != NULL) {
        append_quoted(message, key);
        append(message, ":");
    }
    message->needs_comma = true;
}

static void add(struct pagecage_message *message, const char *key, const char *value) {
    append_key(message, key);
    append(message, value);
}

static void open_with(struct pagecage_message *message, const char *key, const char *bracket) {
    add(message, key, bracket);
    message->needs_comma = false;
}

static void close_with(struct pagecage_message *message, const char *bracket) {
    append(message, bracket);
    message->needs_comma = true;
}

struct pagecage_message pagecage_begin(const char *type) {
    struct pagecage_message message = {0};
    open_with(&message, NULL, "{");
    pagecage_text(&message, "type", type);
    return message;
}

void pagecage_number(struct pagecage_message *message, const char *key, double value) {
    char text[32];
    if (!isfinite(value)) {
        pagecage_fail(PAGECAGE_FAILED, "`%s` is %g, which is not a number in JSON", key == NULL ? "[]" : key, value);
    }
    snprintf(text, sizeof text, "%.17g", value);
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == ',' ? '.' : *at; /* a locale's decimal comma */
    }
    add(message, key, text);
}

void pagecage_count(struct pagecage_message *message, const char *key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    add(message, key, text);
}

void pagecage_integer(struct pagecage_message *message, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    add(message, key, text);
}

void pagecage_text(struct pagecage_message *message, const char *key, const char *value) {
    append_key(message, key);
    append_quoted(message, value);
}

void pagecage_checksum(struct pagecage_message *message, const char *key, uint64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%" PRIu64, value);
    pagecage_text(message, key, text);
}

void pagecage_bool(struct pagecage_message *message, const char *key, bool value) {
    add(message, key, value ? "true" : "false");
}

void pagecage_null(struct pagecage_message *message, const char *key) {
    add(message, key, "null");
}

void pagecage_open_object(struct pagecage_message *message, const char *key) {
    open_with(message, key, "{");
}

void pagecage_close_object(struct pagecage_message *message) {
    close_with(message, "}");
}

void pagecage_open_array(struct pagecage_message *message, const char *key) {
    open_with(message, key, "[");
}

void pagecage_close_array(struct pagecage_message *message) {
    close_with(message, "]");
}

void pagecage_send(struct pagecage_message *message) {
    append(message, "}\n");
    if (fwrite(message->text, 1, message->length, stdout) != message->length || fflush(stdout) != 0) {
        pagecage_fail(PAGECAGE_FAILED, "cannot write to stdout: %s", strerror(errno));
    }
    free(message->text);
    *message = (struct pagecage_message){0};
}
