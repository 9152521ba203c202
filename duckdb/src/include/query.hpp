// One statement as the engine sees it, and the client state that knows which statement runs.
//
// Lifetimes: Engine (one per database instance) < Query (one per statement) < readers and writers.
// All of them are shared, so an open file may outlive its statement (a relation bound in Python).
#pragma once

#include "bridge.hpp"
#include "read_ahead_depth.hpp"
#include "setting_values.hpp"
#include "wrap.hpp"

#include <chrono>

namespace penstock {

class MovingBound;
class WriterState;

//! A failure that waits for a place that can throw.
class KeptFailure {
public:
	//! Keeps the first; the later ones mostly follow from it.
	void Keep(ErrorData failure);
	//! Takes what is kept; without an error where nothing is.
	ErrorData Take();
	ErrorData Peek();

private:
	mutex lock;
	ErrorData kept;
};

//! Failures of files whose statements have ended: they wait for a statement that can throw.
class LateFailures {
public:
	void Keep(const ErrorData &failure);
	//! Takes over what another place has kept.
	void Keep(LateFailures &other);
	//! Takes what is kept and says what was lost: the first few by name, and how many others. Empty where nothing is.
	string Take();

private:
	mutex lock;
	vector<string> first;
	idx_t count = 0;
};

//! How long files that end outside any statement may go on repeating requests that fail: one time for all of them,
//! since nobody can interrupt them, and a database that is closed waits for each.
class LatePatience {
public:
	uint64_t LeftMs();
	//! A statement begins, so this was not the end.
	void Renew();

private:
	mutex lock;
	std::chrono::steady_clock::time_point until;
	bool has_begun = false;
};

//! Secrets whose own values a store refused, and that are made anew from their REFRESH_INFO since.
class RefreshedSecrets {
public:
	bool Has(const KeyValueSecret &secret) const;
	//! False where it was known.
	bool Add(const KeyValueSecret &secret);

private:
	mutable mutex lock;
	unordered_set<string> known;
};

//! The engine of one database instance.
class Engine {
public:
	explicit Engine(DatabaseInstance &db);
	~Engine();
	Engine(const Engine &) = delete;
	Engine &operator=(const Engine &) = delete;

	//! True for paths that this file system serves: those of our schemes, unless their own is wrapped.
	bool Serves(const string &path);

	ps_engine *handle = nullptr;
	DatabaseInstance &db;
	SettingValues settings;
	Wraps wraps;
	RefreshedSecrets refreshed;
	//! What failed after its connection was gone: the next statement of any connection fails. If none follows, it is
	//! written to stderr.
	LateFailures late;
	LatePatience patience;

	//! False once the database is being destroyed.
	bool IsAlive() const {
		return !alive.expired();
	}

private:
	weak_ptr<DatabaseInstance> alive;
};

//! One statement, or one piece of work outside any statement.
class Query {
public:
	//! Settings are read from the context, and interruption is watched, if there is one.
	Query(shared_ptr<Engine> engine, optional_ptr<ClientContext> context);
	//! For cleaning up: nobody can interrupt it, but it gives up soon.
	Query(shared_ptr<Engine> engine, optional_ptr<ClientContext> context, uint64_t number,
	      const char *request_deadline_ms);
	~Query();
	Query(const Query &) = delete;
	Query &operator=(const Query &) = delete;

