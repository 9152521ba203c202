// What the rows of a Parquet scan have to be, told to the engine when the scan begins.
//
// A scan is told of its filters with its global state: those of the plan, and those that joins made of their other
// side by then. The boundary of a Top-N moves while it runs, and is looked at with each read. DuckDB compares these
// filters with the statistics of each row group; the engine does the same with those of row groups that lie ahead.
#include "scan_filters.hpp"

#include "options.hpp"
#include "scan_columns.hpp"

#include "duckdb/common/multi_file/multi_file_reader.hpp"
#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/planner/filter/conjunction_filter.hpp"
#include "duckdb/planner/filter/constant_filter.hpp"
#include "duckdb/planner/filter/in_filter.hpp"
#include "duckdb/planner/filter/optional_filter.hpp"
#include "duckdb/planner/operator/logical_comparison_join.hpp"
#include "duckdb/planner/operator/logical_get.hpp"

#include <cmath>

namespace penstock {

#if PENSTOCK_DUCKDB_2

void TellFilters(const shared_ptr<Engine> &, LogicalOperator &) {
	// It fetches ahead itself, what it does not skip.
}

void MovingBound::Follow(const Query &) {
}

#else

namespace {

enum Order : uint32_t { SIGNED = 0, UNSIGNED = 1, FLOATING = 2, TEXT = 3, MICROS = 4, ROWS = 5 };

//! More values say little.
constexpr idx_t RANGES_MAX = 4096;
//! DuckDB keeps so much of the least and the greatest text of a row group, but for plain comparisons.
constexpr idx_t TEXT_PREFIX_BYTES = 8;

bool OrderOf(const LogicalType &type, uint32_t &order) {
	switch (type.id()) {
	case LogicalTypeId::TINYINT:
	case LogicalTypeId::SMALLINT:
	case LogicalTypeId::INTEGER:
	case LogicalTypeId::BIGINT:
	case LogicalTypeId::DATE:
		order = SIGNED;
		return true;
	case LogicalTypeId::UTINYINT:
	case LogicalTypeId::USMALLINT:
	case LogicalTypeId::UINTEGER:
	case LogicalTypeId::UBIGINT:
		order = UNSIGNED;
		return true;
	case LogicalTypeId::FLOAT:
	case LogicalTypeId::DOUBLE:
		order = FLOATING;
		return true;
	case LogicalTypeId::VARCHAR:
		order = TEXT;
		return true;
	case LogicalTypeId::TIMESTAMP:
	case LogicalTypeId::TIMESTAMP_TZ:
		order = MICROS;
		return true;
	default:
		return false;
	}
}

template <class T>
string BytesOf(T value) {
	return string(const_char_ptr_cast(&value), sizeof(value));
}

//! A value as the engine takes it; false for one that has no place in the order.
bool Encode(const Value &value, string &bytes) {
	if (value.IsNull()) {
		return false;
	}
	switch (value.type().InternalType()) {
	case PhysicalType::INT8:
		bytes = BytesOf(int64_t(value.GetValueUnsafe<int8_t>()));
		return true;
	case PhysicalType::INT16:
		bytes = BytesOf(int64_t(value.GetValueUnsafe<int16_t>()));
		return true;
	case PhysicalType::INT32:
		bytes = BytesOf(int64_t(value.GetValueUnsafe<int32_t>()));
		return true;
	case PhysicalType::INT64:
		bytes = BytesOf(value.GetValueUnsafe<int64_t>());
		return true;
	case PhysicalType::UINT8:
		bytes = BytesOf(uint64_t(value.GetValueUnsafe<uint8_t>()));
		return true;
	case PhysicalType::UINT16:
		bytes = BytesOf(uint64_t(value.GetValueUnsafe<uint16_t>()));
		return true;
	case PhysicalType::UINT32:
		bytes = BytesOf(uint64_t(value.GetValueUnsafe<uint32_t>()));
		return true;
	case PhysicalType::UINT64:
		bytes = BytesOf(value.GetValueUnsafe<uint64_t>());
		return true;
	case PhysicalType::FLOAT:
		bytes = BytesOf(double(value.GetValueUnsafe<float>()));
		return !std::isnan(value.GetValueUnsafe<float>());
	case PhysicalType::DOUBLE:
		bytes = BytesOf(value.GetValueUnsafe<double>());
		return !std::isnan(value.GetValueUnsafe<double>());
	case PhysicalType::VARCHAR:
		bytes = StringValue::Get(value);
		return true;
	default:
		return false;
	}
}

template <class T>
T At(const string &bytes) {
	return duckdb::Load<T>(const_data_ptr_cast(bytes.data()));
}

//! Of a comparison that excludes its value, the next one to it, where there is one.
void Exclude(ExpressionType comparison, uint32_t order, string &least, string &greatest) {
	auto is_strict =
	    comparison == ExpressionType::COMPARE_GREATERTHAN || comparison == ExpressionType::COMPARE_LESSTHAN;
	if (!is_strict) {
		return;
	}
	if (order == UNSIGNED) {
		auto at = At<uint64_t>(least);
		least = BytesOf(at + (at < NumericLimits<uint64_t>::Maximum() ? 1 : 0));
		greatest = BytesOf(at - (at > 0 ? 1 : 0));
	} else if (order == FLOATING) {
		auto at = At<double>(least);
		least = BytesOf(std::nextafter(at, HUGE_VAL));
		greatest = BytesOf(std::nextafter(at, -HUGE_VAL));
	} else if (order != TEXT) {
		auto at = At<int64_t>(least);
		least = BytesOf(at + (at < NumericLimits<int64_t>::Maximum() ? 1 : 0));
		greatest = BytesOf(at - (at > NumericLimits<int64_t>::Minimum() ? 1 : 0));
	}
}

//! The values that a comparison lets pass. Of texts its own value too: DuckDB rules out a little more.
bool RangeOf(ExpressionType comparison, const Value &value, uint32_t order, bool is_whole, ValueRange &range) {
	string least;
	uint32_t own;
	// A filter that came through a cast may be of another type.
	if (!OrderOf(value.type(), own) || own != (order == ROWS ? SIGNED : order) || !Encode(value, least)) {
		return false;
	}
	string greatest = least;
	Exclude(comparison, order, least, greatest);
	if (value.type().InternalType() == PhysicalType::VARCHAR && !is_whole) {
		least = least.substr(0, TEXT_PREFIX_BYTES);
		greatest = greatest.substr(0, TEXT_PREFIX_BYTES) + string(TEXT_PREFIX_BYTES, '\xff');
	}
	switch (comparison) {
	case ExpressionType::COMPARE_EQUAL:
	case ExpressionType::COMPARE_GREATERTHAN:
	case ExpressionType::COMPARE_GREATERTHANOREQUALTO:
		range.has_min = true;
		range.min = least;
		break;
	default:
		break;
	}
	switch (comparison) {
	case ExpressionType::COMPARE_EQUAL:
	case ExpressionType::COMPARE_LESSTHAN:
	case ExpressionType::COMPARE_LESSTHANOREQUALTO:
		range.has_max = true;
		range.max = greatest;
		break;
	default:
		break;
	}
	return range.has_min || range.has_max;
}

//! What lies in both; it may be empty, which nothing is made of. A bound of one side each, as BETWEEN has them.
bool Narrow(ValueRange &range, const ValueRange &other) {
	if ((range.has_min && other.has_min) || (range.has_max && other.has_max)) {
		return false;
	}
	if (other.has_min) {
		range.has_min = true;
		range.min = other.min;
	}
	if (other.has_max) {
		range.has_max = true;
		range.max = other.max;
	}
	return true;
}

//! Adds the values that a filter lets pass, any of them; false where it does not say.
bool AnyOf(const TableFilter &filter, uint32_t order, bool is_whole, vector<ValueRange> &any) {
	switch (filter.filter_type) {
	case TableFilterType::CONSTANT_COMPARISON: {
		auto &constant = filter.Cast<ConstantFilter>();
		any.emplace_back();
		return RangeOf(constant.comparison_type, constant.constant, order, is_whole, any.back());
	}
	case TableFilterType::IN_FILTER:
		for (auto &value : filter.Cast<InFilter>().values) {
			any.emplace_back();
			if (any.size() > RANGES_MAX ||
			    !RangeOf(ExpressionType::COMPARE_EQUAL, value, order, false, any.back())) {
				return false;
			}
		}
		return true;
	case TableFilterType::CONJUNCTION_OR:
		for (auto &child : filter.Cast<ConjunctionOrFilter>().child_filters) {
			if (!AnyOf(*child, order, false, any)) {
				return false;
			}
		}
		return true;
	case TableFilterType::CONJUNCTION_AND: {
		ValueRange both;
		for (auto &child : filter.Cast<ConjunctionAndFilter>().child_filters) {
			vector<ValueRange> one;
			if (child->filter_type != TableFilterType::CONSTANT_COMPARISON || !AnyOf(*child, order, false, one) ||
			    !Narrow(both, one.front())) {
				return false;
			}
		}
		any.push_back(both);
		return both.has_min || both.has_max;
	}
	case TableFilterType::OPTIONAL_FILTER: {
		// One that stands for a Bloom filter says nothing of a range.
		auto &child = filter.Cast<OptionalFilter>().child_filter;
		return child && AnyOf(*child, order, false, any);
	}
	default:
		return false;
	}
}

//! All that is told of a scan.
struct Filters {
	vector<ColumnFilter> fixed;
	ColumnFilter moving;
	shared_ptr<DynamicFilterData> bound;

