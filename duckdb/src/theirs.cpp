// The settings of httpfs, azure and aws in a database without them. What each means is in the engine's table; here they
// are registered, and a value that is not followed is told once: a warning in duckdb_logs, and in DuckDB's shell.
//
// Whoever registers a name first defines it for all. Where one of those extensions came first, our callbacks are never
// called, so each statement looks at the values, too.
#include "theirs.hpp"

#include "query.hpp"
#include "setting_callbacks.hpp"
#include "setting_values.hpp"

#include <cstdlib>

namespace penstock {

namespace {

LogicalType TypeOf(const string &type) {
	if (type == "BOOLEAN") {
		return LogicalType::BOOLEAN;
	}
	if (type == "UBIGINT") {
		return LogicalType::UBIGINT;
	}
	if (type == "BIGINT") {
		return LogicalType::BIGINT;
	}
	if (type == "INTEGER") {
		return LogicalType::INTEGER;
	}
	if (type == "FLOAT") {
		return LogicalType::FLOAT;
	}
	if (type == "MAP") {
		return LogicalType::MAP(LogicalType::VARCHAR, LogicalType::VARCHAR);
	}
	return type == "VARCHAR[]" ? LogicalType::LIST(LogicalType::VARCHAR) : LogicalType::VARCHAR;
}

//! What the environment gives a setting, or its default. Where a variable is no value of the type, the requests that
//! need it fail, and name it.
Value FirstValue(const TheirSetting &setting) {
	for (auto &variable : setting.variables) {
		auto text = std::getenv(variable.c_str());
		if (!text || !*text || setting.hides_variables) {
			continue;
		}
		if (setting.type != LogicalType::BOOLEAN) {
			return Value(text);
		}
		bool flag;
		return ps_flag(Borrow(text), &flag) ? Value::BOOLEAN(flag) : setting.default_value;
	}
	return setting.default_value;
}

//! As whoever keeps the value would: a text that a file or a client is named by.
void TakeTheirs(const TheirSetting &setting, Value &value) {
	if (setting.type.id() != LogicalTypeId::VARCHAR) {
		return;
	}
	auto text = TextOf(value);
	ps_rows *kept = nullptr;
	ps_error *error = nullptr;
	Check(ps_theirs_taken(Borrow(setting.name), Borrow(text), &kept, &error), error);
	value = Value(Rows(kept).Cell(0, idx_t(0)));
}

//! RESET calls as SET does, with the default, and never with AUTOMATIC.
bool IsReset(const TheirSetting &setting, SetScope scope, const Value &value) {
	return IsDefault(value) || (scope != SetScope::AUTOMATIC && SameValue(value, setting.default_value));
}

struct OtherSettings {
	static constexpr size_t ROWS_MAX = 80;

	static void OnSet(size_t row, ClientContext &context, SetScope scope, Value &value) {
		auto &setting = TheirSettings()[row];
		if (value.IsNull() && setting.has_default) {
			throw InvalidInputException("NULL it's not a valid option for %s. RESET gives its default back",
			                            setting.name);
		}
		if (value.IsNull() || IsReset(setting, scope, value)) {
			return;
		}
		TakeTheirs(setting, value);
		if (auto client = ClientIo::Find(context)) {
			client->TellInstead(context, setting.name, value);
		}
	}
};

//! A setting that has no value at all current_setting() looks for in the extension that has it, on the Internet.
void GiveNull(DBConfig &config, const TheirSetting &setting) {
	ExtensionOption option;
	Value value;
	if (config.TryGetExtensionOption(Name(setting.name), option) &&
	    !config.TryGetCurrentUserSetting(option.setting_index.GetIndex(), value)) {
		config.SetOption(option.setting_index.GetIndex(), Value(setting.type));
	}
}

} // namespace

const vector<TheirSetting> &TheirSettings() {
	static const vector<TheirSetting> settings = [] {
		vector<TheirSetting> read;
		Rows rows(ps_theirs());
		for (idx_t row = 0; row < rows.Count(); row++) {
			auto type = TypeOf(rows.Cell(row, "type"));
			auto has_default = rows.Cell(row, "has_default") == "true";
			auto value = has_default ? Value(rows.Cell(row, "default")).DefaultCastAs(type) : Value(type);
			read.push_back({rows.Cell(row, "name"), std::move(type), has_default, std::move(value),
			                rows.Cell(row, "meaning"), rows.Cell(row, "doc"),
			                StringUtil::Split(rows.Cell(row, "variables"), " "),
			                rows.Cell(row, "hides_variables") == "true"});
		}
		return read;
	}();
	return settings;
}

optional_ptr<const TheirSetting> FindTheirSetting(const string &name) {
	for (auto &setting : TheirSettings()) {
		if (StringUtil::CIEquals(setting.name, name)) {
			return setting;
		}
	}
	return nullptr;
}

void RegisterTheirSettings(DBConfig &config) {
	auto &settings = TheirSettings();
	for (size_t row = 0; row < settings.size(); row++) {
		auto &setting = settings[row];
		auto first = FirstValue(setting);
		AddSetting<OtherSettings>(config, row, setting.name, setting.doc, setting.type, first);
		if (first.IsNull()) {
			GiveNull(config, setting);
		}
	}
}

string InsteadOf(const string &name, const Value &value) {
	auto text = value.IsNull() ? string() : TextOf(value);
	return Text(ps_theirs_instead(Borrow(name), Borrow(text)));
}

} // namespace penstock
