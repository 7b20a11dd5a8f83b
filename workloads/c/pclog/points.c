#include "points.h"

#include <stddef.h>

#ifdef PCLOG_POINTS
void (*pclog_at_point)(enum pclog_point);

#define PCLOG_NAME(name) #name,
const char *const pclog_point_names[pclog_points] = {PCLOG_EACH_POINT(PCLOG_NAME)};
#else
typedef int pclog_without_points; /* a source must hold something */
#endif
