/* A handler for SIGBUS, which a store into a mapped file raises if the file has been truncated, or
 * if the page needs a block and the disk is full (mmap(2)). The handler maps an anonymous page in
 * its place, so that the copy completes, and records the page as lost; the copying code checks for
 * that afterwards. Any other SIGBUS goes to the previous handler. */
#define _GNU_SOURCE

#include "handle.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAX_AREAS 4096

/* The handler may read this while others change it: the faulting thread uses its area, so the one
 * entry that matters is stable. */
static struct entry {
    _Atomic uintptr_t base;
    _Atomic size_t bytes;
    _Atomic(struct pclog_area *) area;
} entries[MAX_AREAS];

static pthread_once_t installed = PTHREAD_ONCE_INIT;
static struct sigaction before;
static uint64_t page_bytes;

static struct pclog_area *area_at(uintptr_t address) {
    for (size_t at = 0; at < MAX_AREAS; at++) {
        uintptr_t base = atomic_load(&entries[at].base);
        if (base != 0 && address >= base && address - base < atomic_load(&entries[at].bytes)) {
            return atomic_load(&entries[at].area);
        }
    }
    return NULL;
}

static bool replace_page(uintptr_t address) {
    struct pclog_area *area = area_at(address);
    if (area == NULL) {
        return false;
    }
    unsigned char *page = area->base + (address - (uintptr_t)area->base) / page_bytes * page_bytes;
    size_t number = (size_t)(page - area->base) / page_bytes;
    if (mmap(page, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
        return false;
    }
    atomic_fetch_or(&area->lost_pages[number / 64], (uint64_t)1 << number % 64);
    atomic_store(&area->any_lost, true);
    return true;
}

static void on_bus_error(int signal, siginfo_t *info, void *context) {
    int error = errno;
    bool repaired = info->si_code > 0 && replace_page((uintptr_t)info->si_addr);
    errno = error;
    if (repaired) {
        return;
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(signal, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(signal);
    } else if (before.sa_handler == SIG_DFL || info->si_code > 0) { /* see signal(7) on faults */
        struct sigaction plain = {.sa_handler = SIG_DFL};
        sigaction(SIGBUS, &plain, NULL);
        raise(SIGBUS);
    }
}

static void install(void) {
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    page_bytes = pclog_page_bytes();
    sigaction(SIGBUS, &action, &before);
}

bool pclog_area_register(struct pclog_area *area) {
    pthread_once(&installed, install);
    size_t pages = area->bytes / page_bytes + 1;
    area->lost_pages = calloc(pages / 64 + 1, sizeof *area->lost_pages);
    for (int at = 0; area->lost_pages != NULL && at < MAX_AREAS; at++) {
        struct pclog_area *none = NULL;
        if (atomic_compare_exchange_strong(&entries[at].area, &none, area)) {
            area->index = at;
            atomic_store(&entries[at].bytes, area->bytes);
            atomic_store(&entries[at].base, (uintptr_t)area->base);
            return true;
        }
    }
    free(area->lost_pages);
    return false;
}

void pclog_area_unregister(struct pclog_area *area) {
    atomic_store(&entries[area->index].base, 0);
    atomic_store(&entries[area->index].area, NULL);
    free(area->lost_pages);
}

bool pclog_area_find_lost(const struct pclog_area *area, size_t from, size_t bytes) {
    for (size_t page = from / page_bytes; page <= (from + bytes - 1) / page_bytes; page++) {
        if (atomic_load(&area->lost_pages[page / 64]) >> page % 64 & 1) {
            return true;
        }
    }
    return false;
}
