/* pcappend-tests DIR: tests of the parts of pcappend that verify its file, on known faults. */
#include "check.h"

#include "contract/failure.h"

const char program_name[] = "pcappend-tests";

int main(int count, char **words) {
    CHECK(count == 2);
    test_record();
    test_ledger();
    test_histogram();
    test_verifier(words[1]);
    puts("all good");
    return DONE;
}
