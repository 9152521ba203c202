// The log type HTTPFSInfo for a DuckDB without httpfs, which makes way when that is loaded: a second registration of a
// name is an error, and DuckDB has no call to take one back. docs/design/secret-types.md has the same for secret types.
#include "extension.hpp"

#include "reach.hpp"
#include "stand_ins.hpp"

#include "duckdb/logging/log_manager.hpp"

namespace penstock {

namespace {

constexpr const char *HTTPFS_INFO = "HTTPFSInfo";

struct LogTypesLock {
	using type = mutex LogManager::*;
	friend type Member(LogTypesLock);
};
struct LogTypesKnown {
	using type = case_insensitive_map_t<unique_ptr<LogType>> LogManager::*;
	friend type Member(LogTypesKnown);
};
template struct Reach<LogTypesLock, &LogManager::lock>;
template struct Reach<LogTypesKnown, &LogManager::registered_log_types>;

class LogTypes : public StandIns {
protected:
	void Put(DatabaseInstance &db) override {
		if (IsLoading("httpfs")) {
			return;
		}
		auto &manager = db.GetLogManager();
		lock_guard<mutex> guard(manager.*Member(LogTypesLock()));
		auto &known = (manager.*Member(LogTypesKnown()))[HTTPFS_INFO];
		if (!known) {
			known = make_uniq<LogType>(HTTPFS_INFO, LogLevel::LOG_INFO);
			ours = known.get();
		}
	}

	void Withdraw(DatabaseInstance &db, const string &extension) override {
		if (extension != "httpfs") {
			return;
		}
		auto &manager = db.GetLogManager();
		lock_guard<mutex> guard(manager.*Member(LogTypesLock()));
		auto &types = manager.*Member(LogTypesKnown());
		auto found = types.find(HTTPFS_INFO);
		if (found != types.end() && found->second.get() == ours) {
			withdrawn.push_back(std::move(found->second)); // whoever looked it up may still use it
			types.erase(found);
		}
	}

private:
	const LogType *ours = nullptr;
	vector<unique_ptr<LogType>> withdrawn;
};

} // namespace

void RegisterLogTypes(DatabaseInstance &db) {
	auto types = make_shared_ptr<LogTypes>();
	types->Fill(db);
	ExtensionCallback::Register(DBConfig::GetConfig(db), std::move(types));
}

} // namespace penstock
