/* Touches a working set in a loop: a part of a mapped file, or anonymous memory.
 *
 * touch FILE|- MIB LOOPS. The rest of the file is read once before, which fills the page cache.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PIECE = 1 << 14, MIB = 1 << 20 };

static char *mapped(const char *path, size_t bytes)
{
    char piece[PIECE];
    int file = open(path, O_RDONLY);
    if (file < 0 || lseek(file, (off_t)bytes, SEEK_SET) < 0)
        exit(2);
    while (read(file, piece, sizeof piece) > 0)
        continue;
    return mmap(NULL, bytes, PROT_READ, MAP_SHARED, file, 0);
}

static char *anonymous(size_t bytes)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void touch(volatile char *memory, size_t bytes, int loops, int writes)
{
    for (int loop = 0; loop < loops; loop++) {
        for (size_t at = 0; at < bytes; at += PAGE) {
            if (writes)
                memory[at] = (char)loop;
            else
                (void)memory[at];
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    size_t bytes = (size_t)atol(argv[2]) * MIB;
    int is_file = strcmp(argv[1], "-") != 0;
    char *memory = is_file ? mapped(argv[1], bytes) : anonymous(bytes);
    if (memory == MAP_FAILED)
        return 2;
    touch(memory, bytes, atoi(argv[3]), !is_file);
    return 0;
}
