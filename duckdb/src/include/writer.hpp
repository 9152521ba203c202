// One object being written: whose statement it belongs to, and what may already be visible of it.
#pragma once

#include "query.hpp"

namespace penstock {

class WriterState {
public:
	//! Opens the object; nothing is visible before Finish.
	WriterState(shared_ptr<Query> query, string path, Pairs options, bool only_if_absent);

	//! Takes the next bytes. After a failure it takes them and drops them: the failure is the statement's.
	void Write(const void *data, idx_t size);
	idx_t Position();
	//! Publishes the object: durable on return, or after the barrier if detached. Returns what failed, if anything.
	ErrorData Finish(bool detached);
	//! Gives the object up unless it was finished.
	void Abort();
	//! Nothing more is written; the handle by which to take back what was made, null if there is nothing.
	const ps_writer *Retract();
	bool IsOpen();

	const shared_ptr<Query> query;
	const string path;
	const Pairs options;

private:
	enum class Phase : uint8_t { OPEN, FINISHED, ABORTED };

	ErrorData Send(const void *data, idx_t size);
	ErrorData Refusal(const char *what, const char *why);

	mutex lock;
	//! Kept when finished: the engine knows by it what became of the upload.
	WriterHandle handle;
	Phase phase = Phase::OPEN;
	bool failed = false;
	idx_t position = 0;
};

} // namespace penstock
