/* Checks that report where they failed, and the list of tests. */
#ifndef PCAPPEND_TESTS_CHECK_H
#define PCAPPEND_TESTS_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(holds)                                                                                                   \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s: not true: %s\n", __FILE__, __LINE__, __func__, #holds);                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_SAME(one, other)                                                                                         \
    do {                                                                                                               \
        uint64_t left = (one), right = (other);                                                                        \
        if (left != right) {                                                                                           \
            fprintf(stderr, "%s:%d: %s: %s is %llu, not %llu\n", __FILE__, __LINE__, __func__, #one,                   \
                    (unsigned long long)left, (unsigned long long)right);                                              \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

void test_verifier(const char *dir);
void test_ledger(void);
void test_histogram(void);
void test_record(void);

#endif
