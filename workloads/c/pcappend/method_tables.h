/* The methods, by the file that defines them. */
#ifndef PCAPPEND_METHOD_TABLES_H
#define PCAPPEND_METHOD_TABLES_H

struct method;

/* log.c */
extern const struct method method_pclog;
/* syscalls.c */
extern const struct method method_write, method_writev, method_fwrite, method_batch, method_reserve_pwrite;
/* direct.c */
extern const struct method method_direct, method_direct_misaligned;
/* handoff.c */
extern const struct method method_handoff;
/* mmlog.c */
extern const struct method method_seed_mmlog;
/* mapped.c */
extern const struct method method_mapped_atomic, method_mapped_mutex, method_mapped_semaphore, method_mapped_futex;
/* aio.c, uring.c */
extern const struct method method_aio, method_uring;

#endif
