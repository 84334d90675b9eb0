/* Records what a process does to the files below one folder, and injects errors: a library for
 * LD_PRELOAD, used in tests alone.
 *
 * Each change is one event of a log, in the order in which the changes were made: a lock is held
 * while a change is made and noted. A sync is two events, so that what is written meanwhile is
 * known not to be covered by it. src/event.rs has the format.
 *
 * RECORDER_ROOT         the folder, as a canonical path
 * RECORDER_EVENTS       where the event log is written
 * RECORDER_NOTES        a file that is not there: each write to it becomes a note of the log
 * RECORDER_SYNC_MICROS  how long each sync of a file takes at least
 * RECORDER_FAIL_AT      which call fails, counted from 1; RECORDER_FAIL_COUNT calls from there on
 * RECORDER_FAIL_WITH    the errno
 * RECORDER_FAIL_ONLY    counts only syncs ("sync"), or only calls that need room ("room")
 *
 * What is intercepted and cannot be modelled aborts the process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, CLOSE, WRITE, TRUNCATE, SYNC_BEGIN, SYNC_END, RENAME, LINK, UNLINK, MKDIR,
            RMDIR, NOTE, FAULT, DUP };
enum { CREATED = 1, TRUNCATED = 2 };
enum fd_kind { OTHER = 0, RECORDED, NOTES };

struct head {
    uint32_t kind;
    int32_t fd;
    uint64_t offset, len;
    int32_t error;
    uint32_t a_len, b_len, data_len;
};

#define FDS 65536
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned char fds[FDS];
static const char *root, *notes;
static size_t root_len;
static int events = -1, fail_with;
static const char *fail_only = "";
static long sync_micros, calls, fail_at, fail_count;
static uint64_t syncs;

/* The system's calls, past the function of this name below. */
static long (*find_raw(void))(long, ...) {
    static long (*found)(long, ...);
    if (!found) found = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    return found;
}
#define raw (find_raw())