	//! The plan begins to run, with a barrier at its end. If armed, closing a file returns before it is durable.
	void RunsBehindBarrier(bool armed, bool new_names_are_unique);
	bool IsArmed() const {
		return armed;
	}
	//! A COPY or EXPORT to our URLs.
	bool HasBarrier() const {
		return has_barrier;
	}
	//! The statement writes only names that nobody else has (COPY ... APPEND with UUIDs).
	bool NewNamesAreUnique() const {
		return new_names_are_unique;
	}
	//! A file is closed, or dropped unclosed. Publishes it now or at the end of the statement, or gives it up. Never
	//! throws what failed: the caller may be a destructor.
	void Ends(const shared_ptr<WriterState> &writer, bool is_closed, bool is_unwinding);
	//! A write or a close failed, perhaps in a destructor: the statement fails, or else the next one.
	//! Throws only where it may, and where the file was opened outside any statement.
	void Fail(const ErrorData &failure, bool may_throw);
	//! Closes the gate: later files wait for their own upload. Waits for all; throws what failed.
	void Barrier();
	//! Waits until every file that ended so far is durable; throws what failed.
	void Settle();
	//! The statement ended. Returns a failure that it could not tell.
	ErrorData End(bool succeeded);
	//! It was left before its barrier, without an error.
	bool WasLeft() const {
		return has_barrier && !barrier_passed;
	}
	//! A file could not be opened to be written. The statement may hide that, or go on without it.
	void CannotOpen(ErrorData refusal) {
		refused.Keep(std::move(refusal));
	}
	//! Adds the failure of a file to the error of its statement, which may hide it.
	void TellBeside(ErrorData &error);
	//! After a failed statement: gives up what is under way. Of a COPY or EXPORT it takes back what was published.
	void Abandon();
	//! Gives up one file of a failed statement, and takes back what was published of it.
	void Abandon(const shared_ptr<WriterState> &writer);
	//! The statement ended: its writers hold it, and must not do so for ever. Returns those still in use.
	vector<weak_ptr<WriterState>> Forget();

	void Track(const string &path, shared_ptr<WriterState> writer);
	//! The last writer opened for this path in this statement, if any.
	shared_ptr<WriterState> FindWriter(const string &path);
	//! The options of a path's store. A statement sees one set of secrets and settings, and opens its file
	//! once to bind it and once in each thread.
	Pairs OptionsOf(const string &path, optional_ptr<FileOpener> opener);
	//! A file of a volume was opened to be read; throws if the statement has opened another of its name before.
	void SeesVersion(const string &path, const string &version);
	//! Says that it may end before its files do (LIMIT): from now on little is fetched ahead.
	void EndsEarly();
	bool MayEndEarly() const {
		return ends_early;
	}
	//! Says that all rows of its scans pass, as they are read, to whoever takes the result.
	void RowsPass() {
		rows_pass = true;
	}
	//! A task of the executor begins: a result that is a stream may be left before its end.
	void TaskBegins(ClientContext &client);
	//! The bound of a Top-N that a scan of a file filters by from now on, if any.
	void Follow(const string &path, shared_ptr<MovingBound> bound);
	//! Tells the engine where such bounds are now.
	void TellBounds();
	//! True once the user asked to stop, or the connection is gone.
	bool IsInterrupted() const;
	//! Of the statement; null where there is none, or its connection is gone.
	shared_ptr<ClientContext> Client() const {
		return context.lock();
	}

	shared_ptr<Engine> engine;
	ps_query *handle = nullptr;
	//! Where rows of type HTTP go.
	shared_ptr<Logger> logger;

private:
	//! OUTSIDE any statement; RUNNING until the end of its statement.
	enum class Phase : uint8_t { OUTSIDE, RUNNING, SUCCEEDED, FAILED };

	void BeginCleanup();
	//! Begins the uploads that were put off and waits for them, and for the detached ones where asked. Returns what
	//! failed in this statement.
	ErrorData Await(bool also_detached);
	using Writers = vector<std::pair<string, shared_ptr<WriterState>>>;
	//! Takes back what these made, and nothing that stood there before or that others wrote since.
	void Retract(const Writers &batch);

	weak_ptr<ClientContext> context;
	bool watches_context;
	atomic<bool> armed {false};
	atomic<bool> new_names_are_unique {false};
	atomic<bool> has_barrier {false};
	atomic<bool> barrier_passed {false};
	atomic<bool> ends_early {false};
	atomic<bool> rows_pass {false};
	atomic<bool> has_bounds {false};
	//! From a failure on: cleaning up after an interrupted statement must not be interrupted itself.
	atomic<bool> cleaning_up {false};
	atomic<Phase> phase;
	//! DuckDB's number of the statement.
	const uint64_t number;
	mutex lock;
	Writers writers;
	//! Files that ended where the outcome of the statement was open.
	vector<shared_ptr<WriterState>> put_off;
	//! For removing; gives up sooner than the statement would.
	shared_ptr<Query> cleanup;
	KeptFailure failure;
	KeptFailure refused;
	vector<std::pair<string, shared_ptr<MovingBound>>> bounds;
	//! The files of volumes that it reads, by path.
	unordered_map<string, string> versions;
	//! What OptionsOf told last.
	string options_path;
	Pairs options;
};

//! Makes an operator above another one of a physical plan.
using MakePass = std::function<PhysicalOperator &(PhysicalPlan &plan, PhysicalOperator &child)>;

//! Whether the connection runs a statement now.
bool RunsStatement(ClientContext &client);

//! What a connection remembers between calls: the statement that runs now.
class ClientIo : public ClientContextState {
public:
	explicit ClientIo(shared_ptr<Engine> engine) : engine(std::move(engine)) {
	}
	~ClientIo() override;
	static shared_ptr<ClientIo> Get(ClientContext &context, const shared_ptr<Engine> &engine);

