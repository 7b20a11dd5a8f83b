/* A method of appending, as a table of functions, and its state per run, process and writer. The
 * loop around a method is the same for all (writer.c). */
#ifndef PCAPPEND_METHOD_H
#define PCAPPEND_METHOD_H

#include "shared_memory.h"
#include "plan.h"
#include "record.h"
#include "verify.h"

/* One run, set up before fork(2) and inherited by its processes. */
struct job {
    const struct plan *plan;
    struct shared_memory *memory;
    struct lengths lengths;
    char path[4096];
    size_t block_bytes; /* records are padded to multiples of this; 1 means no padding */
    void *shared;       /* data of the method, made by create() */
    const char *note;   /* a sentence about the method for the report, or NULL */
};

struct process {
    const struct job *job;
    uint32_t number;
    void *own; /* data of the method, made by enter() */
};

struct writer {
    struct process *process;
    const struct job *job;
    uint32_t number;
    struct outcome *outcome;
    int file;  /* to sync; -1 if the method has sync() */
    void *own; /* data of the method, made by open() */
    uint8_t *record;
    uint64_t random;
};

/* A function that is NULL is skipped. append(), flush() and sync() return 0 or an errno, which is
 * counted; the others exit on failure. */
struct method {
    const char *name;
    const char *summary;             /* for --help */
    void (*create)(struct job *job); /* before fork(2); the file exists and is empty */
    void (*enter)(struct process *process);
    void (*open)(struct writer *writer);
    int (*append)(struct writer *writer, const uint8_t *record, size_t bytes);
    int (*flush)(struct writer *writer); /* writes everything that append() has taken to the file */
    int (*sync)(struct writer *writer);  /* replaces fdatasync(2) of writer->file */
    void (*close)(struct writer *writer);
    void (*leave)(struct process *process);
    void (*finish)(struct job *job); /* after all processes: truncates the file to its records */
    bool (*verify)(const struct job *job, struct verifier *verifier); /* replaces verifier_read() */
};

/* All methods in the order of --help, followed by NULL. */
extern const struct method *const methods[];

/* Returns the method of that name, or NULL. */
const struct method *method_named(const char *name);

/* Opens the job's file with these flags; exits on failure. */
int open_log(const struct job *job, int flags);

/* Writes all bytes with write(2), repeated after interruptions and short writes; returns 0 or an
 * errno. */
int write_all(int file, const uint8_t *bytes, size_t count);

#endif
