// Tells a query when its statement begins, ends and commits, and the connection's next statement what came too late.
#include "pass.hpp"
#include "query.hpp"
#include "writer.hpp"

#include <algorithm>
#include <chrono>

namespace penstock {

namespace {

constexpr const char *STATE_KEY = "penstock";

//! A task that the calling thread runs.
struct Task {
	ClientIo *io = nullptr;
	const ClientContext *client = nullptr;
	std::chrono::steady_clock::time_point began;
	//! Of the thread, when the task began.
	uint64_t waited_us = 0;
};
//! The one that runs now is the last: a thread of DuckDB 2.0 that waits for reads runs other tasks meanwhile.
thread_local vector<Task> tasks;

} // namespace

shared_ptr<ClientIo> ClientIo::Get(ClientContext &context, const shared_ptr<Engine> &engine) {
	auto state = context.registered_state->GetOrCreate<ClientIo>(STATE_KEY, engine);
	lock_guard<mutex> guard(state->lock);
	if (state->context.expired()) {
		state->Attach(context);
	}
	return state;
}

shared_ptr<ClientIo> ClientIo::Find(ClientContext &context) {
	return context.registered_state->Get<ClientIo>(STATE_KEY);
}

shared_ptr<Query> ClientIo::Current() {
	lock_guard<mutex> guard(lock);
	if (!current) {
		auto client = context.lock();
		current = make_shared_ptr<Query>(engine, optional_ptr<ClientContext>(client.get()));
	}
	return current;
}

void ClientIo::Adopt(ClientContext &client, const string &name, const string &value) {
	auto settings = engine->settings.Changed(&client);
	settings.Add(name, value);
	ps_error *error = nullptr;
	Check(ps_engine_adopt(engine->handle, settings.Data(), settings.Count(), &error), error);
}

shared_ptr<Query> ClientIo::CurrentIfAny() {
	lock_guard<mutex> guard(lock);
	return current;
}

bool ClientIo::RunsTaskOf(const ClientContext &client) {
	return !tasks.empty() && tasks.back().client == &client;
}

void ClientIo::OnTaskStart(ClientContext &client) {
	tasks.push_back({this, &client, std::chrono::steady_clock::now(), ps_thread_waited_us()});
	auto query = CurrentIfAny();
	if (query) {
		query->TaskBegins(client);
	}
	// The last task of EXPLAIN ANALYZE writes the profile.
	ShowInProfile(client);
}

void ClientIo::OnTaskStop(ClientContext &client) {
	if (tasks.empty() || tasks.back().io != this) {
		// The connection met us in the middle of it.
		return;
	}
	auto ended = tasks.back();
	tasks.pop_back();
	auto query = CurrentIfAny();
	if (!query || !tasks.empty()) {
		// The time of a task inside of another one is in that one's.
		return;
	}
	auto took = std::chrono::steady_clock::now() - ended.began;
	auto took_us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
	auto waited_us = ps_thread_waited_us() - ended.waited_us;
	ps_query_worked(query->handle, NumericCast<uint64_t>(took_us) - MinValue<uint64_t>(waited_us, took_us));
	ShowInProfile(client);
}

shared_ptr<Query> ClientIo::OfTask() {
	return tasks.empty() ? nullptr : tasks.back().io->Current();
}

bool ClientIo::IsLeftOver(const string &path) {
	lock_guard<mutex> guard(lock);
	return std::any_of(left_over.begin(), left_over.end(), [&](const weak_ptr<WriterState> &left) {
		auto writer = left.lock();
		return writer && writer->path == path;
	});
}

void ClientIo::KeepLeftOver(const vector<weak_ptr<WriterState>> &in_use) {
	lock_guard<mutex> guard(lock);
	auto is_gone = [](const weak_ptr<WriterState> &left) { return left.expired(); };
	left_over.erase(std::remove_if(left_over.begin(), left_over.end(), is_gone), left_over.end());
	left_over.insert(left_over.end(), in_use.begin(), in_use.end());
}

void ClientIo::ThrowLate(const char *consequence) {
	late.Keep(engine->late);
	auto lost = late.Take();
	if (!lost.empty()) {
		throw IOException("%s. %s", lost, consequence);
	}
}

ClientIo::~ClientIo() {
	engine->late.Keep(late);
}

void ClientIo::PlanBegins() {
	lock_guard<mutex> guard(lock);
	passes.clear();
}

void ClientIo::PutAbove(MakePass make) {
	lock_guard<mutex> guard(lock);
	passes.push_back(std::move(make));
}

RebindQueryInfo ClientIo::OnFinalizePrepare(ClientContext &, PreparedStatementData &prepared, PreparedStatementMode) {
	vector<MakePass> wanted;
	{
		lock_guard<mutex> guard(lock);
		wanted.swap(passes);
	}
	PutAboveRoot(prepared, wanted);
	return RebindQueryInfo::DO_NOT_REBIND;
}

void ClientIo::QueryBegin(ClientContext &) {
	{
		// What was done outside a statement (binding a relation) does not count for this one.
		lock_guard<mutex> guard(lock);
		current.reset();
	}
	engine->patience.Renew();
	ThrowLate("This statement was not run: run it again, too");
}

void ClientIo::QueryEnd(ClientContext &client, optional_ptr<ErrorData> error) {
	depth.Restore(client);
	shared_ptr<Query> ended;
	{
		lock_guard<mutex> guard(lock);
		ended = std::move(current);
		current.reset();
	}
	if (!ended) {
		return;
	}
	// DuckDB calls this outside any try block: nothing may escape.
	try {
		bool has_error = error && error->HasError();
		bool succeeded = !has_error && !ended->WasLeft();
		auto untold = ended->End(succeeded);
		if (has_error) {
			ended->TellBeside(*error);
		}
		if (succeeded) {
			late.Keep(untold);
		} else {
			ended->Abandon();
		}
		auto in_use = ended->Forget();
		if (!succeeded) {
			KeepLeftOver(in_use);
		}
	} catch (...) { // NOLINT: the statement has its error already
	}
	try {
		LogRequests(*ended);
	} catch (...) { // NOLINT
	}
}

void ClientIo::TransactionCommit(MetaTransaction &, ClientContext &client) {
	auto query = CurrentIfAny();
	if (query) {
		// The operator has waited already. This catches a plan that DuckDB ran without it, and files that ended late.
		query->Barrier();
		ShowInProfile(client);
	}
	// An error here takes back what a COPY wrote, so after one the next statement tells.
	if (!query || !query->HasBarrier()) {
		ThrowLate("This statement itself was carried out");
	}
}

Scope::Scope(const shared_ptr<Engine> &engine, optional_ptr<FileOpener> opener) {
	auto context = FileOpener::TryGetClientContext(opener);
	if (context) {
		client = ClientIo::Get(*context, engine);
	} else {
		own = make_shared_ptr<Query>(engine, optional_ptr<ClientContext>());
	}
}

} // namespace penstock
