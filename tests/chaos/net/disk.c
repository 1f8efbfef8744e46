/* Makes every sync of one process wait: by the whole milliseconds in the file that SLOW_SYNC_FILE names, 8 bytes,
   little-endian. Loaded before libc. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *delay_ms;

__attribute__((constructor)) static void open_delay(void) {
    const char *path = getenv("SLOW_SYNC_FILE");
    int file = path ? open(path, O_RDONLY) : -1;
    if (file < 0) return;
    void *mapped = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED) delay_ms = mapped;
    close(file);
}

static void wait_for_disk(void) {
    if (!delay_ms || *delay_ms <= 0) return;
    struct timespec length = {*delay_ms / 1000, (*delay_ms % 1000) * 1000000};
    nanosleep(&length, 0);
}

int fdatasync(int file) {
    wait_for_disk();
    return syscall(SYS_fdatasync, file);
}

int fsync(int file) {
    wait_for_disk();
    return syscall(SYS_fsync, file);
}
