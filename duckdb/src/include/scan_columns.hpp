// Which columns of Parquet files a plan reads from end to end.
#pragma once

#include "bridge.hpp"
#include "query.hpp"

#include "duckdb/planner/logical_operator.hpp"

namespace duckdb {
struct MultiFileBindData;
class LogicalGet;
} // namespace duckdb

namespace penstock {

//! Tells the engine of each scan of a Parquet file of ours that reads all of its row groups, and for which columns.
void TellColumns(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalOperator &plan);

//! Whether a plan takes a few rows of one Parquet file of ours, and reads nothing else: `FROM 's3://…' LIMIT 10`.
//! `is_limited`: a LIMIT above it takes no more.
bool TakesAFewRows(ClientContext &context, Engine &engine, LogicalOperator &plan, bool is_limited = false);

//! Where a column of a file stands among its Parquet columns.
struct Leaves {
	uint32_t first;
	uint32_t count;
};
//! Of all columns, up to the first one of which that is not known.
NameMap<Leaves> LeavesOf(const MultiFileBindData &scan);

//! Whether a scan is one of Parquet files.
bool IsParquet(const LogicalGet &get);
//! The first file of a scan; false for none.
bool FirstOf(const MultiFileBindData &scan, string &path);

//! The scans of a plan, by their first file.
class Scans {
public:
	explicit Scans(const LogicalOperator &plan) {
		Add(plan);
	}
	//! How many of them may read files that this one reads, with it.
	idx_t OfSameFiles(const MultiFileBindData &scan) const;

private:
	void Add(const LogicalOperator &op);

	vector<std::pair<string, reference<const MultiFileBindData>>> scans;
};

} // namespace penstock
