// Overlapping uploads for COPY and EXPORT: an operator above them that waits for every upload.
//
// DuckDB 1.5 closes the files of a COPY one after the other. In a statement whose plan has this
// operator, Close returns at once, and the operator waits where the statement can still fail: after
// its source is exhausted, before the commit. A plan may run many times (prepared statements), so the
// statement is armed each time its pipelines are built, not when it is planned.
#include "extension.hpp"

#include "options.hpp"

#include "duckdb/execution/physical_operator.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/parallel/meta_pipeline.hpp"
#include "duckdb/parallel/pipeline.hpp"
#include "duckdb/planner/operator/logical_copy_to_file.hpp"
#include "duckdb/planner/operator/logical_export.hpp"
#include "duckdb/planner/operator/logical_extension_operator.hpp"

namespace penstock {

namespace {

bool OverlapIsEnabled(ClientContext &context) {
	Value enabled;
	return LookupSetting(context, "penstock_upload_overlap_enabled", enabled) && !enabled.IsNull() &&
	       BooleanValue::Get(enabled.DefaultCastAs(LogicalType::BOOLEAN));
}

class PhysicalBarrier : public PhysicalOperator {
public:
	PhysicalBarrier(PhysicalPlan &plan, vector<LogicalType> types, idx_t cardinality, shared_ptr<Engine> engine,
	                bool names_are_unique)
	    : PhysicalOperator(plan, PhysicalOperatorType::EXTENSION, std::move(types), cardinality),
	      engine(std::move(engine)), names_are_unique(names_are_unique) {
	}

	string GetName() const override {
		return "PENSTOCK_BARRIER";
	}
	InsertionOrderPreservingMap<string> ParamsToString() const override {
		InsertionOrderPreservingMap<string> result;
		result["Penstock waits for"] = "uploads";
		return result;
	}

	void BuildPipelines(Pipeline &current, MetaPipeline &meta_pipeline) override {
		auto &context = current.GetClientContext();
		if (OverlapIsEnabled(context)) {
			ClientIo::Get(context, engine)->Current()->Arm(names_are_unique);
		}
		PhysicalOperator::BuildPipelines(current, meta_pipeline);
	}

	unique_ptr<OperatorState> GetOperatorState(ExecutionContext &) const override {
		return make_uniq<OperatorState>();
	}

	OperatorResultType Execute(ExecutionContext &, DataChunk &input, DataChunk &chunk, GlobalOperatorState &,
	                           OperatorState &) const override {
		chunk.Reference(input);
		return OperatorResultType::NEED_MORE_INPUT;
	}

	bool RequiresFinalExecute() const override {
		return true;
	}

	OperatorFinalizeResultType FinalExecute(ExecutionContext &context, DataChunk &, GlobalOperatorState &,
	                                        OperatorState &) const override {
		ClientIo::Get(context.client, engine)->Current()->Barrier();
		return OperatorFinalizeResultType::FINISHED;
	}

private:
	shared_ptr<Engine> engine;
	bool names_are_unique;
};

class LogicalBarrier : public LogicalExtensionOperator {
public:
	LogicalBarrier(unique_ptr<LogicalOperator> child, shared_ptr<Engine> engine, bool names_are_unique)
	    : engine(std::move(engine)), names_are_unique(names_are_unique) {
		children.push_back(std::move(child));
	}

	vector<ColumnBinding> GetColumnBindings() override {
		return children[0]->GetColumnBindings();
	}
	PhysicalOperator &CreatePlan(ClientContext &, PhysicalPlanGenerator &planner) override {
		auto &child = planner.CreatePlan(*children[0]);
		auto &barrier = planner.Make<PhysicalBarrier>(child.types, estimated_cardinality, engine, names_are_unique);
		barrier.children.push_back(child);
		return barrier;
	}
	idx_t EstimateCardinality(ClientContext &context) override {
		return children[0]->EstimateCardinality(context);
	}
	string GetExtensionName() const override {
		return "penstock";
	}
	bool SupportSerialization() const override {
		return false;
	}

protected:
	void ResolveTypes() override {
		types = children[0]->types;
	}

private:
	shared_ptr<Engine> engine;
	bool names_are_unique;
};

struct BarrierInfo : public OptimizerExtensionInfo {
	explicit BarrierInfo(shared_ptr<Engine> engine) : engine(std::move(engine)) {
	}
	shared_ptr<Engine> engine;
};

//! Wraps the COPY or EXPORT that is the statement itself; one inside another plan (a catalog's insert)
//! is left alone, because its owner may commit before our barrier would run.
void AddBarrier(OptimizerExtensionInput &input, unique_ptr<LogicalOperator> &plan) {
	auto *root = &plan;
	while (((*root)->type == LogicalOperatorType::LOGICAL_EXPLAIN ||
	        (*root)->type == LogicalOperatorType::LOGICAL_PREPARE) &&
	       !(*root)->children.empty()) {
		root = &(*root)->children[0];
	}
	auto &info = static_cast<BarrierInfo &>(*input.info);
	bool names_are_unique = false;
	if ((*root)->type == LogicalOperatorType::LOGICAL_COPY_TO_FILE) {
		auto &copy = (*root)->Cast<LogicalCopyToFile>();
		if (!info.engine->Serves(copy.file_path)) {
			return;
		}
		// Objects appear whole, so there is nothing to hide behind a temporary name.
		copy.use_tmp_file = false;
		names_are_unique =
		    copy.overwrite_mode == CopyOverwriteMode::COPY_APPEND && copy.filename_pattern.HasUUID();
	} else if ((*root)->type == LogicalOperatorType::LOGICAL_EXPORT) {
		if (!info.engine->Serves((*root)->Cast<LogicalExport>().copy_info->file_path)) {
			return;
		}
	} else {
		return;
	}
	auto cardinality = (*root)->estimated_cardinality;
	auto barrier = make_uniq<LogicalBarrier>(std::move(*root), info.engine, names_are_unique);
	barrier->SetEstimatedCardinality(cardinality);
	barrier->ResolveOperatorTypes();
	*root = std::move(barrier);
}

} // namespace

void RegisterBarrier(DBConfig &config, const shared_ptr<Engine> &engine) {
	OptimizerExtension extension;
	extension.optimize_function = AddBarrier;
	extension.optimizer_info = make_shared_ptr<BarrierInfo>(engine);
	OptimizerExtension::Register(config, std::move(extension));
}

} // namespace penstock
