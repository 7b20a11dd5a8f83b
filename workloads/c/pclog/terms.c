#include "crc32c.h"
#include "handle.h"

#include <string.h>

#define DEFAULT_WINDOW_BYTES ((uint64_t)64 << 20)
#define MOST_BYTES ((uint64_t)1 << 40) /* of a window or a step */

static bool whole_pages(uint64_t bytes) {
    return bytes <= MOST_BYTES && bytes % pclog_page_bytes() == 0;
}

bool pclog_options_valid(const struct pclog_options *asked) {
    bool power = (asked->window_bytes & (asked->window_bytes - 1)) == 0;
    return asked->mode <= PCLOG_FRAMED && asked->growth <= PCLOG_FTRUNCATE && power &&
           whole_pages(asked->window_bytes) && whole_pages(asked->growth_bytes) && asked->growth_percent <= 1000 &&
           asked->prefault_bytes <= MOST_BYTES && (asked->permissions & ~(mode_t)07777) == 0;
}

struct pclog_terms pclog_terms_new(const struct pclog_options *asked) {
    struct pclog_terms terms;
    memset(&terms, 0, sizeof terms); /* its CRC is over padding too */
    terms.mode = asked->mode;
    terms.growth = asked->growth;
    terms.window_bytes = asked->window_bytes > 0 ? asked->window_bytes : DEFAULT_WINDOW_BYTES;
    terms.growth_bytes = asked->growth_bytes > 0 ? asked->growth_bytes : terms.window_bytes;
    terms.growth_percent = asked->growth_percent;
    terms.pid_namespace = pclog_pid_namespace();
    pclog_boot_id(terms.boot_id);
    return terms;
}

static bool same_or_any(uint64_t asked, uint64_t holds) {
    return asked == 0 || asked == holds;
}

bool pclog_terms_agree(const struct pclog_terms *terms, const struct pclog_options *asked) {
    bool nothing_asked = asked->mode == 0 && asked->growth == 0 && asked->window_bytes == 0 &&
                         asked->growth_bytes == 0 && asked->growth_percent == 0;
    return nothing_asked || (terms->mode == asked->mode && terms->growth == asked->growth &&
                             same_or_any(asked->window_bytes, terms->window_bytes) &&
                             same_or_any(asked->growth_bytes, terms->growth_bytes) &&
                             same_or_any(asked->growth_percent, terms->growth_percent));
}

static uint32_t crc_of(const struct pclog_terms *terms) {
    return pclog_crc32c(0, terms, offsetof(struct pclog_terms, crc));
}

void pclog_terms_seal(struct pclog_terms *terms) {
    terms->crc = crc_of(terms);
}

/* Read again where they do not fit: they may just have been made anew, twice. */
bool pclog_terms_read(const struct pclog_meta *meta, struct pclog_terms *terms) {
    for (int tries = 0; tries < 3; tries++) {
        memcpy(terms, &meta->terms[atomic_load(&meta->which) & 1], sizeof *terms);
        if (terms->crc == crc_of(terms)) {
            return true;
        }
    }
    return false;
}
