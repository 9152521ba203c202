// Decides what a failed or forgotten write may leave behind: nothing.
#include "writer.hpp"

namespace penstock {

WriterState::WriterState(shared_ptr<Query> query_p, string path_p, Pairs options_p, bool only_if_absent)
    : query(std::move(query_p)), path(std::move(path_p)), options(std::move(options_p)) {
	ps_error *error = nullptr;
	ps_writer *opened = nullptr;
	Check(ps_open_write(query->handle, Borrow(path), options.Data(), options.Count(), only_if_absent, &opened, &error),
	      error);
	handle.reset(opened);
}

void WriterState::Write(const void *data, idx_t size) {
	lock_guard<mutex> guard(lock);
	if (phase != Phase::OPEN) {
		throw IOException("Cannot write to \"%s\": it was closed or given up already", path);
	}
	ps_error *error = nullptr;
	if (!ps_write(handle.get(), data, size, &error)) {
		failed = true;
		Raise(error);
	}
	position += size;
}

idx_t WriterState::Position() {
	lock_guard<mutex> guard(lock);
	return position;
}

void WriterState::Finish() {
	lock_guard<mutex> guard(lock);
	if (phase != Phase::OPEN) {
		return;
	}
	auto finish = query->IsArmed() ? ps_writer_finish_detached : ps_writer_finish;
	ps_error *error = nullptr;
	if (failed) {
		phase = Phase::ABORTED;
		handle.reset();
		throw IOException("Cannot close \"%s\": an earlier write to it failed, so it was given up", path);
	}
	bool finished = finish(handle.get(), &error);
	// Interrupted, the store may still carry the last request out.
	bool may_be_visible = finished || ErrorKind(ps_error_kind(error)) == ErrorKind::CANCELLED;
	phase = may_be_visible ? Phase::PUBLISHED : Phase::ABORTED;
	handle.reset(); // of an interrupted request, the engine now takes back what it still makes
	Check(finished, error);
}

void WriterState::Abort() {
	lock_guard<mutex> guard(lock);
	if (phase == Phase::OPEN) {
		phase = Phase::ABORTED;
		handle.reset();
	}
}

bool WriterState::Retract() {
	lock_guard<mutex> guard(lock);
	bool may_be_visible = phase == Phase::PUBLISHED;
	phase = Phase::ABORTED;
	handle.reset();
	return may_be_visible;
}

bool WriterState::IsOpen() {
	lock_guard<mutex> guard(lock);
	return phase == Phase::OPEN;
}

bool WriterState::HasFailed() {
	lock_guard<mutex> guard(lock);
	return failed;
}

} // namespace penstock
