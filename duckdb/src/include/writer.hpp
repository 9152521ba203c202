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
	//! Gives the object up, and removes what may have been published of it. Throws if that fails.
	void Retract(const shared_ptr<Engine> &engine);
	bool IsOpen();
	//! True once a write has failed: such an object must never be published.
	bool HasFailed();

	const shared_ptr<Query> query;

private:
	enum class Phase : uint8_t { OPEN, PUBLISHED, ABORTED };

	const string path;
	const Pairs options;
	mutex lock;
	WriterHandle handle;
	Phase phase = Phase::OPEN;
	bool failed = false;
};

} // namespace penstock
