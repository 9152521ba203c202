// What a table function without parameters shows.
#pragma once

#include "query.hpp"

namespace penstock {

struct Shown {
	vector<string> names;
	vector<LogicalType> types;
	vector<vector<Value>> rows;
};

//! When a table function is asked: for its columns only (binding, which PREPARE and EXPLAIN do too), or for its rows.
enum class Asked { COLUMNS, ROWS };

//! penstock_check(): what differs for whoever moves from httpfs, azure, aws and cache_httpfs.
Shown ShowCheck(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked);

} // namespace penstock
