/* Prints one message of the library in C: the key and the text on the command line, and numbers. */
#include "pagecage_workload.h"

#include <stdlib.h>

int main(int count, char **words) {
    if (count != 5) {
        pagecage_fail(PAGECAGE_BAD_ARGUMENTS, "usage: KEY TEXT NUMBER COUNT");
    }
    struct pagecage_message message = pagecage_begin("sample");
    pagecage_text(&message, words[1], words[2]);
    pagecage_open_array(&message, "several");
    pagecage_number(&message, NULL, strtod(words[3], NULL));
    pagecage_open_object(&message, NULL);
    pagecage_count(&message, "count", strtoull(words[4], NULL, 10));
    pagecage_integer(&message, "less", -1);
    pagecage_close_object(&message);
    pagecage_bool(&message, NULL, true);
    pagecage_close_array(&message);
    pagecage_null(&message, "none");
    pagecage_send(&message);
    return PAGECAGE_DONE;
}