	//! What a connection has remembered, if anything.
	static shared_ptr<ClientIo> Find(ClientContext &context);

	//! The running statement's query; made on first use.
	shared_ptr<Query> Current();
	//! As Current, but null if nothing was done yet.
	shared_ptr<Query> CurrentIfAny();
	void Attach(ClientContext &client) {
		context = client.shared_from_this();
	}
	//! SET gives this setting a value: its limit holds from now on, also for what no statement of ours begins
	//! (what DuckDB spills).
	void Adopt(ClientContext &client, const string &name, const string &value);
	//! SET gives a setting of another extension a value: warns where it is not followed.
	void TellInstead(ClientContext &client, const string &name, const Value &value) {
		engine->settings.TellInstead(client, name, value);
	}
	//! True on a thread that runs a task of this connection's statement.
	static bool RunsTaskOf(const ClientContext &client);
	//! The statement whose plan the calling thread runs; null where it runs none.
	static shared_ptr<Query> OfTask();
	//! A file of an earlier statement failed: the next statement fails.
	void FailsLater(const ErrorData &failure) {
		late.Keep(failure);
	}
	//! True for a file of an earlier statement that failed, and whose writer still lives.
	bool IsLeftOver(const string &path);

	//! The optimizer hooks of a plan begin: what those of another one left is not for it.
	void PlanBegins();
	//! Optimizer hooks ask for an operator above the root of the plan that is being made.
	void PutAbove(MakePass make);
	//! The running statement takes a few rows of one file.
	void TakesAFewRows(ClientContext &client) {
		depth.Shorten(client);
	}

	//! True: else DuckDB does not show the finished plan. Nothing is bound twice: the statement is copied before.
	//! DuckDB asks when it begins to plan a statement.
	bool CanRequestRebind() override {
		PlanBegins();
		return true;
	}
	RebindQueryInfo OnFinalizePrepare(ClientContext &context, PreparedStatementData &prepared,
	                                  PreparedStatementMode mode) override;
	void QueryBegin(ClientContext &context) override;
	void QueryEnd(ClientContext &context, optional_ptr<ErrorData> error) override;
	void TransactionCommit(MetaTransaction &transaction, ClientContext &context) override;
	void WriteProfilingInformation(std::ostream &ss) override;
	void OnTaskStart(ClientContext &context) override;
	void OnTaskStop(ClientContext &context) override;

private:
	shared_ptr<Engine> engine;
	//! Puts what the box shows into the profile, which has no box of ours where it is JSON.
	void ShowInProfile(ClientContext &client);
	void ThrowLate(const char *consequence);
	void KeepLeftOver(const vector<weak_ptr<WriterState>> &in_use);

	weak_ptr<ClientContext> context;
	mutex lock;
	shared_ptr<Query> current;
	vector<MakePass> passes;
	ReadAheadDepth depth;
	LateFailures late;
	vector<weak_ptr<WriterState>> left_over;
};

//! Where calls on a file go: the statement that runs now, or the query it was opened with.
struct Scope {
	//! Resolves the opener; throws if there is no database behind it.
	Scope(const shared_ptr<Engine> &engine, optional_ptr<FileOpener> opener);
	shared_ptr<Query> Current() const {
		return client ? client->Current() : own;
	}

	shared_ptr<ClientIo> client;
	shared_ptr<Query> own;
};

//! Says once what values profiles may have.
void RegisterProfile(ExtensionLoader &loader);
//! Whether DuckDB's HTTP log is on for a statement.
bool LogsRequests(Query &query);
//! Sends the requests finished since the last call to DuckDB's HTTP log.
void LogRequests(Query &query);

} // namespace penstock
