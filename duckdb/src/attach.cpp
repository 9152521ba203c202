// ATTACH of a database file, or of a lake, behind our URLs without httpfs and azure.
//
// DuckDB and DuckLake look a path's scheme up in a fixed table, and insist that the extension named
// there is loaded, whichever file system would serve the path. For the time of an ATTACH that concerns
// our URLs those extensions count as loaded. Not longer: a LOAD httpfs that does nothing would be a
// lie. docs/design/attach.md has the reasons and what was rejected.
#include "extension.hpp"

#include "options.hpp"
#include "pass.hpp"
#include "volume_file_system.hpp"

#include "duckdb/main/attached_database.hpp"
#include "duckdb/main/extension_manager.hpp"
#include "duckdb/parser/parsed_data/attach_info.hpp"
#if PENSTOCK_DUCKDB_2
#include "duckdb/planner/operator/logical_attach.hpp"
#else
#include "duckdb/planner/operator/logical_simple.hpp"
#endif

#include <algorithm>

namespace penstock {

thread_local bool extension_load_is_pretended = false;

namespace {

//! Which extensions count as loaded without being so, and for how many statements.
class Pretences {
public:
	//! False if the extension is really loaded, so that there is nothing to end.
	bool Begin(DatabaseInstance &db, const string &extension) {
		lock_guard<mutex> guard(lock);
		auto &count = counts[extension];
		if (count == 0) {
			auto &info = InfoOf(db, extension);
			lock_guard<mutex> against_a_real_load(info.lock);
			if (info.is_loaded) {
				return false;
			}
			info.is_loaded = true;
		}
		count++;
		return true;
	}
	//! It is really loaded, and stays so.
	bool IsLoaded(DatabaseInstance &db, const string &extension) {
		lock_guard<mutex> guard(lock);
		auto info = ExtensionManager::Get(db).GetExtensionInfo(extension);
		return counts[extension] == 0 && info && info->is_loaded;
	}
	void End(DatabaseInstance &db, const string &extension) {
		lock_guard<mutex> guard(lock);
		if (--counts[extension] == 0) {
			InfoOf(db, extension).is_loaded = false;
		}
	}

private:
	static ExtensionInfo &InfoOf(DatabaseInstance &db, const string &extension) {
		auto &manager = ExtensionManager::Get(db);
		auto info = manager.GetExtensionInfo(extension);
		if (!info) {
			extension_load_is_pretended = true;
			manager.BeginLoad(extension); // makes the entry; the load that it begins ends here
			extension_load_is_pretended = false;
			info = manager.GetExtensionInfo(extension);
		}
		return *info;
	}

	mutex lock;
	unordered_map<string, idx_t> counts;
};

class Pretence {
public:
	Pretence(Pretences &pretences, DatabaseInstance &db, const vector<string> &extensions)
	    : pretences(pretences), db(db) {
		for (auto &extension : extensions) {
			if (pretences.Begin(db, extension)) {
				begun.push_back(extension);
			}
		}
	}
	~Pretence() {
		for (auto &extension : begun) {
			pretences.End(db, extension);
		}
	}

private:
	Pretences &pretences;
	DatabaseInstance &db;
	vector<string> begun;
};

class PhysicalPretendingAttach : public PhysicalOperator {
public:
	PhysicalPretendingAttach(PhysicalPlan &plan, PhysicalOperator &attach, shared_ptr<Pretences> pretences,
	                         vector<string> extensions)
	    : PhysicalOperator(plan, PhysicalOperatorType::EXTENSION, attach.types, attach.estimated_cardinality),
	      attach(attach), pretences(std::move(pretences)), extensions(std::move(extensions)) {
	}

	string GetName() const override {
		return attach.GetName();
	}
	bool IsSource() const override {
		return true;
	}
	unique_ptr<GlobalSourceState> GetGlobalSourceState(ClientContext &context) const override {
		return attach.GetGlobalSourceState(context);
	}
	unique_ptr<LocalSourceState> GetLocalSourceState(ExecutionContext &context,
	                                                 GlobalSourceState &state) const override {
		return attach.GetLocalSourceState(context, state);
	}

protected:
	SourceResultType GetDataInternal(ExecutionContext &context, DataChunk &chunk,
	                                 OperatorSourceInput &input) const override {
		Pretence pretence(*pretences, *context.client.db, extensions);
		return attach.GetData(context, chunk, input);
	}

private:
	PhysicalOperator &attach;
	shared_ptr<Pretences> pretences;
	vector<string> extensions;
};

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

bool IsLake(const AttachInfo &info) {
	auto type = info.options.find("type");
	return StringUtil::StartsWith(StringUtil::Lower(info.path), "ducklake:") ||
	       (type != info.options.end() && StringUtil::CIEquals(type->second.ToString(), "ducklake"));
}

struct AttachRewrite : public EngineInfo {
	using EngineInfo::EngineInfo;
	shared_ptr<Pretences> pretences = make_shared_ptr<Pretences>();
};

void RewriteAttach(OptimizerExtensionInput &input, unique_ptr<LogicalOperator> &plan) {
	if (plan->type != LogicalOperatorType::LOGICAL_ATTACH) {
		return;
	}
	auto &info = InfoOf(*plan);
	if (IsOnVolume(info.path)) {
		// DuckDB would take the name of the device.
		auto name = DatabaseOnVolume(info.path);
		if (NameText(info.name).empty() && !AttachedDatabase::NameIsReserved(Name(name))) {
			info.name = Name(name);
		}
		return;
	}
	vector<string> extensions;
	string extension;
	if (IsOurs(info.path)) {
		// As DuckDB does it for the schemes it knows; abfs:// is not among them.
		if (!NamesAccessMode(info)) {
			info.options["read_only"] = Value::BOOLEAN(true);
		}
		if (FileSystem::IsRemoteFile(info.path, extension)) {
			extensions.push_back(extension);
		}
	} else if (IsLake(info)) {
		// Where its data lies stands in its catalog, so either may be asked for.
		extensions = {"httpfs", "azure"};
	}
	auto &rewrite = static_cast<AttachRewrite &>(*input.info);
	auto pretences = rewrite.pretences;
	auto is_loaded = [&](const string &name) { return pretences->IsLoaded(*input.context.db, name); };
	extensions.erase(std::remove_if(extensions.begin(), extensions.end(), is_loaded), extensions.end());
	if (extensions.empty()) {
		return;
	}
	auto make = [pretences, extensions](PhysicalPlan &plan, PhysicalOperator &attach) -> PhysicalOperator & {
		return plan.Make<PhysicalPretendingAttach>(attach, pretences, extensions);
	};
	ClientIo::Get(input.context, rewrite.engine)->PutAbove(make);
}

} // namespace

void RegisterAttach(DBConfig &config, const shared_ptr<Engine> &engine) {
	OptimizerExtension extension;
	extension.optimize_function = RewriteAttach;
	extension.optimizer_info = make_shared_ptr<AttachRewrite>(engine);
	OptimizerExtension::Register(config, std::move(extension));
}

} // namespace penstock
