#include "test_points.h"

#include <stddef.h>

#ifdef PCLOG_TEST_POINTS
void (*pclog_on_test_point)(enum pclog_point);

#define PCLOG_NAME(name) #name,
const char *const pclog_point_names[pclog_points] = {PCLOG_EACH_TEST_POINT(PCLOG_NAME)};
#else
typedef int pclog_without_points; /* ISO C forbids an empty source file */
#endif