	//! Adds what a filter says: each part of an AND by itself.
	void Add(const TableFilter &filter, ColumnFilter column, bool is_whole) {
		switch (filter.filter_type) {
		case TableFilterType::CONJUNCTION_AND:
			for (auto &child : filter.Cast<ConjunctionAndFilter>().child_filters) {
				Add(*child, column, is_whole);
			}
			return;
		case TableFilterType::OPTIONAL_FILTER:
			if (auto &child = filter.Cast<OptionalFilter>().child_filter) {
				Add(*child, std::move(column), false);
			}
			return;
		case TableFilterType::DYNAMIC_FILTER:
			bound = filter.Cast<DynamicFilter>().filter_data;
			moving = std::move(column);
			return;
		default:
			if (AnyOf(filter, column.order, is_whole, column.ranges)) {
				fixed.push_back(std::move(column));
			}
		}
	}
};

//! Where a column of the scan lies in its files; false for one that is none of theirs, or not known.
bool Locate(const MultiFileBindData &scan, const NameMap<Leaves> &leaves, const ColumnIndex &index,
            ColumnFilter &column) {
	if (index.GetPrimaryIndex() == MultiFileReader::COLUMN_IDENTIFIER_FILE_ROW_NUMBER) {
		column.order = ROWS;
		return true;
	}
	if (index.IsVirtualColumn() || index.HasChildren() || index.GetPrimaryIndex() >= scan.names.size()) {
		return false;
	}
	auto found = leaves.find(scan.names[index.GetPrimaryIndex()]);
	if (found == leaves.end() || found->second.count != 1) {
		return false;
	}
	column.column = found->second.first;
	return OrderOf(scan.types[index.GetPrimaryIndex()], column.order);
}

//! A filter with the view of its values that the engine takes.
class Lent {
public:
	explicit Lent(const ColumnFilter &filter) {
		for (auto &range : filter.ranges) {
			ranges.push_back(ps_range {range.has_min, Borrow(range.min), range.has_max, Borrow(range.max)});
		}
		lent = ps_filter {filter.column, filter.order, ranges.data(), ranges.size()};
	}
	Lent(Lent &&) = default;

