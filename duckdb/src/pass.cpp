// Puts operators of ours above the root of a finished physical plan.
#include "pass.hpp"

#include "duckdb/execution/operator/helper/physical_prepare.hpp"
#include "duckdb/main/prepared_statement_data.hpp"

namespace penstock {

void PutAboveRoot(PreparedStatementData &prepared, const vector<MakePass> &passes) {
	if (!prepared.physical_plan) {
		// A parameter has no value yet: the statement is planned again once it has one.
		return;
	}
	auto &plan = *prepared.physical_plan;
	auto &root = plan.Root();
	if (root.type == PhysicalOperatorType::PREPARE) {
		PutAboveRoot(*root.Cast<PhysicalPrepare>().prepared, passes);
		return;
	}
	auto is_explained = root.type == PhysicalOperatorType::EXPLAIN_ANALYZE;
	reference<PhysicalOperator> top = is_explained ? root.children[0].get() : root;
	for (auto &make : passes) {
		top = make(plan, top);
	}
	if (is_explained) {
		root.children[0] = top;
	} else {
		plan.SetRoot(top);
	}
}

} // namespace penstock
