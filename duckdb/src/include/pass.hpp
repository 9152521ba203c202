// An operator that lets everything pass. It is put above the root of a plan, to learn that the plan begins to run:
// one plan may run many times (prepared statements), so what concerns a run cannot be done when it is planned.
#pragma once

#include "query.hpp"

#include "duckdb/execution/physical_operator.hpp"
#include "duckdb/execution/physical_plan_generator.hpp"
#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/parallel/meta_pipeline.hpp"
#include "duckdb/parallel/pipeline.hpp"
#include "duckdb/planner/operator/logical_extension_operator.hpp"

namespace penstock {

class PhysicalPass : public PhysicalOperator {
public:
	PhysicalPass(PhysicalPlan &plan, vector<LogicalType> types, idx_t cardinality, shared_ptr<Engine> engine)
	    : PhysicalOperator(plan, PhysicalOperatorType::EXTENSION, std::move(types), cardinality),
	      engine(std::move(engine)) {
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

class LogicalPass : public LogicalExtensionOperator {
public:
	LogicalPass(unique_ptr<LogicalOperator> child, shared_ptr<Engine> engine) : engine(std::move(engine)) {
		SetEstimatedCardinality(child->estimated_cardinality);
		children.push_back(std::move(child));
		ResolveOperatorTypes();
	}

	vector<ColumnBinding> GetColumnBindings() override {
		return children[0]->GetColumnBindings();
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

	//! The physical operator `T` above the child's.
	template <class T, class... ARGS>
	PhysicalOperator &Above(PhysicalPlanGenerator &planner, ARGS &&... args) {
		auto &child = planner.CreatePlan(*children[0]);
		auto &pass = planner.Make<T>(child.types, estimated_cardinality, engine, std::forward<ARGS>(args)...);
		pass.children.push_back(child);
		return pass;
	}

	shared_ptr<Engine> engine;
};

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
