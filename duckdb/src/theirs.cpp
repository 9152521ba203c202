// The settings of httpfs, azure and aws in a database without them. What each means is in the engine's table; here they
// are registered, and a value that is not followed is told once: a warning in duckdb_logs, and in DuckDB's shell.
//
// Whoever registers a name first defines it for all. Where one of those extensions came first, our callbacks are never
// called, so each statement looks at the values, too.
#include "theirs.hpp"

#include "query.hpp"

#include <cstdlib>
#include <utility>

namespace penstock {

namespace {

//! DuckDB's callback is a plain function without the setting's name, so there is one per table row.
constexpr size_t THEIR_CALLBACK_COUNT = 80;

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

//! What the environment gives a setting, or its default.
Value FirstValue(const TheirSetting &setting) {
	for (auto &variable : StringUtil::Split(setting.variables, " ")) {
		auto text = std::getenv(variable.c_str());
		if (!text || !*text) {
			continue;
		}
		try {
			return Value(text).DefaultCastAs(setting.type);
		} catch (std::exception &) {
			throw InvalidInputException("The environment variable %s is \"%s\": %s takes a value of type %s", variable,
			                            text, setting.name, setting.type.ToString());
		}
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

template <size_t INDEX>
void OnSetTheirs(ClientContext &context, SetScope, Value &value) {
	auto &setting = TheirSettings()[INDEX];
	if (value.IsNull() && setting.has_default) {
		throw InvalidInputException("NULL it's not a valid option for %s. RESET gives its default back", setting.name);
	}
	if (!value.IsNull()) {
		TakeTheirs(setting, value);
	}
	if (auto client = ClientIo::Find(context)) {
		client->TellInstead(context, setting.name, value);
	}
}

template <size_t... INDEX>
set_option_callback_t TheirCallbackAt(size_t wanted, std::index_sequence<INDEX...>) {
	static constexpr set_option_callback_t CALLBACKS[] = {OnSetTheirs<INDEX>...};
	return CALLBACKS[wanted];
}

//! Gives a setting its first value, if nobody else did. What the environment gives is a value as any other; DuckDB 2.0
//! tells defaults from values. Where there is none at all, current_setting() looks for the extension that has the
//! setting, on the Internet.
void GiveFirstValue(DBConfig &config, const TheirSetting &setting, const Value &first) {
	ExtensionOption option;
	Value value;
	if (config.TryGetExtensionOption(Name(setting.name), option) &&
	    !config.TryGetCurrentUserSetting(option.setting_index.GetIndex(), value)) {
		config.SetOption(option.setting_index.GetIndex(), first);
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
			                rows.Cell(row, "meaning"), rows.Cell(row, "doc"), rows.Cell(row, "variables")});
		}
		return read;
	}();
	return settings;
}

void RegisterTheirSettings(DBConfig &config) {
	auto &settings = TheirSettings();
	if (settings.size() > THEIR_CALLBACK_COUNT) {
		throw InternalException("There are %llu settings of other extensions, but callbacks for %llu",
		                        settings.size(), THEIR_CALLBACK_COUNT);
	}
	for (size_t index = 0; index < settings.size(); index++) {
		auto &setting = settings[index];
		auto first = FirstValue(setting);
		config.AddExtensionOption(Name(setting.name), setting.doc, setting.type, first,
		                          TheirCallbackAt(index, std::make_index_sequence<THEIR_CALLBACK_COUNT>()));
		if (!setting.has_default || !setting.variables.empty()) {
			GiveFirstValue(config, setting, first);
		}
	}
}

string InsteadOf(const string &name, const Value &value) {
	auto text = value.IsNull() ? string() : TextOf(value);
	return Text(ps_theirs_instead(Borrow(name), Borrow(text)));
}

} // namespace penstock
