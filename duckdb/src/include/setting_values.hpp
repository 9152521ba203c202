// Reads the settings of extensions by their index: each look-up by name copies the setting's description. DuckDB's own
// are looked up by name.
#pragma once

#include "bridge.hpp"

#include <deque>

namespace penstock {

//! A value as text; the common types without DuckDB's casts, which build vectors for it.
string TextOf(const Value &value);

//! How the option begins that says of a setting that it was given an empty text.
static constexpr const char *EMPTIED_OPTION = "emptied.";

//! One setting of DuckDB, of another extension or of ours. Found once, read often, from any thread.
class SettingSlot {
public:
	explicit SettingSlot(string name);
	//! Looks for the setting, if it was not found yet.
	void Resolve(const DBConfig &config);
	//! The value in force; false where the setting does not exist or was never given a value.
	bool Get(DatabaseInstance &db, optional_ptr<ClientContext> client, Value &out) const;

	const string name;
	//! How the names of its family begin (`s3_`, `azure_`); empty for those of every store.
	string family;

private:
	static constexpr idx_t UNKNOWN = idx_t(-1);
	atomic<idx_t> index {UNKNOWN};
};

//! The penstock_* settings of one database, and those that httpfs, azure and DuckDB define for stores.
class SettingValues {
public:
	explicit SettingValues(DatabaseInstance &db);

	//! Looks for settings that an extension has registered since.
	void Resolve();
	//! The penstock_* settings whose value is not the one that the engine was made with, behind those of httpfs, azure
	//! and aws that mean the same and were changed.
	Pairs Changed(optional_ptr<ClientContext> client) const;
	//! Adds the values of store settings: of one family (`s3_`, `azure_`, or empty for none), and those
	//! for every HTTP request.
	void AddStoreSettings(Pairs &pairs, FileOpener &opener, const string &prefix) const;
	//! Warns, once for each setting of httpfs, azure and aws, where it has a value that is not followed.
	void TellInstead(ClientContext &client);
	//! The same of a value that one of them is about to have.
	void TellInstead(ClientContext &client, const string &name, const Value &value);

private:
	struct Own {
		Own(string name, Value initial) : slot("penstock_" + name), key(std::move(name)), initial(std::move(initial)) {
		}
		SettingSlot slot;
		string key;
		Value initial;
	};
	//! Of another extension.
	struct Their {
		Their(const string &name, Value initial) : slot(name), initial(std::move(initial)) {
		}
		SettingSlot slot;
		Value initial;
		atomic<bool> is_told {false};
	};
	static void Tell(ClientContext &client, Their &setting, const Value &value);

	DatabaseInstance &db;
	std::deque<Own> own;
	std::deque<Their> mapped;
	std::deque<Their> fixed;
	std::deque<SettingSlot> stores;
};

} // namespace penstock
