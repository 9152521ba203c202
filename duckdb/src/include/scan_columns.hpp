// Which columns of Parquet files a plan reads from end to end.
#pragma once

#include "bridge.hpp"

#include "duckdb/planner/logical_operator.hpp"

namespace penstock {

//! Tells the engine of each scan of a Parquet file of ours that reads all of its row groups, and for which columns.
void TellColumns(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalOperator &plan);

} // namespace penstock
