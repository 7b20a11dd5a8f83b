/* Named points at which a test may interrupt a writer. The library that programs link has none. */
#ifndef PCLOG_TEST_POINTS_H
#define PCLOG_TEST_POINTS_H

/* In the order in which they are reached. */
#define PCLOG_EACH_TEST_POINT(X)                                                                                       \
    X(create_empty)                                                                                                    \
    X(create_sized)                                                                                                    \
    X(after_announce)                                                                                                  \
    X(after_reserve)                                                                                                   \
    X(after_publish)                                                                                                   \
    X(before_grow)                                                                                                     \
    X(after_grow)                                                                                                      \
    X(before_map)                                                                                                      \
    X(mid_copy)                                                                                                        \
    X(before_commit)                                                                                                   \
    X(after_commit)                                                                                                    \
    X(trim_announced)                                                                                                  \
    X(trim_truncating)                                                                                                 \
    X(in_recover)

#ifdef PCLOG_TEST_POINTS
#define PCLOG_ENUM(name) pclog_point_##name,
enum pclog_point { PCLOG_EACH_TEST_POINT(PCLOG_ENUM) pclog_points };
#undef PCLOG_ENUM

/* Called at every point, by the thread that reaches it, unless NULL. */
extern void (*pclog_on_test_point)(enum pclog_point);
extern const char *const pclog_point_names[pclog_points];

#define PCLOG_TEST_POINT(name)                                                                                         \
    do {                                                                                                               \
        if (pclog_on_test_point != NULL) {                                                                             \
            pclog_on_test_point(pclog_point_##name);                                                                   \
        }                                                                                                              \
    } while (0)
#else
#define PCLOG_TEST_POINT(name) ((void)0)
#endif

#endif
