// One object being written: whose statement it belongs to, and what may already be visible of it.
#pragma once

#include "query.hpp"

namespace penstock {

class WriterState {
public:
	//! Opens the object; nothing is visible before Finish.
	WriterState(shared_ptr<Query> query, string path, Pairs options, bool only_if_absent);

	void Write(const void *data, idx_t size);
	idx_t Position();
	//! Publishes the object: durable on return, or after the barrier of an armed statement.
	void Finish();
	//! Gives the object up. What was published already stays.
	void Abort();
	//! Gives the object up; true if it may be visible, so that the caller has to remove it.
	bool Retract();
	bool IsOpen();
	//! True once a write has failed: such an object must never be published.
	bool HasFailed();

	const shared_ptr<Query> query;
	const string path;
	const Pairs options;

private:
	enum class Phase : uint8_t { OPEN, PUBLISHED, ABORTED };

	mutex lock;
	WriterHandle handle;
	Phase phase = Phase::OPEN;
	bool failed = false;
	idx_t position = 0;
};

} // namespace penstock
