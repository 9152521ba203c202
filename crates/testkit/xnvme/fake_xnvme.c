// The part of libxnvme's interface that Penstock uses, over pread and pwrite, for tests on machines without
// the library. A command is carried out when the queue is poked, the last one first.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MINOR
#define MINOR 7
#endif
#ifndef SHIFT
#define SHIFT 0 // bytes by which the options differ from those that are known
#endif

#ifndef LIMIT
#define LIMIT 8 // commands that a queue takes at once
#endif

#ifndef ADMIN
#define ADMIN "file_as_ns" // what identifies a file; 0.7.5 of 2024 knows it by no name
#endif

#ifndef QUEUE
#define QUEUE 0 // what comes of making a queue
#endif

#ifndef OPEN
#define OPEN 0 // the error number of opening, once the parts are known
#endif

#ifndef FAIL
#define FAIL 0 // the error number of every command
#endif

#ifndef TYPE
#define TYPE 7 // the type of the status that tells an error number
#endif

#ifndef STALE
#define STALE 0 // the error number of a command that moved less than it should
#endif

struct xnvme_opts {
	const char *names[6];
	uint32_t nsid;
	uint8_t drift[SHIFT];
	uint8_t rdonly, wronly, rdwr, create, truncate, direct;
	uint32_t create_mode;
	uint64_t rest[9];
};

struct xnvme_dev {
	struct {
		uint32_t counts[4];
		uint64_t sectors[2];
		uint64_t tbytes, ssw;
		uint32_t mdts_nbytes, lba_nbytes;
		uint8_t rest[8];
	} geo;
	int fd;
};

struct xnvme_queue;

struct xnvme_cmd_ctx {
	uint8_t cmd[64];
	uint32_t result, reserved;
	uint16_t words[3], status;
	struct xnvme_dev *dev;
	struct xnvme_queue *queue;
	void (*cb)(struct xnvme_cmd_ctx *, void *);
	void *cb_arg;
	uint32_t opts;
	uint8_t rest[12];
};

struct order {
	struct xnvme_cmd_ctx ctx;
	void *data;
	uint64_t offset;
	size_t length;
	int is_write, is_given;
};

struct xnvme_queue {
	struct xnvme_dev *dev;
	uint16_t capacity, outstanding;
	uint8_t is_used[4096];
	struct order orders[4096];
};

int xnvme_ver_major(void) { return 0; }
int xnvme_ver_minor(void) { return MINOR; }
int xnvme_ver_patch(void) { return 5; }

struct xnvme_opts xnvme_opts_default(void) {
	struct xnvme_opts opts = {.nsid = 1, .rdwr = 1, .create_mode = S_IRUSR | S_IWUSR};
	return opts;
}

struct xnvme_dev *xnvme_dev_open(const char *uri, struct xnvme_opts *opts) {
	// By their order: be, dev, mem, sync, async, admin.
	static const char *const known[6] = {"linux", "linux", "malloc", "psync", "posix", ADMIN};
	for (int i = 0; i < 6; i++) {
		if (opts->names[i] ? strcmp(opts->names[i], known[i]) : i == 4) {
			errno = i == 5 ? -16 : EINVAL; // as 0.7.5 does: the number of the part
			return NULL;
		}
	}
	if (OPEN) {
		errno = OPEN;
		return NULL;
	}
	int flags = opts->rdonly ? O_RDONLY : O_RDWR;
	int fd = open(uri, flags | (opts->direct ? O_DIRECT : 0));
	if (fd < 0) {
		return NULL;
	}
	struct xnvme_dev *dev = calloc(1, sizeof(*dev));
	dev->fd = fd;
	dev->geo.tbytes = lseek(fd, 0, SEEK_END);
	dev->geo.ssw = 9;
	dev->geo.mdts_nbytes = 1 << 20;
	dev->geo.lba_nbytes = 512;
	return dev;
}

