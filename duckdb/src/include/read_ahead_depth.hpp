// How many parts of a scan DuckDB 2.0 fetches ahead itself.
#pragma once

#include "compat.hpp"

namespace penstock {

//! DuckDB's setting `read_ahead_depth`, of one connection.
class ReadAheadDepth {
public:
	//! DuckDB 1.5 fetches nothing ahead, and has no such setting.
	static constexpr bool EXISTS = PENSTOCK_DUCKDB_2;

	//! One, while a statement runs, unless the user has set it. By default DuckDB 2.0 plans all row groups of a file,
	//! has as many reads on their way as it has threads for them, and waits for them where a LIMIT has ended the scan.
	void Shorten(ClientContext &context);
	//! As it was before.
	void Restore(ClientContext &context);

private:
	bool is_short = false;
};

} // namespace penstock
