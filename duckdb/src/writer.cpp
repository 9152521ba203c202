// Decides what a failed write may leave behind: nothing. When a file that ends is published is in endings.cpp.
#include "writer.hpp"

#include <exception>

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
	ErrorData failure;
	{
		lock_guard<mutex> guard(lock);
		position += size;
		if (failed || phase == Phase::ABORTED) {
			return;
		}
		failure = phase == Phase::OPEN ? Send(data, size) : Refusal("Cannot write to", "it was closed already");
		failed = failure.HasError();
	}
	if (failure.HasError()) {
		query->Fail(failure, std::uncaught_exceptions() == 0);
	}
}

ErrorData WriterState::Send(const void *data, idx_t size) {
	ps_error *error = nullptr;
	return ps_write(handle.get(), data, size, &error) ? ErrorData() : Caught(error);
}

ErrorData WriterState::Refusal(const char *what, const char *why) {
	return ErrorData(IOException("%s \"%s\": %s", what, WithoutSecrets(path), why));
}

idx_t WriterState::Position() {
	lock_guard<mutex> guard(lock);
	return position;
}

ErrorData WriterState::Finish(bool detached) {
	lock_guard<mutex> guard(lock);
	if (phase != Phase::OPEN) {
		return ErrorData();
	}
	if (failed) {
		phase = Phase::ABORTED;
		handle.reset();
		return Refusal("Cannot close", "an earlier write to it failed, so it was given up");
	}
	auto finish = detached ? ps_writer_finish_detached : ps_writer_finish;
	ps_error *error = nullptr;
	bool finished = finish(handle.get(), &error);
	// Whether something became visible is the engine's to know, also after a failure.
	phase = Phase::FINISHED;
	return finished ? ErrorData() : Caught(error);
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

} // namespace penstock
