/* What makes a file a framed log: its head, and the frames after it. */
#ifndef PCLOG_FRAMES_H
#define PCLOG_FRAMES_H

#include "handle.h"

/* Writes the head of a framed log where there is none yet, and sets log_id, which follows from the file itself: makers at the same time write
 * the same bytes. A file that has a head is framed whatever was asked for; one that has other bytes cannot become it. */
int pclog_head_ensure(int file, struct pclog_terms *terms);

/* PCLOG_FOREIGN where the file does not begin with a head. */
int pclog_head_read(int file, uint64_t *log_id);

uint32_t pclog_frames_seed(uint64_t log_id);

/* Where the frames of a file end at the earliest, with `end` no less than `at_least`, and the highest epoch and writer in them. */
int pclog_frames_survey(int file, uint64_t log_id, uint64_t at_least, struct pclog_found *found);

/* Closes all holes that earlier epochs left. */
int pclog_recover_old(pclog *log);

#endif
