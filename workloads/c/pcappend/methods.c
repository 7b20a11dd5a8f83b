#include "method_tables.h"
#include "method.h"

#include <string.h>

const struct method *const methods[] = {
    &method_pclog,
    &method_write,
    &method_writev,
    &method_fwrite,
    &method_batch,
    &method_handoff,
    &method_reserve_pwrite,
    &method_direct,
    &method_direct_misaligned,
    &method_aio,
    &method_uring,
    &method_mapped_atomic,
    &method_mapped_mutex,
    &method_mapped_semaphore,
    &method_mapped_futex,
    &method_seed_mmlog,
    NULL,
};

const struct method *method_named(const char *name) {
    for (const struct method *const *each = methods; *each != NULL; each++) {
        if (strcmp((*each)->name, name) == 0) {
            return *each;
        }
    }
    return NULL;
}