	ps_filter lent;

private:
	vector<ps_range> ranges;
};

void Tell(ClientContext &context, TableFunctionInitInput &input) {
	auto scan = dynamic_cast<const MultiFileBindData *>(input.bind_data.get());
	auto client = ClientIo::Find(context);
	string path;
	if (!scan || !client || !input.filters || !FirstOf(*scan, path)) {
		return;
	}
	// The second scan of a Top-N's files has opened none: it filters by the places of rows.
	auto leaves = scan->initial_reader ? LeavesOf(*scan) : NameMap<Leaves>();
	Filters filters;
	for (auto &entry : input.filters->filters) {
		ColumnFilter column;
		if (entry.first < input.column_indexes.size() &&
		    Locate(*scan, leaves, input.column_indexes[entry.first], column)) {
			filters.Add(*entry.second, std::move(column), true);
		}
	}
	auto query = client->Current();
	auto options = query->OptionsOf(path, optional_ptr<FileOpener>(ClientData::Get(context).file_opener.get()));
	vector<Lent> lent;
	vector<ps_filter> fixed;
	for (auto &filter : filters.fixed) {
		lent.emplace_back(filter);
		fixed.push_back(lent.back().lent);
	}
	Lent moving(filters.moving);
	ps_error *error = nullptr;
	if (!ps_query_will_filter(query->handle, Borrow(path), options.Data(), options.Count(), fixed.data(), fixed.size(),
	                          filters.bound ? &moving.lent : nullptr, &error)) {
		ps_error_free(error);
		return;
	}
	shared_ptr<MovingBound> bound;
	if (filters.bound) {
		bound = make_shared_ptr<MovingBound>(path, std::move(options), std::move(filters.moving), filters.bound);
	}
	query->Follow(path, std::move(bound));
}

//! The one that all scans of Parquet files have.
std::atomic<table_function_init_global_t> parquet_init {nullptr};

unique_ptr<GlobalTableFunctionState> InitScan(ClientContext &context, TableFunctionInitInput &input) {
	try {
		Tell(context, input);
	} catch (std::exception &) { // NOLINT: what fails here is told by the reading
	}
	return parquet_init.load()(context, input);
}

void Hook(LogicalGet &get) {
	auto filters = !get.table_filters.filters.empty() || get.dynamic_filters;
	if (!filters || !get.function.init_global || get.function.init_global == InitScan) {
		return;
	}
	table_function_init_global_t known = nullptr;
	if (parquet_init.compare_exchange_strong(known, get.function.init_global) || known == get.function.init_global) {
		get.function.init_global = InitScan;
	}
}

//! The scan at the end of operators of one child each.
optional_ptr<LogicalGet> ScanBelow(LogicalOperator &op) {
	if (op.type == LogicalOperatorType::LOGICAL_GET) {
		return &op.Cast<LogicalGet>();
	}
	return op.children.size() == 1 ? ScanBelow(*op.children[0]) : nullptr;
}

//! Of two scans of the same files nobody knows which one a read is of, but where one follows the other: DuckDB reads
//! first where the rows of a Top-N lie, and then by a join with these places the rows.
bool FollowEachOther(LogicalOperator &op) {
	if (op.type != LogicalOperatorType::LOGICAL_COMPARISON_JOIN ||
	    op.Cast<LogicalComparisonJoin>().join_type != JoinType::SEMI) {
		return false;
	}
	auto rows = ScanBelow(*op.children[0]);
	auto places = ScanBelow(*op.children[1]);
	if (!rows || !places || !rows->dynamic_filters) {
		return false;
	}
	for (auto &column : rows->GetColumnIds()) {
		if (column.GetPrimaryIndex() == MultiFileReader::COLUMN_IDENTIFIER_FILE_ROW_NUMBER) {
			return true;
		}
	}
	return false;
}

//! `count`: so many of the same files follow each other here.
void HookAll(Engine &engine, LogicalOperator &op, const Scans &scans, idx_t count) {
	if (op.type == LogicalOperatorType::LOGICAL_GET) {
		auto &get = op.Cast<LogicalGet>();
		auto scan = dynamic_cast<const MultiFileBindData *>(get.bind_data.get());
		string path;
		if (scan && IsParquet(get) && FirstOf(*scan, path) && engine.Serves(path) &&
		    scans.OfSameFiles(*scan) <= count) {
			Hook(get);
		}
	}
	if (FollowEachOther(op)) {
		count = 2;
	} else if (op.children.size() > 1) {
		count = 1;
	}
	for (auto &child : op.children) {
		HookAll(engine, *child, scans, count);
	}
}

} // namespace

void TellFilters(const shared_ptr<Engine> &engine, LogicalOperator &plan) {
	try {
		HookAll(*engine, plan, Scans(plan), 1);
	} catch (std::exception &) { // NOLINT: what fails here is told by the file's own opening
	}
}

void MovingBound::Follow(const Query &query) {
	lock_guard<mutex> guard(lock);
	ValueRange range;
	{
		lock_guard<mutex> data_guard(data->lock);
		if (!data->initialized || !data->filter) {
			return;
		}
		auto &filter = *data->filter;
		if (!told.IsNull() && Value::NotDistinctFrom(told, filter.constant)) {
			return;
		}
		told = filter.constant;
		if (!RangeOf(filter.comparison_type, filter.constant, column.order, false, range)) {
			return;
		}
	}
	column.ranges = {range};
	Lent bound(column);
	ps_error *error = nullptr;
	if (!ps_query_bound_moved(query.handle, Borrow(path), options.Data(), options.Count(), &bound.lent, &error)) {
		ps_error_free(error);
	}
}

#endif

} // namespace penstock
