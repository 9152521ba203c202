// A disk that fails, loaded before the C library (LD_PRELOAD): it counts the reads, writes and
// flushes of one file, and lets some of them fail. Everything else passes by. Of a failing write the
// first half is written, or nothing. By io_uring nothing is: an entry that is to fail becomes one
// that does nothing and has that result (since Linux 6.10).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

// What a ring's owner shares with the kernel.
struct ring {
	struct io_uring_params params;
	char *queue;
	struct io_uring_sqe *entries;
	int file; // the registered one
};

#define RINGS 1024
#define NOP_INJECT_RESULT 1u // IORING_NOP_INJECT_RESULT
static struct ring *rings[RINGS];

static void *shared(int ring, size_t size, off_t offset) {
	void *found = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, ring, offset);
	if (found == MAP_FAILED) {
		abort();
	}
	return found;
}

static void keep(int ring, const struct io_uring_params *params) {
	if (ring >= RINGS) {
		abort();
	}
	// Who had the number before has closed it.
	struct ring *new = rings[ring] ? rings[ring] : calloc(1, sizeof *new);
	if (new->queue) {
		munmap(new->queue, new->params.sq_off.array + new->params.sq_entries * sizeof(uint32_t));
		munmap(new->entries, new->params.sq_entries * sizeof *new->entries);
	}
	new->params = *params;
	new->queue = shared(ring, params->sq_off.array + params->sq_entries * sizeof(uint32_t), IORING_OFF_SQ_RING);
	new->entries = shared(ring, params->sq_entries * sizeof *new->entries, IORING_OFF_SQES);
	new->file = -1;
	rings[ring] = new;
}

// Has those entries fail that are about to be given to the kernel and have their turn.
static void spoil(const struct ring *ring, unsigned count) {
	uint32_t head = *(_Atomic uint32_t *)(ring->queue + ring->params.sq_off.head);
	uint32_t mask = *(uint32_t *)(ring->queue + ring->params.sq_off.ring_mask);
	const uint32_t *order = (const uint32_t *)(ring->queue + ring->params.sq_off.array);
	for (unsigned i = 0; i < count; i++) {
		struct io_uring_sqe *entry = &ring->entries[order[(head + i) & mask]];
		if (fails(ring->file)) {
			uint64_t data = entry->user_data;
			memset(entry, 0, sizeof *entry);
			entry->opcode = IORING_OP_NOP;
			entry->rw_flags = NOP_INJECT_RESULT;
			entry->len = (uint32_t)-failure;
			entry->user_data = data;
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
	const struct ring *ring = w[0] >= 0 && w[0] < RINGS ? rings[w[0]] : NULL;
	if (number == SYS_io_uring_enter && ring && ring->file >= 0) {
		spoil(ring, (unsigned)w[1]);
	}
	long done = NEXT(syscall)(number, w[0], w[1], w[2], w[3], w[4], w[5]);
	if (number == SYS_io_uring_setup && done >= 0) {
		keep((int)done, (const struct io_uring_params *)w[1]);
	}
	if (number == SYS_io_uring_register && ring && done >= 0 && w[1] == IORING_REGISTER_FILES) {
		rings[w[0]]->file = *(const int *)w[2];
	}
	return done;
}
