/* pcappend-tests DIR: the parts of pcappend that judge, each against files and numbers whose faults are known. */
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
