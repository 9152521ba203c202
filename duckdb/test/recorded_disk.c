// A disk that keeps a record, loaded before the C library (LD_PRELOAD): what is written to one file,
// trimmed and flushed goes to another one, in the order in which it was done, so that a power cut can
// be made at any of its points, by the calls and through rings (io_uring). Everything else passes by.
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
#include <linux/io_uring.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

// Under the lock.
static void keep_here(uint64_t kind, uint64_t first, uint64_t second, const void *bytes, size_t count) {
	uint64_t head[3] = {kind, first, second};
	put(head, sizeof head);
	put(bytes, count);
	events++;
}

static void keep(uint64_t kind, uint64_t first, uint64_t second, const void *bytes, size_t count) {
	pthread_mutex_lock(&one_at_a_time);
	keep_here(kind, first, second, bytes, count);
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

// A write or flush that a ring has; `number` is what its owner calls it.
struct pending {
	uint64_t number, kind, first;
	char *bytes;
	struct pending *next;
};

// What a ring's owner shares with the kernel.
struct ring {
	struct io_uring_params params;
	char *queue, *ended;
	struct io_uring_sqe *entries;
	int file; // the registered one
	uint32_t noted, seen; // entries, and what ended
	struct pending *pending;
};

#define RINGS 1024
static struct ring *rings[RINGS];

static void *shared(int ring, size_t size, off_t offset) {
	void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, offset);
	if (found == MAP_FAILED) {
		abort();
	}
	return found;
}

static size_t ended_bytes(const struct io_uring_params *params) {
	return params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
}

static size_t queue_bytes(const struct io_uring_params *params) {
	return params->sq_off.array + params->sq_entries * sizeof(uint32_t);
}

static void keep_ring(int number, const struct io_uring_params *params) {
	if (number >= RINGS) {
		abort();
	}
	pthread_mutex_lock(&one_at_a_time);
	// Who had the number before has closed it, and waited for all that it had.
	struct ring *new = rings[number] ? rings[number] : calloc(1, sizeof *new);
	if (new->pending) {
		abort();
	}
	if (new->queue) {
		munmap(new->queue, queue_bytes(&new->params));
		munmap(new->ended, ended_bytes(&new->params));
		munmap(new->entries, new->params.sq_entries * sizeof *new->entries);
	}
	new->params = *params;
	new->queue = shared(number, queue_bytes(params), IORING_OFF_SQ_RING);
	new->ended = shared(number, ended_bytes(params), IORING_OFF_CQ_RING);
	new->entries = shared(number, params->sq_entries * sizeof *new->entries, IORING_OFF_SQES);
	new->file = -1;
	new->noted = new->seen = 0;
	rings[number] = new;
	pthread_mutex_unlock(&one_at_a_time);
}

// Notes those writes and flushes that are about to be given to the kernel, a write with its bytes.
static void note_begun(struct ring *ring, unsigned count) {
	uint32_t head = *(_Atomic uint32_t *)(ring->queue + ring->params.sq_off.head);
	uint32_t mask = *(uint32_t *)(ring->queue + ring->params.sq_off.ring_mask);
	const uint32_t *order = (const uint32_t *)(ring->queue + ring->params.sq_off.array);
	// What the kernel did not take is given again.
	for (; ring->noted != head + count; ring->noted++) {
		const struct io_uring_sqe *entry = &ring->entries[order[ring->noted & mask]];
		int is_write = entry->opcode == IORING_OP_WRITE || entry->opcode == IORING_OP_WRITE_FIXED;
		if (!is_write && entry->opcode != IORING_OP_FSYNC) {
			continue;
		}
		struct pending *new = calloc(1, sizeof *new);
		*new = (struct pending){entry->user_data, is_write ? 'W' : 'F', is_write ? entry->off : events, NULL, ring->pending};
		if (is_write) {
			new->bytes = malloc(entry->len);
			memcpy(new->bytes, (const void *)(uintptr_t)entry->addr, entry->len);
		}
		ring->pending = new;
	}
}

// Keeps what a ring has ended since it was last looked at.
static void keep_ended(struct ring *ring) {
	uint32_t tail = atomic_load((_Atomic uint32_t *)(ring->ended + ring->params.cq_off.tail));
	uint32_t mask = *(uint32_t *)(ring->ended + ring->params.cq_off.ring_mask);
	const struct io_uring_cqe *all = (const struct io_uring_cqe *)(ring->ended + ring->params.cq_off.cqes);
	for (; ring->seen != tail; ring->seen++) {
		const struct io_uring_cqe *ended = &all[ring->seen & mask];
		struct pending **at = &ring->pending;
		while (*at && (*at)->number != ended->user_data) {
			at = &(*at)->next;
		}
		struct pending *found = *at;
		if (!found) {
			continue; // a read
		}
		*at = found->next;
		if (found->kind == 'W' && ended->res > 0) {
			keep_here('W', found->first, (uint64_t)ended->res, found->bytes, (size_t)ended->res);
		} else if (found->kind == 'F' && ended->res == 0) {
			keep_here('F', found->first, 0, NULL, 0);
		}
		free(found->bytes);
		free(found);
	}
}

// Who flushes knows of all that ended before, by whichever ring.
static void keep_all_ended(void) {
	for (int i = 0; i < RINGS; i++) {
		if (rings[i] && is_watched(rings[i]->file)) {
			keep_ended(rings[i]);
		}
	}
}

long syscall(long number, ...) {
	va_list list;
	long w[6];
	va_start(list, number);
	for (int i = 0; i < 6; i++) {
		w[i] = va_arg(list, long);
	}
	va_end(list);
	struct ring *ring = w[0] >= 0 && w[0] < RINGS ? rings[w[0]] : NULL;
	int is_ours = number == SYS_io_uring_enter && ring && is_watched(ring->file);
	if (is_ours) {
		pthread_mutex_lock(&one_at_a_time);
		keep_all_ended();
		note_begun(ring, (unsigned)w[1]);
		pthread_mutex_unlock(&one_at_a_time);
	}
	long done = NEXT(syscall)(number, w[0], w[1], w[2], w[3], w[4], w[5]);
	if (is_ours) {
		int error = errno;
		pthread_mutex_lock(&one_at_a_time);
		keep_ended(ring);
		pthread_mutex_unlock(&one_at_a_time);
		errno = error;
	}
	if (number == SYS_io_uring_setup && done >= 0) {
		keep_ring((int)done, (const struct io_uring_params *)w[1]);
	}
	if (number == SYS_io_uring_register && ring && done >= 0 && w[1] == IORING_REGISTER_FILES) {
		ring->file = *(const int *)w[2];
	}
	return done;
}

static int flush(int file, int (*next)(int)) {
	if (!is_watched(file)) {
		return next(file);
	}
	pthread_mutex_lock(&one_at_a_time);
	keep_all_ended();
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
