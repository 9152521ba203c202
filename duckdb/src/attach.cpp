// ATTACH of a database file behind a URL, without the extension that DuckDB associates with its scheme.
//
// DatabaseManager::AttachDatabase looks the scheme up in a fixed table and insists that the extension
// named there is loaded, whichever file system would serve the path. A path that the table does not
// know passes, so `s3://lake/x.db` becomes `penstock+s3://lake/x.db` where httpfs is not loaded; the
// file system takes the alias off again. Remote databases are attached read-only, as DuckDB does it.
#include "extension.hpp"

#include "options.hpp"

#include "duckdb/optimizer/optimizer_extension.hpp"
#include "duckdb/parser/parsed_data/attach_info.hpp"
#if PENSTOCK_DUCKDB_2
#include "duckdb/planner/operator/logical_attach.hpp"
#else
#include "duckdb/planner/operator/logical_simple.hpp"
#endif

namespace penstock {

namespace {

AttachInfo &InfoOf(LogicalOperator &attach) {
#if PENSTOCK_DUCKDB_2
	return *attach.Cast<LogicalAttach>().info;
#else
	return attach.Cast<LogicalSimple>().info->Cast<AttachInfo>();
#endif
}

bool NamesAccessMode(const AttachInfo &info) {
	for (auto option : {"read_only", "readonly", "read_write", "readwrite", "access_mode"}) {
		if (info.options.find(option) != info.options.end()) {
			return true;
		}
	}
	return false;
}

void RewriteAttach(OptimizerExtensionInput &input, unique_ptr<LogicalOperator> &plan) {
	if (plan->type != LogicalOperatorType::LOGICAL_ATTACH) {
		return;
	}
	auto &info = InfoOf(*plan);
	if (!IsOurs(info.path)) {
		return;
	}
	if (!NamesAccessMode(info)) {
		info.options["read_only"] = Value::BOOLEAN(true);
	}
	string extension;
	if (FileSystem::IsRemoteFile(info.path, extension) && !input.context.db->ExtensionIsLoaded(extension)) {
		info.path = ATTACH_ALIAS + info.path;
	}
}

} // namespace

void RegisterAttach(DBConfig &config) {
	OptimizerExtension extension;
	extension.optimize_function = RewriteAttach;
	OptimizerExtension::Register(config, std::move(extension));
}

} // namespace penstock
