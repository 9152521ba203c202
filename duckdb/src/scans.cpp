// What a plan tells of its scans, and a file system does not see.
//
// - Which files a scan will read: those that a statement names one by one, or a table format, are fetched ahead as
//   those of a glob are.
// - Which columns of Parquet files it reads from end to end: `scan_columns.cpp`.
// - Which rows it wants, where it filters: `scan_filters.cpp`.
// - Whether it may end before its files do: where every scan of files of ours lies below a LIMIT, and nothing in
//   between has to see all rows; or whoever takes the rows one by one may stop. What is fetched ahead of a scan that
//   ends is fetched in vain, so the engine fetches less.
#include "extension.hpp"

#include "known.hpp"
#include "options.hpp"
#include "pass.hpp"
#include "scan_columns.hpp"
#include "scan_filters.hpp"

#include "duckdb/common/multi_file/multi_file_reader.hpp"
#include "duckdb/common/multi_file/multi_file_states.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/planner/operator/logical_comparison_join.hpp"
#include "duckdb/planner/operator/logical_get.hpp"
#include "duckdb/planner/operator/logical_limit.hpp"

namespace penstock {

namespace {

//! More are not looked at: their names would take longer than the first of them save.
constexpr idx_t FILES_MAX = 10000;

class PhysicalEarlyEnd : public PhysicalPass {
public:
	PhysicalEarlyEnd(PhysicalPlan &plan, PhysicalOperator &child, shared_ptr<Engine> engine, bool takes_a_few_rows)
	    : PhysicalPass(plan, child, std::move(engine)), takes_a_few_rows(takes_a_few_rows) {
	}

	string GetName() const override {
		return "PENSTOCK_EARLY_END";
	}
	InsertionOrderPreservingMap<string> ParamsToString() const override {
		InsertionOrderPreservingMap<string> result;
		result["Penstock fetches ahead"] = "little";
		return result;
	}
	void Begin(ClientContext &context) override {
		auto client = ClientIo::Get(context, engine);
		client->Current()->EndsEarly();
		if (takes_a_few_rows) {
			client->TakesAFewRows(context);
		}
	}

private:
	bool takes_a_few_rows;
};

bool ReadsOurs(Engine &engine, const LogicalGet &get) {
	auto files = dynamic_cast<const MultiFileBindData *>(get.bind_data.get());
	if (!files) {
		return false;
	}
	if (files->initial_reader) {
		return engine.Serves(files->initial_reader->file.path);
	}
	try {
		auto &list = files->file_list;
		return list && !list->IsEmpty() && engine.Serves(list->GetFirstFile().path);
	} catch (std::exception &) { // NOLINT: a list that cannot be had is told by who reads it
		return false;
	}
}

//! Whether the files of a scan can be told without a listing.
bool NamesItsFiles(const LogicalGet &get, const MultiFileList &files) {
	if (!dynamic_cast<const LazyMultiFileList *>(&files)) {
		return true;
	}
	// A glob is followed from its own pages, and is not listed to its end before it is read.
	if (get.parameters.empty() || get.parameters[0].IsNull() ||
	    get.parameters[0].type() != LogicalType::LIST(LogicalType::VARCHAR)) {
		return false;
	}
	for (auto &name : ListValue::GetChildren(get.parameters[0])) {
		if (name.IsNull() || FileSystem::HasGlob(StringValue::Get(name))) {
			return false;
		}
	}
	return true;
}

//! Tells the engine which files a scan will read.
void Announce(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalGet &get) {
	auto scan = dynamic_cast<const MultiFileBindData *>(get.bind_data.get());
	if (!scan || !scan->file_list || !NamesItsFiles(get, *scan->file_list) || !ReadsOurs(*engine, get)) {
		return;
	}
	auto files = scan->file_list->GetAllFiles();
	if (files.size() < 2 || !engine->Serves(files.front().path)) {
		return;
	}
	auto query = ClientIo::Get(context, engine)->Current();
	optional_ptr<FileOpener> opener(ClientData::Get(context).file_opener.get());
	auto root = RootOf(files.front().path);
	auto options = query->OptionsOf(files.front().path, opener);
	vector<ps_str> paths;
	vector<Known> known;
	auto is_divided = IsDividedByScopes(opener, root);
	for (auto &file : files) {
		// DuckLake names rows in its catalog like a file.
		if (!engine->Serves(file.path)) {
			continue;
		}
		if (paths.size() == FILES_MAX || RootOf(file.path) != root) {
			break;
		}
		// What is fetched ahead with these options is for files of the same secret.
		if (is_divided && !(options == query->OptionsOf(file.path, opener))) {
			break;
		}
		paths.push_back(Borrow(file.path));
		known.emplace_back(file);
	}
	vector<ps_known> told;
	for (auto &file : known) {
		told.push_back(file.Get());
	}
	ps_error *error = nullptr;
	if (!ps_query_announce(query->handle, paths.data(), told.data(), paths.size(), options.Data(), options.Count(),
	                       &error)) {
		ps_error_free(error);
	}
}

void AnnounceAll(ClientContext &context, const shared_ptr<Engine> &engine, const LogicalOperator &op) {
	if (op.type == LogicalOperatorType::LOGICAL_GET) {
		try {
			Announce(context, engine, op.Cast<LogicalGet>());
		} catch (std::exception &) { // NOLINT: what fails here is told by the file's own opening
		}
	}
	for (auto &child : op.children) {
		AnnounceAll(context, engine, *child);
	}
}

//! Scans of files of ours below an operator: all, and those that may end early.
struct Counted {
	idx_t all = 0;
	idx_t ending = 0;

