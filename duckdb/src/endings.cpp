// Decides what the end of a written file means: published now, at the end of its statement, or never.
//
// A writer may close its file late: in a destructor, on another thread, behind the barrier, or never. A close may run
// in a destructor, so it must not throw. A statement that failed runs destructors too, and they must not publish half
// a file.
#include "query.hpp"
#include "writer.hpp"

#include "duckdb/execution/executor.hpp"

namespace penstock {

namespace {

//! Failures that are told by name.
constexpr idx_t LATE_NAMED_MAX = 3;
//! A store that is asked to slow down for a moment takes a file within that; one that is down does not in a minute.
constexpr std::chrono::seconds LATE_PATIENCE(15);

enum class Ending : uint8_t {
	//! Nothing becomes visible.
	GIVE_UP,
	//! Publish, and wait.
	WAIT,
	//! Publish, and leave the waiting to the barrier.
	DETACH,
	//! Publish once the statement has succeeded.
	PUT_OFF
};

struct Circumstances {
	bool is_running;
	bool has_failed;
	bool is_closed;
	bool is_unwinding;
	bool is_interrupted;
	//! The calling thread runs a task of the statement, which ends before the statement does.
	bool in_task;
	//! Armed, and the barrier is still to come.
	bool barrier_follows;
};

Ending Decide(const Circumstances &now) {
	if (now.has_failed || now.is_unwinding || now.is_interrupted) {
		return Ending::GIVE_UP;
	}
	if (!now.is_running) {
		return Ending::WAIT;
	}
	// Outside a task it may be a destructor of a statement that failed, and DuckDB tells only later.
	if (!now.is_closed || !now.in_task) {
		return Ending::PUT_OFF;
	}
	return now.barrier_follows ? Ending::DETACH : Ending::WAIT;
}

} // namespace

void KeptFailure::Keep(ErrorData failure) {
	lock_guard<mutex> guard(lock);
	if (!kept.HasError()) {
		kept = std::move(failure);
	}
}

ErrorData KeptFailure::Take() {
	lock_guard<mutex> guard(lock);
	auto taken = std::move(kept);
	kept = ErrorData();
	return taken;
}

ErrorData KeptFailure::Peek() {
	lock_guard<mutex> guard(lock);
	return kept;
}

void LateFailures::Keep(const ErrorData &failure) {
	if (!failure.HasError()) {
		return;
	}
	lock_guard<mutex> guard(lock);
	count++;
	if (first.size() < LATE_NAMED_MAX) {
		first.push_back(failure.RawMessage());
	}
}

void LateFailures::Keep(LateFailures &other) {
	lock_guard<mutex> theirs(other.lock);
	lock_guard<mutex> guard(lock);
	count += other.count;
	for (auto &failure : other.first) {
		if (first.size() < LATE_NAMED_MAX) {
			first.push_back(std::move(failure));
		}
	}
	other.count = 0;
	other.first.clear();
}

string LateFailures::Take() {
	lock_guard<mutex> guard(lock);
	if (count == 0) {
		return string();
	}
	auto told = count == 1 ? string("A file that an earlier statement wrote is lost, since it was closed after that "
	                                "statement had ended: ")
	                       : to_string(count) + " files that earlier statements wrote are lost, since they were closed "
	                                            "after those statements had ended: ";
	told += StringUtil::Join(first, "; also ");
	if (count > first.size()) {
		told += "; and " + to_string(count - first.size()) + " others, which penstock_requests() lists";
	}
	told += count == 1 ? ". Write that file again" : ". Write those files again";
	count = 0;
	first.clear();
	return told;
}

uint64_t LatePatience::LeftMs() {
	auto now = std::chrono::steady_clock::now();
	lock_guard<mutex> guard(lock);
	if (!has_begun) {
		has_begun = true;
		until = now + LATE_PATIENCE;
	}
	auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - now).count();
	return left > 0 ? NumericCast<uint64_t>(left) : 0;
}

void LatePatience::Renew() {
	lock_guard<mutex> guard(lock);
	has_begun = false;
}

void Query::RunsBehindBarrier(bool is_armed, bool unique) {
	new_names_are_unique = is_armed && unique;
	barrier_passed = false;
	has_barrier = true;
	armed = is_armed;
}

