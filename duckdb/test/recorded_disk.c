// A disk that keeps a record, loaded before the C library (LD_PRELOAD): what is written to one file,
// trimmed and flushed goes to another one, in the order in which it was done, so that a power cut can
// be made at any of its points. Everything else passes by.
//
// An event is three numbers of 64 bits, and after them a write's bytes:
//   'W' offset length   a write, once it is done
//   'T' offset length   a trim (a hole that is made in the file), once it is done
//   'F' until 0         a flush, once it is done; the first `until` events are durable
//   'M' which count     a mark of the program
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static dev_t device;
static ino_t inode;
static uint64_t events;

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void put(const void *bytes, size_t count) {
	if (write(record, bytes, count) != (ssize_t)count) {
		abort();
	}
}

static void keep(uint64_t kind, uint64_t first, uint64_t second, const void *bytes, size_t count) {
	uint64_t head[3] = {kind, first, second};
	pthread_mutex_lock(&one_at_a_time);
	put(head, sizeof head);
	put(bytes, count);
	events++;
	pthread_mutex_unlock(&one_at_a_time);
}

// Watches the file of this name, and keeps its record in another; the file before it no longer.
int recorded_disk_begin(const char *path, const char *into) {
	struct stat status;
	if (stat(path, &status) != 0) {
		return errno;
	}
	device = status.st_dev;
	inode = status.st_ino;
	if (record >= 0) {
		close(record);
	}
	record = open(into, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return record < 0 ? errno : 0;
}

// For a program that does not ask for it: what it works on, and where its record goes.
__attribute__((constructor)) static void begin_as_told(void) {
	const char *path = getenv("RECORDED_DISK_FILE");
	const char *into = getenv("RECORDED_DISK_RECORD");
	if (path && into && recorded_disk_begin(path, into) != 0) {
		abort();
	}
}

void recorded_disk_mark(uint64_t which, uint64_t count) {
	keep('M', which, count, NULL, 0);
}

static int is_watched(int file) {
	struct stat status;
	return record >= 0 && fstat(file, &status) == 0 && status.st_ino == inode && status.st_dev == device;
}

static void keep_write(int file, const void *from, ssize_t done, off64_t offset) {
	if (done > 0 && is_watched(file)) {
		keep('W', (uint64_t)offset, (uint64_t)done, from, (size_t)done);
	}
}

ssize_t pwrite64(int file, const void *from, size_t count, off64_t offset) {
	ssize_t done = NEXT(pwrite64)(file, from, count, offset);
	keep_write(file, from, done, offset);
	return done;
}

ssize_t pwrite(int file, const void *from, size_t count, off_t offset) {
	ssize_t done = NEXT(pwrite)(file, from, count, offset);
	keep_write(file, from, done, offset);
	return done;
}

static int keep_trim(int file, int done, int mode, off64_t offset, off64_t length) {
	if (done == 0 && (mode & FALLOC_FL_PUNCH_HOLE) && is_watched(file)) {
		keep('T', (uint64_t)offset, (uint64_t)length, NULL, 0);
	}
	return done;
}

int fallocate64(int file, int mode, off64_t offset, off64_t length) {
	return keep_trim(file, NEXT(fallocate64)(file, mode, offset, length), mode, offset, length);
}

int fallocate(int file, int mode, off_t offset, off_t length) {
	return keep_trim(file, NEXT(fallocate)(file, mode, offset, length), mode, offset, length);
}

static int flush(int file, int (*next)(int)) {
	if (!is_watched(file)) {
		return next(file);
	}
	pthread_mutex_lock(&one_at_a_time);
	uint64_t until = events;
	pthread_mutex_unlock(&one_at_a_time);
	int done = next(file);
	if (done == 0) {
		keep('F', until, 0, NULL, 0);
	}
	return done;
}

int fdatasync(int file) {
	return flush(file, NEXT(fdatasync));
}

int fsync(int file) {
	return flush(file, NEXT(fsync));
}
