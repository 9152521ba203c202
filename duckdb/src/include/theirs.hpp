// The settings of httpfs, azure and aws, as the engine's table has them.
#pragma once

#include "bridge.hpp"

namespace penstock {

struct TheirSetting {
	string name;
	LogicalType type;
	bool has_default;
	//! NULL where there is none.
	Value default_value;
	//! option, shim, ours or fixed.
	string meaning;
	string doc;
	//! Of the environment: the first that is set gives the first value, unless they are credentials.
	vector<string> variables;
	bool hides_variables;
};

//! In the table's order.
const vector<TheirSetting> &TheirSettings();
//! Null where no row has the name.
optional_ptr<const TheirSetting> FindTheirSetting(const string &name);
//! Registers those that no other extension has registered before.
void RegisterTheirSettings(DBConfig &config);
//! What is done instead of following a value that somebody gave; empty where it is followed.
string InsteadOf(const string &name, const Value &value);

} // namespace penstock