static void die(const char *what) {
    char text[256];
    int len = snprintf(text, sizeof text, "recorder: cannot model %s (errno %d)\n", what, errno);
    raw(SYS_write, 2, text, len);
    abort();
}

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static void begin(void) {
    const char *path = getenv("RECORDER_EVENTS");
    root = getenv("RECORDER_ROOT");
    notes = getenv("RECORDER_NOTES");
    if (!path || !root || !notes) {
        root = NULL;
        return;
    }
    root_len = strlen(root);
    events = (int)raw(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (events < 0) die("without its event log");
    sync_micros = number("RECORDER_SYNC_MICROS", 0);
    fail_at = number("RECORDER_FAIL_AT", 0);
    fail_count = number("RECORDER_FAIL_COUNT", 1);
    fail_with = (int)number("RECORDER_FAIL_WITH", EIO);
    if (getenv("RECORDER_FAIL_ONLY")) fail_only = getenv("RECORDER_FAIL_ONLY");
}

static void enter(void) {
    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
}

static void leave(void) {
    int saved = errno;
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static void put(const void *bytes, size_t len) {
    const char *at = bytes;
    while (len) {
        long put = raw(SYS_write, events, at, len);
        if (put <= 0) die("an event log that cannot be written");
        at += put;
        len -= (size_t)put;
    }
}

/* Long runs of zeros are noted by their length alone. */
static int is_zeros(const char *data, size_t len) {
    return len >= 4096 && !data[0] && !memcmp(data, data + 1, len - 1);
}

static void note(enum kind kind, int fd, uint64_t offset, uint64_t len, int error, const char *a,
                 const char *b, const void *data) {
    int saved = errno;
    size_t data_len = data && !is_zeros(data, len) ? len : 0;
    struct head head = { kind, fd, offset, len, error, a ? (uint32_t)strlen(a) : 0,
                         b ? (uint32_t)strlen(b) : 0, (uint32_t)data_len };
    put(&head, sizeof head);
    put(a, head.a_len);
    put(b, head.b_len);
    put(data, data_len);
    errno = saved;
}

/* Counts a call of interest. Returns whether it is to fail, with errno set. */
static int fails(const char *name, int is_sync) {
    if (!fail_at || (!strcmp(fail_only, "sync") && !is_sync)) return 0;
    if (!strcmp(fail_only, "room") && (is_sync || !strcmp(name, "unlink"))) return 0;
    calls++;
    if (calls < fail_at || calls >= fail_at + fail_count) return 0;
    note(FAULT, -1, (uint64_t)calls, 0, fail_with, name, NULL, NULL);
    errno = fail_with;
    return 1;
}

static enum fd_kind kind_of(int fd) {
    return fd >= 0 && fd < FDS ? fds[fd] : OTHER;
}

/* The absolute path, if it is below the folder. */
static const char *below_root(int dir, const char *path, char *full) {
    if (!root) return NULL;
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char base[PATH_MAX] = "", proc[64];
        snprintf(proc, sizeof proc, "/proc/self/fd/%d", dir);
        long len = dir == AT_FDCWD ? raw(SYS_getcwd, base, sizeof base - 1) - 1
                                   : readlink(proc, base, sizeof base - 1);
        if (len < 0) return NULL;
        base[len] = 0;
        if (snprintf(full, PATH_MAX, "%s/%s", base, path) >= PATH_MAX) die("a path this long");
    }
    if (strncmp(full, root, root_len) || (full[root_len] != '/' && full[root_len])) return NULL;
    if (strstr(full, "/../") || strstr(full, "/./") || strstr(full, "//")) die(full);
    size_t end = strlen(full);
    if (end > root_len && full[end - 1] == '/') full[end - 1] = 0;
    return full;
}

static int exists(const char *path) {
    struct stat found;
    return !lstat(path, &found);
}

static int open_recorded(int dir, const char *path, int flags, mode_t mode) {
    char full[PATH_MAX];
    enter();
    if (notes && !strcmp(path, notes)) {
        int fd = (int)raw(SYS_openat, AT_FDCWD, "/dev/null", O_WRONLY | O_CLOEXEC);
        if (fd >= 0) fds[fd] = NOTES;
        leave();
        return fd;
    }
    const char *found = below_root(dir, path, full);
    if (!found) {
        leave();
        return (int)raw(SYS_openat, dir, path, flags, mode);
    }
    if ((flags & O_TMPFILE) == O_TMPFILE || flags & (O_DSYNC | O_SYNC) & ~O_LARGEFILE)
        die("O_TMPFILE, O_DSYNC or O_SYNC");
    int fd = -1;
    if (!fails("open", 0)) {
        int was_there = exists(found);
        fd = (int)raw(SYS_openat, dir, path, flags, mode);
        if (fd >= FDS) die("so many descriptors");
        if (fd >= 0) {
            int created = flags & O_CREAT && !was_there ? CREATED : 0;
            int truncated = flags & O_TRUNC && was_there ? TRUNCATED : 0;
            fds[fd] = RECORDED;
            note(OPEN, fd, (uint64_t)(created | truncated), 0, 0, found, NULL, NULL);
        }
    }
    leave();
    return fd;
}

#define MODE_ARGUMENT \
    mode_t mode = 0; \
    if (flags & (O_CREAT | O_TMPFILE)) { \
        va_list list; \
        va_start(list, flags); \
        mode = va_arg(list, mode_t); \
        va_end(list); \
    }

int open(const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_recorded(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_recorded(AT_FDCWD, path, flags, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_recorded(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE_ARGUMENT
    return open_recorded(dir, path, flags, mode);
}
int creat(const char *path, mode_t mode) {
    return open_recorded(AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd) {
    enter();
    if (kind_of(fd) == RECORDED) note(CLOSE, fd, 0, 0, 0, NULL, NULL, NULL);
    if (fd >= 0 && fd < FDS) fds[fd] = OTHER;
    int result = (int)raw(SYS_close, fd);
    leave();
    return result;
}

static ssize_t write_raw(int fd, const void *data, size_t len, off_t at) {
    return at < 0 ? raw(SYS_write, fd, data, len) : raw(SYS_pwrite64, fd, data, len, at);
}

/* Writes, at the descriptor's own position if `at` is negative. */
static ssize_t write_recorded(int fd, const void *data, size_t len, off_t at) {
    enter();
    enum fd_kind kind = kind_of(fd);
    ssize_t result = -1;
    if (kind == NOTES) {
        note(NOTE, -1, 0, len, 0, NULL, NULL, data);
        result = (ssize_t)len;
    } else if (kind == OTHER) {
        leave();
        return write_raw(fd, data, len, at);
    } else if (!fails("write", 0)) {
        int is_append = fcntl(fd, F_GETFL) & O_APPEND;
        if (is_append && at >= 0) die("pwrite to a file that is appended to");
        off_t start = at >= 0 ? at : lseek(fd, 0, is_append ? SEEK_END : SEEK_CUR);
        if (start < 0) die("a write without a position");
        result = write_raw(fd, data, len, at);
        if (result > 0) note(WRITE, fd, (uint64_t)start, (uint64_t)result, 0, NULL, NULL, data);
    }
    leave();
    return result;
}

static ssize_t gather_recorded(int fd, const struct iovec *parts, int count, off_t at) {
    size_t len = 0;
    for (int i = 0; i < count; i++) len += parts[i].iov_len;
    char *whole = malloc(len ? len : 1), *end = whole;
    if (!whole) die("a write this large");
    for (int i = 0; i < count; i++) end = mempcpy(end, parts[i].iov_base, parts[i].iov_len);
    ssize_t result = write_recorded(fd, whole, len, at);
    free(whole);
    return result;
}

ssize_t write(int fd, const void *data, size_t len) { return write_recorded(fd, data, len, -1); }
ssize_t pwrite(int fd, const void *data, size_t len, off_t at) {
    return write_recorded(fd, data, len, at);
}
ssize_t pwrite64(int fd, const void *data, size_t len, off64_t at) {
    return write_recorded(fd, data, len, at);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return gather_recorded(fd, parts, count, -1);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) {
    return gather_recorded(fd, parts, count, at);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) {
    return gather_recorded(fd, parts, count, at);
}

#include "recorder_rest.c"
