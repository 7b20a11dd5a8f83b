#include "crc32c.h"
#include "handle.h"

#include <string.h>

#define DEFAULT_WINDOW_BYTES ((uint64_t)64 << 20)
#define MAX_BYTES ((uint64_t)1 << 40) /* of a window or a growth step */

static bool whole_pages(uint64_t bytes) {
    return bytes <= MAX_BYTES && bytes % pclog_page_bytes() == 0;
}

bool pclog_options_valid(const struct pclog_options *requested) {
    bool power = (requested->window_bytes & (requested->window_bytes - 1)) == 0;
    return requested->mode <= PCLOG_FRAMED && requested->growth <= PCLOG_FTRUNCATE && power &&
           whole_pages(requested->window_bytes) && whole_pages(requested->growth_bytes) &&
           requested->growth_percent <= 1000 && requested->prefault_bytes <= MAX_BYTES &&
           (requested->permissions & ~(mode_t)07777) == 0;
}

struct pclog_parameters pclog_parameters_new(const struct pclog_options *requested) {
    struct pclog_parameters parameters;
    memset(&parameters, 0, sizeof parameters); /* the CRC includes padding */
    parameters.mode = requested->mode;
    parameters.growth = requested->growth;
    parameters.window_bytes = requested->window_bytes > 0 ? requested->window_bytes : DEFAULT_WINDOW_BYTES;
    parameters.growth_bytes = requested->growth_bytes > 0 ? requested->growth_bytes : parameters.window_bytes;
    parameters.growth_percent = requested->growth_percent;
    parameters.pid_namespace = pclog_pid_namespace();
    pclog_boot_id(parameters.boot_id);
    return parameters;
}

static bool same_or_any(uint64_t requested, uint64_t actual) {
    return requested == 0 || requested == actual;
}

bool pclog_parameters_agree(const struct pclog_parameters *parameters, const struct pclog_options *requested) {
    bool nothing_requested = requested->mode == 0 && requested->growth == 0 && requested->window_bytes == 0 &&
                             requested->growth_bytes == 0 && requested->growth_percent == 0;
    return nothing_requested || (parameters->mode == requested->mode && parameters->growth == requested->growth &&
                                 same_or_any(requested->window_bytes, parameters->window_bytes) &&
                                 same_or_any(requested->growth_bytes, parameters->growth_bytes) &&
                                 same_or_any(requested->growth_percent, parameters->growth_percent));
}

static uint32_t crc_of(const struct pclog_parameters *parameters) {
    return pclog_crc32c(0, parameters, offsetof(struct pclog_parameters, crc));
}

void pclog_parameters_seal(struct pclog_parameters *parameters) {
    parameters->crc = crc_of(parameters);
}

/* Retries if the CRC is wrong: metadata may have been rebuilt twice during the read. */
bool pclog_parameters_read(const struct pclog_meta *meta, struct pclog_parameters *parameters) {
    for (int tries = 0; tries < 3; tries++) {
        memcpy(parameters, &meta->parameters[atomic_load(&meta->valid_copy) & 1], sizeof *parameters);
        if (parameters->crc == crc_of(parameters)) {
            return true;
        }
    }
    return false;
}
