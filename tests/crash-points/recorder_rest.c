/* The rest of recorder.c, which includes it: sizes, syncs, names, and what cannot be modelled. */

static int truncate_recorded(int fd, off_t len) {
    enter();
    int is_ours = kind_of(fd) == RECORDED;
    int result = is_ours && fails("ftruncate", 0) ? -1 : (int)raw(SYS_ftruncate, fd, len);
    if (is_ours && !result) note(TRUNCATE, fd, 0, (uint64_t)len, 0, NULL, NULL, NULL);
    leave();
    return result;
}
int ftruncate(int fd, off_t len) { return truncate_recorded(fd, len); }
int ftruncate64(int fd, off64_t len) { return truncate_recorded(fd, len); }

/* Room that is reserved changes the size at most; other modes are not modelled. */
static int allocate_recorded(int fd, int mode, off_t at, off_t len) {
    enter();
    int is_ours = kind_of(fd) == RECORDED;
    if (is_ours && mode & ~FALLOC_FL_KEEP_SIZE) die("this mode of fallocate");
    struct stat before = { 0 };
    if (is_ours && fstat(fd, &before)) die("a file without a size");
    int result = is_ours && fails("fallocate", 0) ? -1 : (int)raw(SYS_fallocate, fd, mode, at, len);
    if (is_ours && !result && !mode && at + len > before.st_size)
        note(TRUNCATE, fd, 0, (uint64_t)(at + len), 0, NULL, NULL, NULL);
    leave();
    return result;
}
int fallocate(int fd, int mode, off_t at, off_t len) { return allocate_recorded(fd, mode, at, len); }
int fallocate64(int fd, int mode, off64_t at, off64_t len) {
    return allocate_recorded(fd, mode, at, len);
}
int posix_fallocate(int fd, off_t at, off_t len) {
    return allocate_recorded(fd, 0, at, len) ? errno : 0;
}
int posix_fallocate64(int fd, off64_t at, off64_t len) { return posix_fallocate(fd, at, len); }

/* What was copied into a recorded file is read back from it. */
static void note_copied(int fd, off_t at, ssize_t len) {
    char *copy = malloc(len > 0 ? (size_t)len : 1);
    if (!copy || (len > 0 && pread(fd, copy, (size_t)len, at) != len)) die("a copy");
    if (len > 0) note(WRITE, fd, (uint64_t)at, (uint64_t)len, 0, NULL, NULL, copy);
    free(copy);
}
static ssize_t copy_recorded(int from, off64_t *from_at, int to, off64_t *to_at, size_t len,
                             unsigned flags, int is_sendfile) {
    enter();
    int is_ours = kind_of(to) == RECORDED;
    ssize_t result = -1;
    if (!is_ours || !fails("copy", 0)) {
        off_t at = !is_ours ? 0 : to_at ? *to_at : lseek(to, 0, SEEK_CUR);
        result = is_sendfile ? raw(SYS_sendfile, to, from, from_at, len)
                             : raw(SYS_copy_file_range, from, from_at, to, to_at, len, flags);
        if (is_ours) note_copied(to, at, result);
    }
    leave();
    return result;
}
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t len,
                        unsigned flags) {
    return copy_recorded(from, from_at, to, to_at, len, flags, 0);
}
ssize_t sendfile(int to, int from, off_t *at, size_t len) {
    return copy_recorded(from, at, to, NULL, len, 0, 1);
}
ssize_t sendfile64(int to, int from, off64_t *at, size_t len) {
    return copy_recorded(from, at, to, NULL, len, 0, 1);
}

