// A disk that fails, loaded before the C library (LD_PRELOAD): it counts the reads, writes and
// flushes of one file, and lets some of them fail. Everything else passes by. Of a failing write the
// first half is written, or nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic dev_t device;
static _Atomic ino_t inode;
static atomic_long calls, first_failing, end_failing;
static atomic_int failure;

// Watches the file of this name, and lets its calls from `first` to before `end` fail with an errno.
int failing_disk_arm(const char *path, long first, long end, int number) {
	struct stat status;
	if (stat(path, &status) != 0) {
		return errno;
	}
	device = status.st_dev;
	inode = status.st_ino;
	calls = 0;
	first_failing = first;
	end_failing = end;
	failure = number;
	return 0;
}

// Calls since it was armed.
long failing_disk_calls(void) {
	return calls;
}

static int fails(int file) {
	struct stat status;
	if (failure == 0 || fstat(file, &status) != 0 || status.st_ino != inode || status.st_dev != device) {
		return 0;
	}
	long call = atomic_fetch_add(&calls, 1);
	return call >= first_failing && call < end_failing;
}

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t pread64(int file, void *into, size_t count, off64_t offset) {
	if (fails(file)) {
		errno = failure;
		return -1;
	}
	return NEXT(pread64)(file, into, count, offset);
}

ssize_t pwrite64(int file, const void *from, size_t count, off64_t offset) {
	if (fails(file)) {
		NEXT(pwrite64)(file, from, calls % 2 ? count / 2 : 0, offset);
		errno = failure;
		return -1;
	}
	return NEXT(pwrite64)(file, from, count, offset);
}

int fdatasync(int file) {
	if (fails(file)) {
		errno = failure;
		return -1;
	}
	return NEXT(fdatasync)(file);
}