void Query::Ends(const shared_ptr<WriterState> &writer, bool is_closed, bool is_unwinding) {
	if (!writer->IsOpen()) {
		return;
	}
	auto client = context.lock();
	ErrorData failed;
	bool waits = false;
	{
		// So that no file passes the gate while the barrier closes it, and none is put off behind the end.
		lock_guard<mutex> guard(lock);
		Circumstances now {phase == Phase::RUNNING,
		                   phase == Phase::FAILED,
		                   is_closed,
		                   is_unwinding,
		                   IsInterrupted(),
		                   client && ClientIo::RunsTaskOf(*client),
		                   armed && !barrier_passed};
		switch (Decide(now)) {
		case Ending::GIVE_UP:
			writer->Abort();
			if (now.is_interrupted) {
				failed = ErrorData(InterruptException());
			}
			break;
		case Ending::DETACH:
			failed = writer->Finish(true);
			break;
		case Ending::PUT_OFF:
			put_off.push_back(writer);
			break;
		case Ending::WAIT:
			waits = true;
			break;
		}
	}
	if (waits) {
		if (phase != Phase::OUTSIDE && !(client && RunsStatement(*client))) {
			// What makes progress goes on, however long it takes; only what failed is not sent again for ever.
			ps_query_repeats_for(handle, engine->patience.LeftMs());
		}
		failed = writer->Finish(false);
	}
	if (failed.HasError()) {
		Fail(failed, false);
	}
}

void Query::Fail(const ErrorData &error, bool may_throw) {
	auto client = context.lock();
	if (phase == Phase::OUTSIDE && may_throw) {
		error.Throw();
	}
	if (phase == Phase::RUNNING) {
		failure.Keep(error);
		if (client && ClientIo::RunsTaskOf(*client)) {
			try {
				client->GetExecutor().PushError(error);
			} catch (std::exception &) { // NOLINT: a task of the binder, before there is an executor
			}
		}
		return;
	}
	auto connection = client ? ClientIo::Find(*client) : nullptr;
	if (connection) {
		connection->FailsLater(error);
	} else {
		engine->late.Keep(error);
	}
}

ErrorData Query::Await(bool also_detached) {
	vector<shared_ptr<WriterState>> begins;
	{
		lock_guard<mutex> guard(lock);
		begins = std::move(put_off);
		put_off.clear();
	}
	for (auto &writer : begins) {
		auto failed = writer->Finish(true);
		if (failed.HasError()) {
			failure.Keep(std::move(failed));
		}
	}
	ps_error *error = nullptr;
	if ((also_detached || !begins.empty()) && !ps_query_barrier(handle, &error)) {
		failure.Keep(Caught(error));
	}
	return failure.Peek();
}

void Query::Settle() {
	auto failed = Await(armed && !barrier_passed);
	if (failed.HasError()) {
		failed.Throw();
	}
}

void Query::Barrier() {
	bool had_passed;
	{
		lock_guard<mutex> guard(lock);
		had_passed = barrier_passed.exchange(true);
	}
	auto failed = Await(armed && !had_passed);
	if (failed.HasError()) {
		failed.Throw();
	}
}

ErrorData Query::End(bool succeeded) {
	{
		lock_guard<mutex> guard(lock);
		phase = succeeded ? Phase::SUCCEEDED : Phase::FAILED;
	}
	return succeeded ? Await(false) : ErrorData();
}

void Query::TellBeside(ErrorData &error) {
	auto cause = failure.Peek();
	if (!cause.HasError()) {
		cause = refused.Peek();
	}
	if (!cause.HasError() || cause.Type() == ExceptionType::INTERRUPT || error.Type() == ExceptionType::INTERRUPT ||
	    error.Message().find(cause.RawMessage()) != string::npos) {
		return;
	}
	error = ErrorData(error.Type(), error.RawMessage() + "\nIts cause: " + cause.RawMessage());
}

void Query::Abandon() {
	Writers abandoned;
	vector<shared_ptr<WriterState>> unpublished;
	{
		lock_guard<mutex> guard(lock);
		unpublished = std::move(put_off);
		put_off.clear();
		if (has_barrier) {
			abandoned = writers;
		}
	}
	for (auto &writer : unpublished) {
		writer->Abort();
	}
	if (!abandoned.empty()) {
		BeginCleanup();
		Retract(abandoned);
	}
}

vector<weak_ptr<WriterState>> Query::Forget() {
	lock_guard<mutex> guard(lock);
	vector<weak_ptr<WriterState>> in_use;
	for (auto &entry : writers) {
		in_use.emplace_back(entry.second);
	}
	writers.clear();
	return in_use;
}

} // namespace penstock
