// Settings that do something when they are set, which only their extension can do. Whoever registers a name first
// defines it, and DuckDB passes over a second registration. So while httpfs loads, ours stand under other names.
// Afterwards those of httpfs take their places, with the values that they have.
#include "extension.hpp"

#include "reach.hpp"
#include "stand_ins.hpp"

#include <map>

namespace penstock {

namespace {

//! httpfs chooses its HTTP client by the first, and has it keep connections by the second.
constexpr const char *HANDED_OVER[] = {"httpfs_client_implementation", "httpfs_connection_caching"};

struct SettingsLock {
	using type = mutex GlobalUserSettings::*;
	friend type Member(SettingsLock);
};
struct SettingsKnown {
	using type = NameMap<ExtensionOption> GlobalUserSettings::*;
	friend type Member(SettingsKnown);
};
template struct Reach<SettingsLock, &GlobalUserSettings::lock>;
template struct Reach<SettingsKnown, &GlobalUserSettings::extension_parameters>;

class HandedOver : public StandIns {
protected:
	void Withdraw(DatabaseInstance &db, const string &extension) override {
		if (extension != "httpfs") {
			return;
		}
		auto &settings = DBConfig::GetConfig(db).user_settings;
		lock_guard<mutex> guard(settings.*Member(SettingsLock()));
		auto &known = settings.*Member(SettingsKnown());
		for (auto name : HANDED_OVER) {
			Rename(known, name, Aside(name));
		}
	}

	void Put(DatabaseInstance &db) override {
		if (IsLoading("httpfs")) {
			return;
		}
		auto &settings = DBConfig::GetConfig(db).user_settings;
		for (auto number : Merge(settings)) {
			// Whoever registers the next setting gets this number, and would get the value with it.
			settings.ClearSetting(number);
		}
	}

private:
	using Known = NameMap<ExtensionOption>;

	static string Aside(const string &name) {
		return name + " of penstock";
	}

	static void Rename(Known &known, const string &from, const string &to) {
		auto entry = known.extract(Name(from));
		if (!entry.empty()) {
			entry.key() = Name(to);
			known.insert(std::move(entry));
		}
	}

	//! Puts those of httpfs that are there into the places of ours. Returns numbers of settings that are free now.
	static vector<idx_t> Merge(GlobalUserSettings &settings) {
		lock_guard<mutex> guard(settings.*Member(SettingsLock()));
		auto &known = settings.*Member(SettingsKnown());
		std::map<idx_t, string> replaced;
		for (auto name : HANDED_OVER) {
			auto ours = known.find(Name(Aside(name)));
			auto theirs = known.find(Name(name));
			if (ours != known.end() && theirs != known.end()) {
				std::swap(ours->second.setting_index, theirs->second.setting_index);
				theirs->second.default_value = ours->second.default_value;
				replaced.emplace(ours->second.setting_index.GetIndex(), Aside(name));
			} else if (ours != known.end()) {
				Rename(known, Aside(name), name);
			}
		}
		vector<idx_t> free;
		while (!replaced.empty() && replaced.rbegin()->first == LastNumber(known)) {
			free.push_back(replaced.rbegin()->first);
			known.erase(Name(replaced.rbegin()->second));
			replaced.erase(free.back());
		}
		return free;
	}

	//! DuckDB numbers settings by how many there are, so only the last can be taken out: others stay where they are.
	static idx_t LastNumber(const Known &known) {
		idx_t last = 0;
		for (auto &entry : known) {
			last = MaxValue(last, entry.second.setting_index.GetIndex());
		}
		return last;
	}
};

} // namespace

void RegisterHandedOver(DatabaseInstance &db) {
	ExtensionCallback::Register(DBConfig::GetConfig(db), make_shared_ptr<HandedOver>());
}

} // namespace penstock
