/* A way to append, as a table of functions, and those who use it. The loop around it is the same for all. */
#ifndef PCAPPEND_METHOD_H
#define PCAPPEND_METHOD_H

#include "shared_memory.h"
#include "plan.h"
#include "record.h"
#include "verify.h"

/* One run: what all its processes know from before the fork. */
struct job {
    const struct plan *plan;
    struct shared_memory *memory;
    struct lengths lengths;
    char path[4096];
    size_t block_bytes; /* each record is padded to whole blocks of this; 1 for not at all */
    void *shared;       /* the method's own, made by create(); the processes inherit it */
    const char *note;   /* a sentence about what the method does, or NULL */
};

struct process {
    const struct job *job;
    uint32_t number;
    void *own; /* the method's, made by enter() */
};

struct writer {
    struct process *process;
    const struct job *job;
    uint32_t number;
    struct outcome *outcome;
    int file;  /* what is synced; -1 where a method has its own way */
    void *own; /* the method's, made by open() */
    uint8_t *record;
    uint64_t random;
};

/* Where a function is missing there is nothing to do. append(), flush() and sync() return 0 or an errno, which is
 * counted; the others end the process where they fail. */
struct method {
    const char *name;
    const char *summary;             /* a line for --help */
    void (*create)(struct job *job); /* before the fork; the file is there and empty */
    void (*enter)(struct process *process);
    void (*open)(struct writer *writer);
    int (*append)(struct writer *writer, const uint8_t *record, size_t bytes);
    int (*flush)(struct writer *writer); /* what append() has taken is in the file when it returns */
    int (*sync)(struct writer *writer);  /* instead of fdatasync(2) of writer->file */
    void (*close)(struct writer *writer);
    void (*leave)(struct process *process);
    void (*finish)(struct job *job); /* when all processes have ended: cuts off what is no record */
    bool (*verify)(const struct job *job, struct verifier *verifier); /* instead of reading the file as it is */
};

/* All of them, in the order of --help; ends with NULL. */
extern const struct method *const methods[];

/* By name; NULL where there is none. */
const struct method *method_named(const char *name);

/* Opens the job's file with these flags; ends the process where it cannot. */
int open_log(const struct job *job, int flags);

/* write(2) of all the bytes, again where it was interrupted or fell short; 0 or an errno. */
int write_all(int file, const uint8_t *bytes, size_t count);

#endif
