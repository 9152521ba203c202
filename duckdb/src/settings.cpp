// The penstock_* settings, made from the engine's table; SET is checked by the table's own rules.
#include "extension.hpp"

#include "options.hpp"

#include <utility>

namespace penstock {

namespace {

//! DuckDB's callback is a plain function without the setting's name, so there is one per table row.
constexpr size_t CALLBACK_COUNT = 96;

template <size_t INDEX>
void OnSet(ClientContext &, SetScope, Value &value) {
	ps_setting_info info;
	ps_setting_describe(INDEX, &info);
	if (value.IsNull()) {
		throw InvalidInputException("Setting \"penstock_%s\" cannot be NULL; RESET gives its default back",
		                            Text(info.name));
	}
	auto text = value.ToString();
	ps_error *error = nullptr;
	Check(ps_setting_check(info.name, Borrow(text), &error), error);
}

template <size_t... INDEX>
set_option_callback_t CallbackAt(size_t wanted, std::index_sequence<INDEX...>) {
	static constexpr set_option_callback_t CALLBACKS[] = {OnSet<INDEX>...};
	return CALLBACKS[wanted];
}

LogicalType TypeOf(ps_setting_type type) {
	switch (type) {
	case PS_BOOL:
		return LogicalType::BOOLEAN;
	case PS_NUMBER:
	case PS_MILLIS:
		return LogicalType::UBIGINT;
	default:
		return LogicalType::VARCHAR; // sizes are texts, so that '64MiB' can be said
	}
}

} // namespace

void RegisterSettings(DBConfig &config) {
	auto count = ps_setting_count();
	if (count > CALLBACK_COUNT) {
		throw InternalException("Penstock has %llu settings, but callbacks for %llu", count, CALLBACK_COUNT);
	}
	for (size_t index = 0; index < count; index++) {
		ps_setting_info info;
		ps_setting_describe(index, &info);
		auto type = TypeOf(info.type);
		config.AddExtensionOption(Name("penstock_" + Text(info.name)), Text(info.doc), type,
		                          Value(Text(info.default_value)).DefaultCastAs(type),
		                          CallbackAt(index, std::make_index_sequence<CALLBACK_COUNT>()));
	}
	RegisterStoreSettings(config);
}

} // namespace penstock