void xnvme_dev_close(struct xnvme_dev *dev) {
	close(dev->fd);
	free(dev);
}

const void *xnvme_dev_get_geo(const struct xnvme_dev *dev) { return &dev->geo; }
uint32_t xnvme_dev_get_nsid(const struct xnvme_dev *dev) { return dev ? 1 : 0; }

int xnvme_queue_init(struct xnvme_dev *dev, uint16_t capacity, int opts, struct xnvme_queue **queue) {
	if (opts || capacity > 4096 || (capacity & (capacity - 1))) {
		return -EINVAL;
	}
	if (QUEUE) {
		return QUEUE;
	}
	*queue = calloc(1, sizeof(**queue));
	(*queue)->dev = dev;
	(*queue)->capacity = capacity;
	return 0;
}

int xnvme_queue_term(struct xnvme_queue *queue) {
	if (queue->outstanding) {
		abort();
	}
	free(queue);
	return 0;
}

struct xnvme_cmd_ctx *xnvme_queue_get_cmd_ctx(struct xnvme_queue *queue) {
	for (int i = 0; i < queue->capacity; i++) {
		if (!queue->is_used[i]) {
			queue->is_used[i] = 1;
			memset(&queue->orders[i], 0, sizeof(queue->orders[i]));
			queue->orders[i].ctx.queue = queue;
			// As a command left it that failed: the library clears nothing when it gives out a context.
			queue->orders[i].ctx.status = 7 << 9 | 5 << 1;
			return &queue->orders[i].ctx;
		}
	}
	errno = ENOMEM;
	return NULL;
}

int xnvme_queue_put_cmd_ctx(struct xnvme_queue *queue, struct xnvme_cmd_ctx *ctx) {
	struct order *order = (struct order *)ctx;
	if (order->is_given) {
		abort();
	}
	queue->is_used[order - queue->orders] = 0;
	return 0;
}

static int give(struct xnvme_cmd_ctx *ctx, uint64_t slba, uint16_t nlb, void *data, int is_write) {
	struct xnvme_queue *queue = ctx->queue;
	struct order *order = (struct order *)ctx;
	if (queue->outstanding == LIMIT) {
		return -EBUSY;
	}
	order->data = data;
	order->offset = slba << 9;
	order->length = ((size_t)nlb + 1) << 9;
	order->is_write = is_write;
	order->is_given = 1;
	queue->outstanding++;
	return 0;
}

int xnvme_nvm_read(struct xnvme_cmd_ctx *ctx, uint32_t nsid, uint64_t slba, uint16_t nlb, void *data, void *meta) {
	return nsid != 1 || meta ? -EINVAL : give(ctx, slba, nlb, data, 0);
}

int xnvme_nvm_write(struct xnvme_cmd_ctx *ctx, uint32_t nsid, uint64_t slba, uint16_t nlb, const void *data,
		    const void *meta) {
	return nsid != 1 || meta ? -EINVAL : give(ctx, slba, nlb, (void *)data, 1);
}

int xnvme_queue_poke(struct xnvme_queue *queue, uint32_t max) {
	int completed = 0;
	for (int i = queue->capacity - 1; i >= 0; i--) {
		struct order *order = &queue->orders[i];
		if (!order->is_given || (max && completed == (int)max)) {
			continue;
		}
		int fd = queue->dev->fd;
		ssize_t moved = order->is_write ? pwrite(fd, order->data, order->length, order->offset)
						: pread(fd, order->data, order->length, order->offset);
		int error = moved < 0 ? errno : (size_t)moved < order->length ? STALE : 0;
		error = FAIL ? FAIL : error;
		order->ctx.result = error ? 0 : moved;
		if (error) {
			order->ctx.status = (TYPE << 9) | ((error & 0xff) << 1);
		}
		order->is_given = 0;
		queue->outstanding--;
		completed++;
		order->ctx.cb(&order->ctx, order->ctx.cb_arg);
	}
	return completed;
}
