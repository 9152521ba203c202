// What the rows of a Parquet scan have to be: the row groups that DuckDB skips by their statistics follow from it.
#pragma once

#include "query.hpp"

#include "duckdb/planner/filter/dynamic_filter.hpp"
#include "duckdb/planner/logical_operator.hpp"

namespace penstock {

//! Has each scan of Parquet files of ours that filters tell its filters when it begins.
void TellFilters(const shared_ptr<Engine> &engine, LogicalOperator &plan);

//! The values of a column that rows must have: eight bytes each, or those of a text.
struct ValueRange {
	bool has_min = false;
	string min;
	bool has_max = false;
	string max;
};

//! A filter as the engine takes it.
struct ColumnFilter {
	uint32_t column = 0;
	uint32_t order = 0;
	vector<ValueRange> ranges;
};

//! The boundary of a Top-N, which moves while the scan below it reads.
class MovingBound {
public:
	MovingBound(string path, Pairs options, ColumnFilter column, shared_ptr<DynamicFilterData> data)
	    : path(std::move(path)), options(std::move(options)), column(std::move(column)), data(std::move(data)) {
	}
	//! Tells the engine where it is now, if it moved.
	void Follow(const Query &query);

private:
	const string path;
	const Pairs options;
	mutex lock;
	ColumnFilter column;
	Value told;
	const shared_ptr<DynamicFilterData> data;
};

} // namespace penstock
