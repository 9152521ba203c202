#include "read_ahead_depth.hpp"

#include "duckdb/main/client_config.hpp"
#include "duckdb/main/settings.hpp"

namespace penstock {

#if PENSTOCK_DUCKDB_2
void ReadAheadDepth::Shorten(ClientContext &context) {
	auto &own = ClientConfig::GetConfig(context).user_settings;
	Value global;
	if (own.IsSet(ReadAheadDepthSetting::SettingIndex) ||
	    !LookupSetting(context, ReadAheadDepthSetting::Name, global) || global.GetValue<int64_t>() != -1) {
		return;
	}
	is_short = true;
	own.SetUserSetting(ReadAheadDepthSetting::SettingIndex, Value::BIGINT(1));
}

void ReadAheadDepth::Restore(ClientContext &context) {
	if (is_short) {
		is_short = false;
		ClientConfig::GetConfig(context).user_settings.ClearSetting(ReadAheadDepthSetting::SettingIndex);
	}
}
#else
void ReadAheadDepth::Shorten(ClientContext &) {
}

void ReadAheadDepth::Restore(ClientContext &) {
}
#endif

} // namespace penstock