static int sync_recorded(int fd, long call, const char *name) {
    enter();
    if (kind_of(fd) != RECORDED) {
        leave();
        return (int)raw(call, fd);
    }
    uint64_t number = ++syncs;
    int result = fails(name, 1) ? -1 : 0;
    struct stat found;
    int is_file = !fstat(fd, &found) && S_ISREG(found.st_mode);
    note(SYNC_BEGIN, fd, number, 0, 0, NULL, NULL, NULL);
    if (!result) {
        leave();
        if (is_file && sync_micros) usleep((useconds_t)sync_micros);
        result = (int)raw(call, fd);
        enter();
    }
    note(SYNC_END, fd, number, 0, result ? errno : 0, NULL, NULL, NULL);
    leave();
    return result;
}
int fsync(int fd) { return sync_recorded(fd, SYS_fsync, "fsync"); }
int fdatasync(int fd) { return sync_recorded(fd, SYS_fdatasync, "fdatasync"); }
/* It promises nothing about a power cut, so it is as if it were not called. */
int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags) {
    return (int)raw(SYS_sync_file_range, fd, at, len, flags);
}

/* A call that changes names: one of two names is below the folder, or none. */
static int name_recorded(enum kind kind, const char *name, long call, int a_dir, const char *a,
                         int b_dir, const char *b, long flags) {
    char a_full[PATH_MAX], b_full[PATH_MAX];
    enter();
    const char *ours = below_root(a_dir, a, a_full);
    const char *other = b ? below_root(b_dir, b, b_full) : NULL;
    if (b && !ours != !other) die("a name that moves into or out of the folder");
    int result = -1;
    if (!ours || !fails(name, 0)) {
        result = (int)(b ? raw(call, a_dir, a, b_dir, b, flags) : raw(call, a_dir, a, flags));
        if (ours && !result) note(kind, -1, 0, 0, 0, ours, other, NULL);
    }
    leave();
    return result;
}
int renameat2(int a_dir, const char *a, int b_dir, const char *b, unsigned flags) {
    if (flags & ~(unsigned)RENAME_NOREPLACE) die("this kind of rename");
    return name_recorded(RENAME, "rename", SYS_renameat2, a_dir, a, b_dir, b, flags);
}
int renameat(int a_dir, const char *a, int b_dir, const char *b) {
    return renameat2(a_dir, a, b_dir, b, 0);
}
int rename(const char *a, const char *b) { return renameat2(AT_FDCWD, a, AT_FDCWD, b, 0); }
int linkat(int a_dir, const char *a, int b_dir, const char *b, int flags) {
    return name_recorded(LINK, "link", SYS_linkat, a_dir, a, b_dir, b, flags);
}
int link(const char *a, const char *b) { return linkat(AT_FDCWD, a, AT_FDCWD, b, 0); }
int unlinkat(int dir, const char *path, int flags) {
    enum kind kind = flags & AT_REMOVEDIR ? RMDIR : UNLINK;
    return name_recorded(kind, "unlink", SYS_unlinkat, dir, path, 0, NULL, flags);
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int dir, const char *path, mode_t mode) {
    return name_recorded(MKDIR, "mkdir", SYS_mkdirat, dir, path, 0, NULL, (long)mode);
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

/* Descriptors that stand for the same open file. */
static int duplicated(int fd, int copy) {
    if (copy >= FDS) die("so many descriptors");
    if (copy >= 0 && copy != fd) {
        if (kind_of(copy) == RECORDED) note(CLOSE, copy, 0, 0, 0, NULL, NULL, NULL);
        fds[copy] = (unsigned char)kind_of(fd);
        if (kind_of(fd) == RECORDED) note(DUP, fd, 0, (uint64_t)copy, 0, NULL, NULL, NULL);
    }
    leave();
    return copy;
}
int dup(int fd) {
    enter();
    return duplicated(fd, (int)raw(SYS_dup, fd));
}
int dup3(int fd, int copy, int flags) {
    enter();
    return duplicated(fd, (int)raw(SYS_dup3, fd, copy, flags));
}
int dup2(int fd, int copy) { return fd == copy ? fd : dup3(fd, copy, 0); }
static int control(int fd, int command, long argument) {
    if (command != F_DUPFD && command != F_DUPFD_CLOEXEC)
        return (int)raw(SYS_fcntl, fd, command, argument);
    enter();
    return duplicated(fd, (int)raw(SYS_fcntl, fd, command, argument));
}
#define LONG_ARGUMENT(last) \
    va_list list; \
    va_start(list, last); \
    long argument = va_arg(list, long); \
    va_end(list);
int fcntl(int fd, int command, ...) {
    LONG_ARGUMENT(command)
    return control(fd, command, argument);
}
int fcntl64(int fd, int command, ...) {
    LONG_ARGUMENT(command)
    return control(fd, command, argument);
}

/* What cannot be modelled. */
static void refuse_fd(int fd, const char *what) {
    enter();
    if (kind_of(fd) == RECORDED) die(what);
    leave();
}
static void refuse_path(const char *path, const char *what) {
    char full[PATH_MAX];
    enter();
    if (path && below_root(AT_FDCWD, path, full)) die(what);
    leave();
}
static void *map_recorded(void *at, size_t len, int access, int flags, int fd, off_t offset) {
    int is_shared = (flags & MAP_TYPE) == MAP_SHARED || (flags & MAP_TYPE) == MAP_SHARED_VALIDATE;
    if (fd >= 0 && is_shared && access & PROT_WRITE) refuse_fd(fd, "a shared mapping to write");
    return (void *)raw(SYS_mmap, at, len, access, flags, fd, offset);
}
void *mmap(void *at, size_t len, int access, int flags, int fd, off_t offset) {
    return map_recorded(at, len, access, flags, fd, offset);
}
void *mmap64(void *at, size_t len, int access, int flags, int fd, off64_t offset) {
    return map_recorded(at, len, access, flags, fd, offset);
}
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t at, int flags) {
    refuse_fd(fd, "pwritev2");
    return raw(SYS_pwritev2, fd, parts, count, at, (long)(at >> 32), flags);
}
ssize_t splice(int from, off64_t *from_at, int to, off64_t *to_at, size_t len, unsigned flags) {
    refuse_fd(to, "splice");
    return raw(SYS_splice, from, from_at, to, to_at, len, flags);
}
int syncfs(int fd) {
    refuse_fd(fd, "syncfs");
    return (int)raw(SYS_syncfs, fd);
}
int truncate(const char *path, off_t len) {
    refuse_path(path, "truncate by name");
    return (int)raw(SYS_truncate, path, len);
}
int truncate64(const char *path, off64_t len) { return truncate(path, len); }
int symlink(const char *to, const char *path) {
    refuse_path(path, "symlink");
    return (int)raw(SYS_symlinkat, to, AT_FDCWD, path);
}
int remove(const char *path) {
    refuse_path(path, "remove");
    int (*real)(const char *) = (int (*)(const char *))dlsym(RTLD_NEXT, "remove");
    return real(path);
}
FILE *fopen(const char *path, const char *mode) {
    if (strpbrk(mode, "wa+")) refuse_path(path, "fopen");
    void *real = dlsym(RTLD_NEXT, "fopen");
    return ((FILE * (*)(const char *, const char *)) real)(path, mode);
}
FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

/* Calls of the system that go around the functions above. */
long syscall(long call, ...) {
    va_list list;
    va_start(list, call);
    long a = va_arg(list, long), b = va_arg(list, long), c = va_arg(list, long);
    long d = va_arg(list, long), e = va_arg(list, long), f = va_arg(list, long);
    va_end(list);
    switch (call) {
    case SYS_io_uring_setup: case SYS_io_submit: case SYS_openat2: case SYS_close_range:
        enter();
        if (root) die("io_uring, aio, openat2 or close_range");
        leave();
        break;
    case SYS_write: case SYS_pwrite64: case SYS_writev: case SYS_pwritev: case SYS_pwritev2:
    case SYS_fsync: case SYS_fdatasync: case SYS_ftruncate: case SYS_fallocate:
        refuse_fd((int)a, "a system call");
        break;
    case SYS_copy_file_range:
        refuse_fd((int)c, "a system call");
        break;
    case SYS_openat: case SYS_unlinkat: case SYS_renameat2: case SYS_mkdirat:
        refuse_path((const char *)b, "a system call");
        break;
    default:
        break;
    }
    return raw(call, a, b, c, d, e, f);
}
