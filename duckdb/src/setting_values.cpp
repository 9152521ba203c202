// Decides where a setting's value is found; what values mean is the engine's and the stores'.
#include "setting_values.hpp"

#include "options.hpp"
#include "theirs.hpp"

#include <cstdlib>

namespace penstock {

bool SameValue(const Value &a, const Value &b) {
	if (a.IsNull() || b.IsNull() || a.type().id() != b.type().id()) {
		return false;
	}
	switch (a.type().id()) {
	case LogicalTypeId::BOOLEAN:
		return BooleanValue::Get(a) == BooleanValue::Get(b);
	case LogicalTypeId::BIGINT:
		return BigIntValue::Get(a) == BigIntValue::Get(b);
	case LogicalTypeId::UBIGINT:
		return UBigIntValue::Get(a) == UBigIntValue::Get(b);
	case LogicalTypeId::INTEGER:
		return IntegerValue::Get(a) == IntegerValue::Get(b);
	case LogicalTypeId::FLOAT:
		return FloatValue::Get(a) == FloatValue::Get(b);
	case LogicalTypeId::VARCHAR:
		return StringValue::Get(a) == StringValue::Get(b);
	default:
		return false;
	}
}

string TextOf(const Value &value) {
	switch (value.IsNull() ? LogicalTypeId::SQLNULL : value.type().id()) {
	case LogicalTypeId::VARCHAR:
		return StringValue::Get(value);
	case LogicalTypeId::BOOLEAN:
		return BooleanValue::Get(value) ? "true" : "false";
	default:
		return value.ToString();
	}
}

SettingSlot::SettingSlot(string name_p, vector<string> variables_p)
    : name(std::move(name_p)), variables(std::move(variables_p)) {
	for (auto prefix : {"s3_", "azure_", "hf_"}) {
		if (StringUtil::StartsWith(name, prefix)) {
			family = prefix;
		}
	}
}

void SettingSlot::Resolve(const DBConfig &config, bool is_copied_p) {
	is_copied = is_copied_p;
	ExtensionOption option;
	if (index == UNKNOWN && config.TryGetExtensionOption(Name(name), option)) {
		if (DEFAULTS_ARE_VALUES && !IsDefault(option.default_value)) {
			their_default = option.default_value;
		}
		index = option.setting_index.GetIndex();
	}
}

//! As httpfs has it, what a session sets itself is none.
bool SettingSlot::IsCopy(const Value &value, SettingScope scope) const {
	if (!is_copied || scope != SettingScope::GLOBAL) {
		return false;
	}
	auto text = TextOf(value);
	for (auto &variable : variables) {
		auto told = std::getenv(variable.c_str());
		if (told && (value.type().id() == LogicalTypeId::BOOLEAN ? StringUtil::CIEquals(told, text) : told == text)) {
			return true;
		}
	}
	return false;
}

bool SettingSlot::Given(DatabaseInstance &db, optional_ptr<ClientContext> client, Value &out) const {
	auto at = index.load();
	if (at == UNKNOWN) {
		// DuckDB's own, which are empty by default
		return (client ? LookupSetting(*client, name, out) : LookupSetting(db, name, out)) && !out.IsNull();
	}
	auto found = client ? client->TryGetCurrentUserSetting(at, out)
	                    : DBConfig::GetConfig(db).TryGetCurrentUserSetting(at, out);
	return found && !out.IsNull() && !IsDefault(out) && !SameValue(out, their_default) &&
	       !IsCopy(out, found.GetScope());
}

SettingValues::SettingValues(DatabaseInstance &db) : db(db) {
	for (auto &setting : InitialValues()) {
		own.emplace_back(setting.first);
	}
	for (auto &setting : TheirSettings()) {
		if (setting.meaning == "ours") {
			mapped.emplace_back(setting.name);
		} else if (setting.meaning == "fixed") {
			fixed.emplace_back(setting.name);
		}
	}
	for (auto &name : StoreSettingNames()) {
		auto theirs = FindTheirSetting(name);
		stores.emplace_back(name, theirs ? theirs->variables : vector<string>());
	}
	is_copied = db.ExtensionIsLoaded("httpfs") || db.ExtensionIsLoaded("cache_httpfs");
	Resolve("");
}

void SettingValues::Resolve(const string &loaded) {
	lock_guard<mutex> guard(resolving);
	auto &config = DBConfig::GetConfig(db);
	if (loaded == "httpfs" || loaded == "cache_httpfs") {
		is_copied = true;
	}
	for (auto &setting : own) {
		setting.slot.Resolve(config, is_copied);
	}
	for (auto &slot : stores) {
		slot.Resolve(config, is_copied);
	}
	for (auto theirs : {&mapped, &fixed}) {
		for (auto &setting : *theirs) {
			setting.slot.Resolve(config, is_copied);
		}
	}
}

Pairs SettingValues::Changed(optional_ptr<ClientContext> client) const {
	Pairs pairs;
	Value value;
	for (auto &setting : mapped) {
		if (setting.slot.Given(db, client, value)) {
			pairs.Add(setting.slot.name, TextOf(value));
		}
	}
	for (auto &setting : own) {
		if (setting.slot.Given(db, client, value)) {
			pairs.Add(setting.key, RevealSetting(TextOf(value)));
		}
	}
	return pairs;
}

void SettingValues::AddStoreSettings(Pairs &pairs, FileOpener &opener, const string &prefix) const {
	auto client = FileOpener::TryGetClientContext(&opener);
	Value value;
	for (auto &slot : stores) {
		if (!slot.family.empty() && slot.family != prefix) {
			continue;
		}
		if (!slot.Given(db, client, value)) {
			continue;
		}
		auto text = TextOf(value);
		if (!text.empty()) {
			pairs.Add(slot.name, std::move(text));
		} else if (slot.family == "s3_") {
			// What the environment has in its place does not count.
			pairs.Add(EMPTIED_OPTION + slot.name, "true");
		}
	}
}

void SettingValues::AddTheirs(Pairs &pairs, ClientContext &client) const {
	Value value;
	auto add = [&](const SettingSlot &slot) {
		if (slot.Given(db, &client, value)) {
			pairs.Add(slot.name, TextOf(value));
		}
	};
	for (auto theirs : {&mapped, &fixed}) {
		for (auto &setting : *theirs) {
			add(setting.slot);
		}
	}
	for (auto &slot : stores) {
		add(slot);
	}
}

void SettingValues::Tell(ClientContext &client, Their &setting, const Value &value) {
	auto instead = InsteadOf(setting.slot.name, value);
	if (instead.empty() || !client.logger->ShouldLog(DefaultLogType::NAME, LogLevel::LOG_WARNING) ||
	    setting.is_told.exchange(true)) {
		return;
	}
	client.logger->WriteLog(DefaultLogType::NAME, LogLevel::LOG_WARNING,
	                        "The setting \"" + setting.slot.name + "\" changes nothing in Penstock: " + instead);
}

void SettingValues::TellInstead(ClientContext &client) {
	if (!client.logger || !client.logger->ShouldLog(DefaultLogType::NAME, LogLevel::LOG_WARNING)) {
		return;
	}
	Value value;
	for (auto &setting : fixed) {
		if (!setting.is_told && setting.slot.Given(db, &client, value)) {
			Tell(client, setting, value);
		}
	}
}

void SettingValues::TellInstead(ClientContext &client, const string &name, const Value &value) {
	for (auto &setting : fixed) {
		if (setting.slot.name == name && client.logger && !value.IsNull()) {
			Tell(client, setting, value);
		}
	}
}

} // namespace penstock
