// Overlapping uploads for COPY and EXPORT: an operator above them that waits for every upload.
//
// DuckDB 1.5 closes the files of a COPY one after the other. In a statement whose plan has this
// operator, Close returns at once, and the operator waits where the statement can still fail: after
// its source is exhausted, before the commit.
#include "extension.hpp"

#include "options.hpp"
#include "pass.hpp"
#include "volume_file_system.hpp"

#include "duckdb/planner/operator/logical_copy_to_file.hpp"
#include "duckdb/planner/operator/logical_export.hpp"

namespace penstock {

namespace {

bool OverlapIsEnabled(ClientContext &context) {
	Value enabled;
	return LookupSetting(context, "penstock_upload_overlap_enabled", enabled) && !enabled.IsNull() &&
	       BooleanValue::Get(enabled.DefaultCastAs(LogicalType::BOOLEAN));
}

class PhysicalBarrier : public PhysicalPass {
public:
	PhysicalBarrier(PhysicalPlan &plan, PhysicalOperator &child, shared_ptr<Engine> engine, bool names_are_unique)
	    : PhysicalPass(plan, child, std::move(engine)), names_are_unique(names_are_unique) {
	}

	string GetName() const override {
		return "PENSTOCK_BARRIER";
	}
	InsertionOrderPreservingMap<string> ParamsToString() const override {
		InsertionOrderPreservingMap<string> result;
		result["Penstock waits for"] = "uploads";
		return result;
	}

	void Begin(ClientContext &context) override {
		ClientIo::Get(context, engine)->Current()->RunsBehindBarrier(OverlapIsEnabled(context), names_are_unique);
	}
	// One thread waits.
	bool ParallelOperator() const override {
		return false;
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
	bool names_are_unique;
};

//! Wraps the COPY or EXPORT that is the statement itself; one inside another plan (a catalog's insert)
//! is left alone, because its owner may commit before our barrier would run.
void AddBarrier(OptimizerExtensionInput &input, unique_ptr<LogicalOperator> &plan) {
	auto &root = RootOf(plan);
	auto engine = static_cast<EngineInfo &>(*input.info).engine;
	auto client = ClientIo::Get(input.context, engine);
	// The first of our hooks. A plan inside this one (json_serialize_plan) has run them, too.
	client->PlanBegins();
	bool names_are_unique = false;
	if (root->type == LogicalOperatorType::LOGICAL_COPY_TO_FILE) {
		auto &copy = root->Cast<LogicalCopyToFile>();
		if (IsOnVolume(copy.file_path) && (copy.per_thread_output || copy.partition_output || copy.rotate)) {
			// DuckDB would remove a file of that name first, where it may overwrite.
			throw InvalidInputException("COPY cannot make a directory of \"%s\": a volume has none for files. Leave "
			                            "out PER_THREAD_OUTPUT, PARTITION_BY and FILE_SIZE_BYTES, or COPY to a file "
			                            "system",
			                            copy.file_path);
		}
		if (copy.use_tmp_file && IsOnVolume(copy.file_path)) {
			copy.file_path = ReplacedOnVolume(copy.file_path);
		}
		if (!engine->Serves(copy.file_path)) {
			return;
		}
		// Objects appear whole, so there is nothing to hide behind a temporary name.
		copy.use_tmp_file = false;
		names_are_unique =
		    copy.overwrite_mode == CopyOverwriteMode::COPY_APPEND && copy.filename_pattern.HasUUID();
	} else if (root->type == LogicalOperatorType::LOGICAL_EXPORT) {
		if (!engine->Serves(root->Cast<LogicalExport>().copy_info->file_path)) {
			return;
		}
	} else {
		return;
	}
	client->PutAbove([engine, names_are_unique](PhysicalPlan &plan, PhysicalOperator &child) -> PhysicalOperator & {
		return plan.Make<PhysicalBarrier>(child, engine, names_are_unique);
	});
}

} // namespace

void RegisterBarrier(DBConfig &config, const shared_ptr<Engine> &engine) {
	OptimizerExtension extension;
	extension.optimize_function = AddBarrier;
	extension.optimizer_info = make_shared_ptr<EngineInfo>(engine);
	OptimizerExtension::Register(config, std::move(extension));
}

} // namespace penstock
