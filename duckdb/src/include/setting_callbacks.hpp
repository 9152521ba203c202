// DuckDB's callback of a setting is a plain function that does not know its setting: here is one for each row of a
// table.
#pragma once

#include "bridge.hpp"

#include <utility>

namespace penstock {

//! TABLE has `ROWS_MAX` and `OnSet(row, context, scope, value)`.
template <class TABLE>
class SettingCallbacks {
public:
	static set_option_callback_t Of(size_t row) {
		if (row >= TABLE::ROWS_MAX) {
			throw InternalException("Penstock has callbacks for %llu settings of a table, and more of these",
			                        TABLE::ROWS_MAX);
		}
		return Of(row, std::make_index_sequence<TABLE::ROWS_MAX>());
	}

private:
	template <size_t ROW>
	static void OnSet(ClientContext &context, SetScope scope, Value &value) {
		TABLE::OnSet(ROW, context, scope, value);
	}
	template <size_t... ROW>
	static set_option_callback_t Of(size_t row, std::index_sequence<ROW...>) {
		static constexpr set_option_callback_t CALLBACKS[] = {OnSet<ROW>...};
		return CALLBACKS[row];
	}
};

//! Registers the setting of a row, unless another extension has registered its name before.
template <class TABLE>
void AddSetting(DBConfig &config, size_t row, const string &name, const string &doc, const LogicalType &type,
                const Value &first) {
	config.AddExtensionOption(Name(name), doc, type, AsDefault(first), SettingCallbacks<TABLE>::Of(row));
}

} // namespace penstock
