// What we register under names of httpfs, azure and aws as long as those are not loaded. DuckDB refuses a second
// registration of a name, or passes over it, and has no call to take one back. So ours make way when their extension
// begins to load. docs/design/secret-types.md has the reasons.
#pragma once

#include "bridge.hpp"

#include "duckdb/planner/extension_callback.hpp"

#include <thread>

namespace penstock {

class StandIns : public ExtensionCallback {
public:
	//! Registers what is missing.
	void Fill(DatabaseInstance &db);

	void OnBeginExtensionLoad(DatabaseInstance &db, const string &name) final;
	void OnExtensionLoaded(DatabaseInstance &db, const string &name) final;
	void OnExtensionLoadFail(DatabaseInstance &db, const string &name, const ErrorData &error) final;

protected:
	//! Takes ours out of the way of an extension. One call of these two at a time.
	virtual void Withdraw(DatabaseInstance &db, const string &extension) = 0;
	//! Registers what is missing, but for extensions that are loading.
	virtual void Put(DatabaseInstance &db) = 0;
	//! Whether some thread loads an extension now. What is registered in its place meanwhile would make that fail.
	bool IsLoading(const string &extension) const;

private:
	void End(DatabaseInstance &db, const string &name);

	mutex lock;
	//! A load begins and ends on one thread.
	vector<std::pair<std::thread::id, string>> loading;
};

} // namespace penstock
