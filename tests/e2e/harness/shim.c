// Loaded into a gateway by LD_PRELOAD, in tests only: its wall clock and its disk do what a test says,
// in a file that both have mapped.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct orders {
    volatile int64_t clock_shift;
    volatile int64_t is_hanging;
    volatile int64_t is_read_only;
    volatile int64_t fails_syncs_of_log;
};

static struct orders *orders(void) {
    static struct orders *mapped;
    if (!mapped) {
        const char *path = getenv("SELFSAME_SHIM");
        int file = path ? open(path, O_RDWR) : -1;
        if (file < 0) abort();
        void *at = mmap(0, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (at == MAP_FAILED) abort();
        close(file);
        mapped = at;
    }
    return mapped;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, time);
    if (!failed && clock == CLOCK_REALTIME) time->tv_sec += orders()->clock_shift;
    return failed;
}

static void wait_for_disk(int file) {
    struct stat status;
    while (orders()->is_hanging && !fstat(file, &status) && S_ISREG(status.st_mode)) usleep(5000);
}

static int sync_fails(int file) {
    char link[64], path[4096];
    if (!orders()->fails_syncs_of_log) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    return strstr(path, "/records-") != 0;
}

static int failed_sync(void) {
    errno = EIO;
    return -1;
}

int fdatasync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk(file);
    return sync_fails(file) ? failed_sync() : real(file);
}

int fsync(int file) {
    static int (*real)(int);
    if (!real) real = dlsym(RTLD_NEXT, "fsync");
    wait_for_disk(file);
    return sync_fails(file) ? failed_sync() : real(file);
}

ssize_t pwrite64(int file, const void *bytes, size_t len, off64_t at) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pwrite64");
    wait_for_disk(file);
    if (orders()->is_read_only) {
        errno = EROFS;
        return -1;
    }
    return real(file, bytes, len, at);
}

ssize_t pread64(int file, void *bytes, size_t len, off64_t at) {
    static ssize_t (*real)(int, void *, size_t, off64_t);
    if (!real) real = dlsym(RTLD_NEXT, "pread64");
    wait_for_disk(file);
    return real(file, bytes, len, at);
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, mode_t);
    if (!real) real = dlsym(RTLD_NEXT, "open64");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (flags & O_CREAT && orders()->is_read_only) {
        errno = EROFS;
        return -1;
    }
    return real(path, flags, mode);
}
