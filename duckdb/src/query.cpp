// Decides when a query begins, ends, is armed and is given up. Uploads and requests are the engine's.
#include "query.hpp"

#include "options.hpp"
#include "scan_filters.hpp"
#include "writer.hpp"

#include "duckdb/execution/executor.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>

namespace penstock {

namespace {

constexpr const char *STATE_KEY = "penstock";
constexpr const char *CLEANUP_DEADLINE_MS = "10000";

thread_local idx_t task_token = 0;

bool QueryInterrupted(void *query) {
	return static_cast<Query *>(query)->IsInterrupted();
}

} // namespace

Engine::Engine(DatabaseInstance &db) : db(db), settings(db) {
	Pairs initial;
	for (auto &setting : InitialValues()) {
		initial.Add(setting.first, setting.second.ToString());
	}
	ps_error *error = nullptr;
	Check(ps_engine_new(initial.Data(), initial.Count(), &handle, &error), error);
	// A process may end while a statement runs: Python raises KeyboardInterrupt without stopping it, and nobody
	// destroys a database that is in use.
	static std::once_flag registered;
	std::call_once(registered, [] { std::atexit(ps_process_ends); });
}

Engine::~Engine() {
	ps_engine_free(handle);
}

bool Engine::Serves(const string &path) {
	return IsOurs(path) && !wraps.Claims(path);
}

Query::Query(shared_ptr<Engine> engine_p, optional_ptr<ClientContext> client)
    : engine(std::move(engine_p)), watches_context(bool(client)) {
	auto settings = engine->settings.Changed(client);
	if (client) {
		context = client->shared_from_this();
		logger = client->logger;
	}
	ps_error *error = nullptr;
	Check(ps_query_new(engine->handle, settings.Data(), settings.Count(), QueryInterrupted, this, &handle, &error),
	      error);
#if PENSTOCK_DUCKDB_2
	ps_query_host_reads_ahead(handle);
#endif
}

Query::Query(shared_ptr<Engine> engine_p, optional_ptr<ClientContext> client, const char *request_deadline_ms)
    : engine(std::move(engine_p)), watches_context(false) {
	auto settings = engine->settings.Changed(client);
	settings.Add("request_deadline_ms", request_deadline_ms);
	ps_error *error = nullptr;
	Check(ps_query_new(engine->handle, settings.Data(), settings.Count(), nullptr, nullptr, &handle, &error), error);
}

Query::~Query() {
	ps_query_free(handle);
}

bool Query::IsInterrupted() const {
	if (!watches_context || cleaning_up) {
		return false;
	}
	auto client = context.lock();
	return !client || client->IsInterrupted();
}

void Query::Arm(bool unique) {
	new_names_are_unique = unique;
	barrier_passed = false;
	armed = true;
}

void Query::EndsEarly() {
	ends_early = true;
	ps_query_may_end_early(handle);
}

void Query::TaskBegins(ClientContext &client) {
	if (!rows_pass) {
		return;
	}
	try {
		// Whether the result is a stream is known once the plan runs, and not from the plan.
		if (client.GetExecutor().HasStreamingResultCollector() && rows_pass.exchange(false)) {
			ps_query_may_be_left(handle);
		}
	} catch (std::exception &) { // NOLINT: a task of the binder, before there is an executor
	}
}

void Query::Follow(const string &path, shared_ptr<MovingBound> bound) {
	lock_guard<mutex> guard(lock);
	auto is_of_path = [&](const std::pair<string, shared_ptr<MovingBound>> &other) { return other.first == path; };
	bounds.erase(std::remove_if(bounds.begin(), bounds.end(), is_of_path), bounds.end());
	if (bound) {
		bounds.emplace_back(path, std::move(bound));
	}
	has_bounds = !bounds.empty();
}

void Query::TellBounds() {
	if (!has_bounds) {
		return;
	}
	vector<std::pair<string, shared_ptr<MovingBound>>> now;
	{
		lock_guard<mutex> guard(lock);
		now = bounds;
	}
	for (auto &bound : now) {
		bound.second->Follow(*this);
	}
}

void Query::Barrier() {
	ps_error *error = nullptr;
	Check(ps_query_barrier(handle, &error), error);
	ThrowRemembered();
	barrier_passed = true;
}

void Query::RememberFailure(ErrorData failure) {
	lock_guard<mutex> guard(lock);
	if (!remembered.HasError()) {
		remembered = std::move(failure);
	}
}

void Query::ThrowRemembered() {
	lock_guard<mutex> guard(lock);
	if (remembered.HasError()) {
		remembered.Throw();
	}
}

void Query::Abandon() {
	if (!armed) {
		return;
	}
	BeginCleanup();
	Writers abandoned;
	{
		lock_guard<mutex> guard(lock);
		abandoned = std::move(writers);
		writers.clear();
	}
	Retract(abandoned);
}

void Query::Forget() {
	lock_guard<mutex> guard(lock);
	writers.clear();
}

void Query::BeginCleanup() {
	// DuckDB marks the context as interrupted for any error, to stop the other threads.
	cleaning_up = true;
	ps_query_abort_uploads(handle);
	// An upload whose last request was on its way is taken back, which ends within seconds. Its error
	// is the statement's own, or follows from it.
	ps_error *error = nullptr;
	if (!ps_query_barrier(handle, &error)) {
		ps_error_free(error);
	}
	if (!cleanup) {
		auto client = context.lock();
		cleanup = make_shared_ptr<Query>(engine, optional_ptr<ClientContext>(client.get()), CLEANUP_DEADLINE_MS);
	}
}

void Query::Abandon(const shared_ptr<WriterState> &writer) {
	BeginCleanup();
	Retract({{writer->path, writer}});
}

void Query::Retract(const Writers &batch) {
	vector<const ps_writer *> handles;
	for (auto &entry : batch) {
		auto handle = entry.second->Retract();
		if (handle) {
			handles.push_back(handle);
		}
	}
	if (handles.empty()) {
		return;
	}
	ps_error *error = nullptr;
	Check(ps_query_retract(cleanup->handle, handles.data(), handles.size(), new_names_are_unique, &error), error);
}

void Query::Track(const string &path, shared_ptr<WriterState> writer) {
	lock_guard<mutex> guard(lock);
	writers.emplace_back(path, std::move(writer));
}

Pairs Query::OptionsOf(const string &path, optional_ptr<FileOpener> opener) {
	{
		lock_guard<mutex> guard(lock);
		if (!path.empty() && options_path == path) {
			return options;
		}
	}
	auto fresh = StoreOptions(*engine, opener, path);
	lock_guard<mutex> guard(lock);
	options_path = path;
	options = fresh;
	return fresh;
}

void Query::SeesVersion(const string &path, const string &version) {
	lock_guard<mutex> guard(lock);
	auto known = versions.emplace(path, version).first;
	if (known->second != version) {
		throw IOException("\"%s\" was replaced while it was read. Run the statement again", path);
	}
}

shared_ptr<WriterState> Query::FindWriter(const string &path) {
	lock_guard<mutex> guard(lock);
	for (auto entry = writers.rbegin(); entry != writers.rend(); ++entry) {
		if (entry->first == path) {
			return entry->second;
		}
	}
	return nullptr;
}

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

idx_t ClientIo::TaskToken() {
	return task_token;
}

void ClientIo::OnTaskStart(ClientContext &client) {
	task_token++;
	auto query = CurrentIfAny();
	if (query) {
		query->TaskBegins(client);
	}
}

void ClientIo::OnTaskStop(ClientContext &) {
	task_token++;
}

void ClientIo::QueryBegin(ClientContext &) {
	// What was done outside a statement (binding a relation) does not count for this one.
	lock_guard<mutex> guard(lock);
	current.reset();
}

void ClientIo::QueryEnd(ClientContext &, optional_ptr<ErrorData> error) {
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
		if (error && error->HasError()) {
			ended->Abandon();
		}
		ended->Forget();
		LogRequests(*ended);
	} catch (...) { // NOLINT: the statement has its error already
	}
}

void ClientIo::TransactionCommit(MetaTransaction &, ClientContext &) {
	auto query = CurrentIfAny();
	if (!query) {
		return;
	}
	// The barrier operator has waited already; this catches a plan that DuckDB ran without it.
	if (query->IsArmed() && !query->HasPassedBarrier()) {
		query->Barrier();
	}
	query->ThrowRemembered();
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
