// The penstock_* settings, made from the engine's table; SET is checked by the table's own rules.
#include "extension.hpp"

#include "options.hpp"
#include "setting_callbacks.hpp"
#include "theirs.hpp"

#include <cstdlib>
#include <unordered_map>

namespace penstock {

namespace {

//! URLs with passwords, by the texts that DuckDB keeps in their place, since it shows every setting.
class Passwords {
public:
	static string Hide(const ps_setting_info &info, const string &value) {
		Rows rows(ps_setting_shown(info.name, Borrow(value)));
		auto shown = rows.Cell(0, idx_t(0));
		if (shown == value) {
			return value;
		}
		lock_guard<mutex> guard(lock);
		auto at = shown.find("***");
		// Another password for the same place is another value.
		for (idx_t number = 2; !hidden.emplace(shown, value).second && hidden[shown] != value; number++) {
			shown = rows.Cell(0, idx_t(0));
			shown.insert(at + 3, std::to_string(number));
		}
		return shown;
	}

	static string Reveal(const string &shown) {
		lock_guard<mutex> guard(lock);
		auto found = hidden.find(shown);
		return found == hidden.end() ? shown : found->second;
	}

private:
	static mutex lock;
	static std::unordered_map<string, string> hidden;
};
mutex Passwords::lock;
std::unordered_map<string, string> Passwords::hidden;

//! For a setting that was read at the start: the same value again is no change.
void RefuseChange(ClientContext &context, const string &name, const string &wanted) {
	Value current;
	if (LookupSetting(context, "penstock_" + name, current) && current.ToString() == wanted) {
		return;
	}
	throw InvalidInputException("Setting \"penstock_%s\" is read once, when the first database of the process loads "
	                            "Penstock; it is %s now. Set the environment variable PENSTOCK_%s before that",
	                            name, current.ToString(), StringUtil::Upper(name));
}

struct OurSettings {
	static constexpr size_t ROWS_MAX = 96;

	static void OnSet(size_t row, ClientContext &context, SetScope, Value &value) {
		ps_setting_info info;
		ps_setting_describe(row, &info);
		if (value.IsNull()) {
			throw InvalidInputException("Setting \"penstock_%s\" cannot be NULL; RESET gives its default back",
			                            Text(info.name));
		}
		// What was read from the setting may be set again.
		auto text = RevealSetting(value.ToString());
		ps_error *error = nullptr;
		if (!ps_setting_check(info.name, Borrow(text), &error)) {
			auto message = Text(ps_error_message(error));
			ps_error_free(error);
			throw InvalidInputException("Setting \"penstock_%s\": %s", Text(info.name), message);
		}
		if (info.read_once) {
			RefuseChange(context, Text(info.name), text);
		}
		if (auto client = ClientIo::Find(context)) {
			client->Adopt(context, Text(info.name), text);
		}
		if (info.type == PS_URL) {
			value = Value(Passwords::Hide(info, text));
		}
	}
};

LogicalType TypeOf(ps_setting_type type) {
	switch (type) {
	case PS_BOOL:
		return LogicalType::BOOLEAN;
	case PS_NUMBER:
	case PS_MILLIS:
		return LogicalType::BIGINT; // signed, so that -1 meets our own message, which names the setting
	default:
		return LogicalType::VARCHAR; // sizes are texts, so that '64MiB' can be said
	}
}

//! The value that the environment gives a setting, or its default. A value that the table refuses is
//! an error that names the variable.
string InitialValue(const ps_setting_info &info) {
	auto name = Text(info.name);
	auto variable = "PENSTOCK_" + StringUtil::Upper(name);
	auto value = std::getenv(variable.c_str());
	if (!value || !*value) {
		return Text(info.default_value);
	}
	ps_error *error = nullptr;
	string text = value;
	if (!ps_setting_check(Borrow(name), Borrow(text), &error)) {
		auto why = Text(ps_error_message(error));
		ps_error_free(error);
		throw InvalidInputException("The environment variable %s: %s", variable, why);
	}
	return text;
}

} // namespace

string RevealSetting(const string &shown) {
	return Passwords::Reveal(shown);
}

vector<std::pair<string, Value>> InitialValues() {
	vector<std::pair<string, Value>> values;
	for (size_t index = 0; index < ps_setting_count(); index++) {
		ps_setting_info info;
		ps_setting_describe(index, &info);
		values.emplace_back(Text(info.name), Value(InitialValue(info)).DefaultCastAs(TypeOf(info.type)));
	}
	return values;
}

void RegisterSettings(DBConfig &config) {
	for (size_t row = 0; row < ps_setting_count(); row++) {
		ps_setting_info info;
		ps_setting_describe(row, &info);
		auto type = TypeOf(info.type);
		auto first = InitialValue(info);
		AddSetting<OurSettings>(config, row, "penstock_" + Text(info.name), Text(info.doc), type,
		                        Value(info.type == PS_URL ? Passwords::Hide(info, first) : first).DefaultCastAs(type));
	}
	RegisterTheirSettings(config);
}

} // namespace penstock
