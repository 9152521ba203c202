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
	// Whether something became visible is the engine's to know, also after a failure.
	phase = Phase::FINISHED;
	Check(finished, error);
}

void WriterState::Abort() {
	lock_guard<mutex> guard(lock);
	if (phase == Phase::OPEN) {
		phase = Phase::ABORTED;
		handle.reset();
	}
}

const ps_writer *WriterState::Retract() {
	lock_guard<mutex> guard(lock);
	phase = Phase::ABORTED;
	return handle.get();
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
