// An operator that lets everything pass. It is put above the root of a plan, to learn that the plan begins to run:
// one plan may run many times (prepared statements), so what concerns a run cannot be done when it is planned.
//
// It is put there once DuckDB has made the physical plan. A logical operator would have to ask the generator of plans
// for its child's, and that is DuckDB's code: our file would hold a second planner and executor.
#pragma once

#include "query.hpp"

#include "duckdb/execution/physical_operator.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/parallel/meta_pipeline.hpp"
#include "duckdb/parallel/pipeline.hpp"
#include "duckdb/planner/logical_operator.hpp"

namespace penstock {

class PhysicalPass : public PhysicalOperator {
public:
	PhysicalPass(PhysicalPlan &plan, PhysicalOperator &child, shared_ptr<Engine> engine)
	    : PhysicalOperator(plan, PhysicalOperatorType::EXTENSION, child.types, child.estimated_cardinality),
	      engine(std::move(engine)) {
		children.push_back(child);
	}

	//! The plan begins to run.
	virtual void Begin(ClientContext &context) = 0;

	void BuildPipelines(Pipeline &current, MetaPipeline &meta_pipeline) override {
		Begin(current.GetClientContext());
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
	bool ParallelOperator() const override {
		return true;
	}

protected:
	shared_ptr<Engine> engine;
};

//! Puts the passes above what the statement itself does, below EXPLAIN ANALYZE and PREPARE.
void PutAboveRoot(PreparedStatementData &prepared, const vector<MakePass> &passes);

//! What the statement itself does, below EXPLAIN and PREPARE.
inline unique_ptr<LogicalOperator> &RootOf(unique_ptr<LogicalOperator> &plan) {
	auto *root = &plan;
	while (((*root)->type == LogicalOperatorType::LOGICAL_EXPLAIN ||
	        (*root)->type == LogicalOperatorType::LOGICAL_PREPARE) &&
	       !(*root)->children.empty()) {
		root = &(*root)->children[0];
	}
	return *root;
}

//! For optimizer hooks.
struct EngineInfo : public OptimizerExtensionInfo {
	explicit EngineInfo(shared_ptr<Engine> engine) : engine(std::move(engine)) {
	}
	shared_ptr<Engine> engine;
};

} // namespace penstock
