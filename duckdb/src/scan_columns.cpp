// Which columns of Parquet files a plan reads from end to end.
//
// A file system learns it from the first row groups, which are then read one column after the other. Where nothing
// leaves out rows before they are read, and nothing can end the scan, the plan says it before the first read.
#include "scan_columns.hpp"

#include "options.hpp"
#include "query.hpp"

#include "duckdb/common/multi_file/multi_file_reader.hpp"
#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/planner/operator/logical_comparison_join.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_limit.hpp"

namespace penstock {

namespace {

//! Adds the number of Parquet columns that a column of a file consists of; false where its type does not say so.
bool CountLeaves(const LogicalType &type, uint32_t &leaves) {
	switch (type.id()) {
	case LogicalTypeId::STRUCT:
		for (auto &child : StructType::GetChildTypes(type)) {
			if (!CountLeaves(child.second, leaves)) {
				return false;
			}
		}
		return true;
	case LogicalTypeId::LIST:
		return CountLeaves(ListType::GetChildType(type), leaves);
	case LogicalTypeId::MAP:
		return CountLeaves(MapType::KeyType(type), leaves) && CountLeaves(MapType::ValueType(type), leaves);
	case LogicalTypeId::VARIANT:
	case LogicalTypeId::UNION:
	case LogicalTypeId::ARRAY:
		return false;
	default:
		leaves++;
		return true;
	}
}

} // namespace

NameMap<Leaves> LeavesOf(const MultiFileBindData &scan) {
	NameMap<Leaves> result;
	uint32_t next = 0;
	for (auto &column : scan.initial_reader->GetColumns()) {
		Leaves leaves {next, 0};
		if (!CountLeaves(column.type, leaves.count)) {
			break;
		}
		next += leaves.count;
		result[column.name] = leaves;
	}
	for (auto &partition : scan.reader_bind.hive_partitioning_indexes) {
		result.erase(Name(partition.value));
	}
	return result;
}

namespace {

//! Whether a scan leaves out row groups or files, or may.
bool LeavesOut(const LogicalGet &get) {
	return HasTableFilters(get) || get.dynamic_filters || get.extra_info.sample_options ||
	       !get.extra_info.file_filters.empty() || get.row_group_order_options || ReadsPartitions(get);
}

//! The Parquet columns that a scan reads, as far as they are known.
vector<uint32_t> ColumnsOf(const LogicalGet &get, const MultiFileBindData &scan) {
	vector<uint32_t> result;
	auto leaves = LeavesOf(scan);
	for (auto &column : get.GetColumnIds()) {
		if (column.IsVirtualColumn() || column.HasChildren() || column.GetPrimaryIndex() >= get.names.size()) {
			continue;
		}
		auto found = leaves.find(get.names[column.GetPrimaryIndex()]);
		if (found == leaves.end()) {
			continue;
		}
		for (uint32_t leaf = 0; leaf < found->second.count; leaf++) {
			result.push_back(found->second.first + leaf);
		}
	}
	return result;
}

} // namespace

bool IsParquet(const LogicalGet &get) {
	auto &name = FunctionName(get);
	return name == "read_parquet" || name == "parquet_scan";
}

namespace {

string DirectoryOf(const string &path) {
	return path.substr(0, path.rfind('/') + 1);
}

} // namespace

bool FirstOf(const MultiFileBindData &scan, string &path) {
	if (scan.initial_reader) {
		path = scan.initial_reader->file.path;
	} else if (scan.file_list && !scan.file_list->IsEmpty()) {
		path = scan.file_list->GetFirstFile().path;
	} else {
		return false;
	}
	return true;
}

namespace {

bool IsOfOneFile(const MultiFileBindData &scan) {
	return scan.file_list && scan.file_list->GetExpandResult() == FileExpandResult::SINGLE_FILE;
}

} // namespace

void Scans::Add(const LogicalOperator &op) {
	if (op.type == LogicalOperatorType::LOGICAL_GET) {
		auto scan = dynamic_cast<const MultiFileBindData *>(op.Cast<LogicalGet>().bind_data.get());
		string path;
		if (scan && FirstOf(*scan, path)) {
			scans.emplace_back(path, *scan);
		}
	}
	for (auto &child : op.children) {
		Add(*child);
	}
}

idx_t Scans::OfSameFiles(const MultiFileBindData &scan) const {
	string path;
	if (!FirstOf(scan, path)) {
		return 0;
	}
	idx_t nearby = 0;
	idx_t of_path = 0;
	for (auto &other : scans) {
		nearby += DirectoryOf(other.first) == DirectoryOf(path);
		of_path += other.first == path;
	}
	// A glob may match what another scan of its directory names.
	for (auto &other : scans) {
		if (nearby > of_path && DirectoryOf(other.first) == DirectoryOf(path) && !IsOfOneFile(other.second)) {
			return nearby;
		}
	}
	return of_path;
}

namespace {

//! The bind data of a scan of Parquet files of ours whose first one is open.
optional_ptr<const MultiFileBindData> OurScan(Engine &engine, const LogicalGet &get) {
	auto scan = dynamic_cast<const MultiFileBindData *>(get.bind_data.get());
	if (!IsParquet(get) || !scan || !scan->initial_reader || !engine.Serves(scan->initial_reader->file.path)) {
		return nullptr;
	}
	return scan;
}

void Tell(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalGet &get, const Scans &scans) {
	auto scan = OurScan(*engine, get);
	if (!scan || LeavesOut(get)) {
		return;
	}
	// Of two scans of the same files nobody knows which one a read is of.
	auto &path = scan->initial_reader->file.path;
	auto columns = ColumnsOf(get, *scan);
	if (columns.empty() || scans.OfSameFiles(*scan) > 1) {
		return;
	}
	auto query = ClientIo::Get(context, engine)->Current();
	optional_ptr<FileOpener> opener(ClientData::Get(context).file_opener.get());
	auto options = query->OptionsOf(path, opener);
	Value widens;
	LookupSetting(context, "enable_external_file_cache", widens);
	ps_error *error = nullptr;
	if (!ps_query_will_read(query->handle, Borrow(path), options.Data(), options.Count(), columns.data(),
	                        columns.size(), !widens.IsNull() && widens.GetValue<bool>(), &error)) {
		ps_error_free(error);
	}
}

//! Whether a join reads all of its left side even where its right side is empty.
bool ReadsAllOfItsLeft(const LogicalComparisonJoin &join) {
	switch (join.join_type) {
	case JoinType::LEFT:
	case JoinType::OUTER:
	case JoinType::ANTI:
	case JoinType::MARK:
	case JoinType::SINGLE:
		return true;
	default:
		return false;
	}
}

//! `is_run_out`: the operator is asked for all of its rows. Whoever takes the rows of a statement may stop at any.
void TellOf(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalOperator &op,
            const Scans &scans, bool is_run_out) {
	switch (op.type) {
	case LogicalOperatorType::LOGICAL_GET:
		if (is_run_out) {
			Tell(context, engine, op.Cast<LogicalGet>(), scans);
		}
		return;
	case LogicalOperatorType::LOGICAL_COMPARISON_JOIN:
		TellOf(context, engine, *op.children[0], scans,
		       is_run_out && ReadsAllOfItsLeft(op.Cast<LogicalComparisonJoin>()));
		TellOf(context, engine, *op.children[1], scans, true);
		return;
	case LogicalOperatorType::LOGICAL_MATERIALIZED_CTE:
		TellOf(context, engine, *op.children[0], scans, true);
		TellOf(context, engine, *op.children[1], scans, is_run_out);
		return;
	case LogicalOperatorType::LOGICAL_AGGREGATE_AND_GROUP_BY:
	case LogicalOperatorType::LOGICAL_ORDER_BY:
	case LogicalOperatorType::LOGICAL_DISTINCT:
	case LogicalOperatorType::LOGICAL_COPY_TO_FILE:
	case LogicalOperatorType::LOGICAL_INSERT:
	case LogicalOperatorType::LOGICAL_CREATE_TABLE:
		is_run_out = true;
		break;
	case LogicalOperatorType::LOGICAL_PROJECTION:
	case LogicalOperatorType::LOGICAL_FILTER:
	case LogicalOperatorType::LOGICAL_WINDOW:
	case LogicalOperatorType::LOGICAL_UNNEST:
	case LogicalOperatorType::LOGICAL_UNION:
	case LogicalOperatorType::LOGICAL_EXPLAIN:
	case LogicalOperatorType::LOGICAL_EXTENSION_OPERATOR:
		break;
	default:
		// It may end before its input does, or leave out some of it.
		is_run_out = false;
	}
	for (auto &child : op.children) {
		TellOf(context, engine, *child, scans, is_run_out);
	}
}

//! The first row group of nearly any file has as many rows.
bool IsShort(ClientContext &context, LogicalLimit &limit) {
	return limit.limit_val.Type() == LimitNodeType::CONSTANT_VALUE && limit.offset_val.Type() == LimitNodeType::UNSET &&
	       limit.EstimateCardinality(context) <= STANDARD_VECTOR_SIZE;
}

} // namespace

bool TakesAFewRows(ClientContext &context, Engine &engine, LogicalOperator &op, bool is_limited) {
	switch (op.type) {
	case LogicalOperatorType::LOGICAL_GET: {
		auto &get = op.Cast<LogicalGet>();
		auto scan = OurScan(engine, get);
		return is_limited && scan && IsOfOneFile(*scan) && !LeavesOut(get);
	}
	case LogicalOperatorType::LOGICAL_LIMIT:
		is_limited = is_limited || IsShort(context, op.Cast<LogicalLimit>());
		break;
	case LogicalOperatorType::LOGICAL_PROJECTION:
		break;
	default:
		is_limited = false;
	}
	return op.children.size() == 1 && TakesAFewRows(context, engine, *op.children[0], is_limited);
}

void TellColumns(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalOperator &plan) {
	try {
		TellOf(context, engine, plan, Scans(plan), false);
	} catch (std::exception &) { // NOLINT: what fails here is told by the file's own opening
	}
}

} // namespace penstock
