// Decides when a query begins, and how it is given up. How its files end is in endings.cpp, how a connection tells it
// of its statements in client_io.cpp. Uploads and requests are the engine's.
#include "query.hpp"

#include "options.hpp"
#include "scan_filters.hpp"
#include "writer.hpp"

#include "duckdb/execution/executor.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace penstock {

namespace {

constexpr const char *CLEANUP_DEADLINE_MS = "10000";

bool QueryInterrupted(void *query) {
	return static_cast<Query *>(query)->IsInterrupted();
}

bool TellCurrentOptions(void *context, ps_str url, const ps_pair *used, size_t count, ps_option_fn add, void *into) {
	auto &engine = *static_cast<Engine *>(context);
	try {
		Pairs current;
		if (!engine.IsAlive() || !CurrentOptions(engine, Text(url), used, count, current)) {
			return false;
		}
		for (size_t index = 0; index < current.Count(); index++) {
			auto &pair = current.Data()[index];
			add(into, pair.key, pair.value);
		}
		return true;
	} catch (std::exception &) {
		return false; // the refusal stands, which tells more
	}
}

//! DuckDB's number of the statement that runs, which duckdb_logs has as query_id; 0 where none does.
uint64_t NumberOf(ClientContext &client) {
	return RunsStatement(client) ? client.transaction.GetActiveQuery() : 0;
}

} // namespace

bool RunsStatement(ClientContext &client) {
	auto &transaction = client.transaction;
	return transaction.HasActiveTransaction() && transaction.GetActiveQuery() != MAXIMUM_QUERY_ID;
}

Engine::Engine(DatabaseInstance &db) : db(db), settings(db), alive(db.shared_from_this()) {
	Pairs initial;
	for (auto &setting : InitialValues()) {
		initial.Add(setting.first, setting.second.ToString());
	}
	ps_error *error = nullptr;
	Check(ps_engine_new(initial.Data(), initial.Count(), &handle, &error), error);
	ps_engine_renews_secrets(handle, TellCurrentOptions, this);
	// A process may end while a statement runs: Python raises KeyboardInterrupt without stopping it, and nobody
	// destroys a database that is in use.
	static std::once_flag registered;
	std::call_once(registered, [] { std::atexit(ps_process_ends); });
}

Engine::~Engine() {
	auto lost = late.Take();
	if (!lost.empty()) {
		// There is no statement left that could fail.
		std::fprintf(stderr, "penstock: %s.\n", lost.c_str());
	}
	ps_engine_free(handle);
}

bool Engine::Serves(const string &path) {
	return IsOurs(path) && !wraps.Claims(path);
}

#if PENSTOCK_DUCKDB_2
//! Reads of Parquet files begin and end at multiples of so many bytes.
static uint64_t HostGrid(DatabaseInstance &db) {
	Value bytes;
	bool is_set = LookupSetting(db, "external_file_cache_remote_min_block_size", bytes) && !bytes.IsNull();
	return is_set ? bytes.GetValue<uint64_t>() : 1;
}
#endif

Query::Query(shared_ptr<Engine> engine_p, optional_ptr<ClientContext> client)
    : engine(std::move(engine_p)), watches_context(bool(client)),
      phase(client && RunsStatement(*client) ? Phase::RUNNING : Phase::OUTSIDE),
      number(client ? NumberOf(*client) : 0) {
	auto settings = engine->settings.Changed(client);
	if (client) {
		context = client->shared_from_this();
		logger = client->logger;
		engine->settings.TellInstead(*client);
	}
	ps_error *error = nullptr;
	ps_statement statement {number, QueryInterrupted, this};
	Check(ps_query_new(engine->handle, settings.Data(), settings.Count(), &statement, &handle, &error), error);
	if (LogsRequests(*this)) {
		ps_query_logs_headers(handle);
	}
	if (phase == Phase::RUNNING) {
		ps_query_writes_each_name_once(handle);
	}
#if PENSTOCK_DUCKDB_2
	ps_query_host_reads_ahead(handle, HostGrid(engine->db));
#endif
}

Query::Query(shared_ptr<Engine> engine_p, optional_ptr<ClientContext> client, uint64_t number,
             const char *request_deadline_ms)
    : engine(std::move(engine_p)), watches_context(false), phase(Phase::OUTSIDE), number(number) {
	auto settings = engine->settings.Changed(client);
	settings.Add("request_deadline_ms", request_deadline_ms);
	ps_error *error = nullptr;
	ps_statement statement {number, nullptr, nullptr};
	Check(ps_query_new(engine->handle, settings.Data(), settings.Count(), &statement, &handle, &error), error);
}

Query::~Query() {
	ps_query_free(handle);
}

bool Query::IsInterrupted() const {
	if (!watches_context || cleaning_up) {
		return false;
	}
	auto client = context.lock();
	// A file of a statement that succeeded may be closed with its connection, and is wanted.
	return client ? client->IsInterrupted() : phase != Phase::SUCCEEDED;
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
		cleanup = make_shared_ptr<Query>(engine, optional_ptr<ClientContext>(client.get()), number,
		                                 CLEANUP_DEADLINE_MS);
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
		throw IOException("\"%s\" was replaced while it was read. Run the statement again", WithoutSecrets(path));
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

} // namespace penstock