	bool MayEndEarly() const {
		return all > 0 && ending == all;
	}
};

//! Whether a scan is joined by the places of its rows. DuckDB reads for a large LIMIT only where its rows lie, and
//! then by a join the rows of these places, whose filter ends the second scan where the first one ended.
bool ReadsPlaces(const LogicalOperator &op) {
	if (op.type != LogicalOperatorType::LOGICAL_GET) {
		return op.children.size() == 1 && ReadsPlaces(*op.children[0]);
	}
	for (auto &column : op.Cast<LogicalGet>().GetColumnIds()) {
		if (column.GetPrimaryIndex() == MultiFileReader::COLUMN_IDENTIFIER_FILE_ROW_NUMBER) {
			return true;
		}
	}
	return false;
}

void Count(Engine &engine, const LogicalOperator &op, bool may_end, Counted &scans) {
	switch (op.type) {
	case LogicalOperatorType::LOGICAL_GET:
		if (ReadsOurs(engine, op.Cast<LogicalGet>())) {
			scans.all++;
			scans.ending += may_end;
		}
		may_end = false;
		break;
	case LogicalOperatorType::LOGICAL_LIMIT: {
		// A percentage is of all rows.
		auto kind = op.Cast<LogicalLimit>().limit_val.Type();
		may_end = may_end || kind == LimitNodeType::CONSTANT_VALUE || kind == LimitNodeType::EXPRESSION_VALUE;
		break;
	}
	case LogicalOperatorType::LOGICAL_PROJECTION:
	case LogicalOperatorType::LOGICAL_FILTER:
	case LogicalOperatorType::LOGICAL_UNNEST:
	case LogicalOperatorType::LOGICAL_UNION:
		// Rows pass one by one.
		break;
	case LogicalOperatorType::LOGICAL_COMPARISON_JOIN: {
		Counted places;
		Count(engine, *op.children[1], false, places);
		may_end = places.MayEndEarly() && op.Cast<LogicalComparisonJoin>().join_type == JoinType::SEMI &&
		          ReadsPlaces(*op.children[0]);
		Count(engine, *op.children[0], may_end, scans);
		scans.all += places.all;
		scans.ending += places.ending;
		return;
	}
	default:
		may_end = false;
	}
	for (auto &child : op.children) {
		Count(engine, *child, may_end, scans);
	}
}

void LookAtScans(OptimizerExtensionInput &input, unique_ptr<LogicalOperator> &plan) {
	auto engine = static_cast<EngineInfo &>(*input.info).engine;
	auto &root = RootOf(plan);
	AnnounceAll(input.context, engine, *root);
	TellColumns(input.context, engine, *root);
	TellFilters(engine, *root);
	Counted scans;
	Count(*engine, *root, false, scans);
	if (scans.MayEndEarly()) {
		auto is_little = ReadAheadDepth::EXISTS && TakesAFewRows(input.context, *engine, *root);
		auto make = [engine, is_little](PhysicalPlan &plan, PhysicalOperator &child) -> PhysicalOperator & {
			return plan.Make<PhysicalEarlyEnd>(child, engine, is_little);
		};
		ClientIo::Get(input.context, engine)->PutAbove(make);
		return;
	}
	// As if whoever takes the rows were a LIMIT.
	Counted passing;
	Count(*engine, *root, true, passing);
	if (passing.MayEndEarly()) {
		ClientIo::Get(input.context, engine)->Current()->RowsPass();
	}
}

} // namespace

void RegisterScans(DBConfig &config, const shared_ptr<Engine> &engine) {
	OptimizerExtension extension;
	extension.optimize_function = LookAtScans;
	extension.optimizer_info = make_shared_ptr<EngineInfo>(engine);
	OptimizerExtension::Register(config, std::move(extension));
}

} // namespace penstock
