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
}

idx_t WriterState::Position() {
	lock_guard<mutex> guard(lock);
	return handle ? ps_writer_position(handle.get()) : 0;
}

void WriterState::Finish() {
	lock_guard<mutex> guard(lock);
	if (phase != Phase::OPEN) {
		return;
	}
	auto finish = query->IsArmed() ? ps_writer_finish_detached : ps_writer_finish;
	ps_error *error = nullptr;
	bool finished = !failed && finish(handle.get(), &error);
	phase = finished ? Phase::PUBLISHED : Phase::ABORTED;
	if (failed) {
		handle.reset();
		throw IOException("Cannot close \"%s\": an earlier write to it failed, so it was given up", path);
	}
	Check(finished, error);
}

void WriterState::Abort() {
	lock_guard<mutex> guard(lock);
	if (phase == Phase::OPEN) {
		phase = Phase::ABORTED;
		handle.reset();
	}
}

void WriterState::Retract(const shared_ptr<Engine> &engine) {
	Abort();
	{
		lock_guard<mutex> guard(lock);
		if (phase != Phase::PUBLISHED) {
			return;
		}
		phase = Phase::ABORTED;
		handle.reset();
	}
	// The statement may have failed because it was interrupted; cleaning up after it must not be.
	auto cleanup = Query::ForCleanup(engine);
	auto url = Borrow(path);
	ps_error *error = nullptr;
	Check(ps_remove(cleanup->handle, &url, 1, options.Data(), options.Count(), &error), error);
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
