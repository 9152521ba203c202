// Reads the settings of extensions by their index: each look-up by name copies the setting's description. DuckDB's own
// are looked up by name.
#pragma once

#include "bridge.hpp"

#include <deque>

namespace penstock {

//! A value as text; the common types without DuckDB's casts, which build vectors for it.
string TextOf(const Value &value);

//! Whether two values are of one type and equal; only of the types that settings have, but for lists and maps.
bool SameValue(const Value &a, const Value &b);

//! How the option begins that says of a setting that it was given an empty text.
static constexpr const char *EMPTIED_OPTION = "emptied.";

//! One setting of DuckDB, of another extension or of ours. Found once, read often, from any thread.
class SettingSlot {
public:
	//! `variables` of the environment: httpfs copies the first that is set into the setting, of the whole database.
	explicit SettingSlot(string name, vector<string> variables = {});
	//! Looks for the setting, if it was not found yet. `is_copied`: httpfs has been loaded.
	void Resolve(const DBConfig &config, bool is_copied);
	//! The value that somebody gave it. False for a default, for NULL, and for what the environment gave.
	bool Given(DatabaseInstance &db, optional_ptr<ClientContext> client, Value &out) const;

	const string name;
	//! How the names of its family begin (`s3_`, `azure_`, `hf_`); empty for those of every store.
	string family;

private:
	bool IsCopy(const Value &value, SettingScope scope) const;

	static constexpr idx_t UNKNOWN = idx_t(-1);
	const vector<string> variables;
	//! Of DuckDB 1.5, where another extension has registered the setting: its default is a value as any other.
	Value their_default;
	atomic<idx_t> index {UNKNOWN};
	atomic<bool> is_copied {false};
};

//! The penstock_* settings of one database, and those that httpfs, azure and DuckDB define for stores.
class SettingValues {
public:
	explicit SettingValues(DatabaseInstance &db);

	//! Looks for settings that an extension has registered which was loaded now.
	void Resolve(const string &loaded);
	//! The penstock_* settings that somebody has set, behind those of httpfs, azure and aws that mean the same.
	Pairs Changed(optional_ptr<ClientContext> client) const;
	//! Adds the store settings that somebody has set: of one family (`s3_`, `azure_`, or empty for none), and those
	//! for every HTTP request.
	void AddStoreSettings(Pairs &pairs, FileOpener &opener, const string &prefix) const;
	//! Adds the settings of httpfs, azure and aws that somebody has set, whatever becomes of their values.
	void AddTheirs(Pairs &pairs, ClientContext &client) const;
	//! Warns, once for each setting of httpfs, azure and aws, where it has a value that is not followed.
	void TellInstead(ClientContext &client);
	//! The same of a value that one of them is about to have.
	void TellInstead(ClientContext &client, const string &name, const Value &value);

private:
	struct Own {
		explicit Own(string name) : slot("penstock_" + name), key(std::move(name)) {
		}
		SettingSlot slot;
		string key;
	};
	//! Of another extension.
	struct Their {
		explicit Their(const string &name) : slot(name) {
		}
		SettingSlot slot;
		atomic<bool> is_told {false};
	};
	static void Tell(ClientContext &client, Their &setting, const Value &value);

	DatabaseInstance &db;
	std::deque<Own> own;
	std::deque<Their> mapped;
	std::deque<Their> fixed;
	std::deque<SettingSlot> stores;
	//! Two extensions may be loaded at once.
	mutex resolving;
	//! httpfs has been loaded, which copies the environment into its settings.
	bool is_copied = false;
};

} // namespace penstock
