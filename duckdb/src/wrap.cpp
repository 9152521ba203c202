// Decides which file systems a name means, and how a wrapper comes in without disturbing running queries.
//
// DuckDB's registry of file systems is replaced as a whole when one is added, so adding is safe at any
// time. Taking one out is not: ExtractSubSystem empties a cell that running statements still look at. So
// nothing is ever taken out. The wrapped system stays where it is; its wrapper is added beside it, says
// that it was set by the user, and thereby is asked first. Unwrapping only puts the wrapper to sleep.
// docs/design/wrap.md tells how the wrapped system is found, and what was rejected.
#include "wrap_file_system.hpp"

#include "extension.hpp"

#include "duckdb/common/virtual_file_system.hpp"
#include "duckdb/main/extension_manager.hpp"

namespace penstock {

namespace {

//! The beginning of DuckDB's FileSystemHandle and FileSystemRegistry, which no header declares.
//! scripts/duckdb-check-headers.sh compares them with the sources of every DuckDB.
struct HandleView {
	unique_ptr<FileSystem> file_system;
};
struct RegistryView {
	vector<shared_ptr<HandleView>> sub_systems;
};

//! The two private members by which the registry is read; access is not checked in an explicit
//! instantiation.
template <class TAG, typename TAG::type MEMBER>
struct Reveal {
	friend typename TAG::type Member(TAG) {
		return MEMBER;
	}
};
struct RegistryTag {
	using type = shared_ptr<FileSystemRegistry> VirtualFileSystem::*;
	friend type Member(RegistryTag);
};
struct LockTag {
	using type = mutex VirtualFileSystem::*;
	friend type Member(LockTag);
};
template struct Reveal<RegistryTag, &VirtualFileSystem::file_system_registry>;
template struct Reveal<LockTag, &VirtualFileSystem::registry_lock>;

//! All file systems as they are registered now; they live as long as this does.
class Registered {
public:
	explicit Registered(VirtualFileSystem &all) {
		lock_guard<mutex> guard(all.*Member(LockTag()));
		registry = all.*Member(RegistryTag());
	}
	vector<reference<FileSystem>> Systems() const {
		vector<reference<FileSystem>> systems;
		for (auto &handle : reinterpret_cast<const RegistryView &>(*registry).sub_systems) {
			if (handle->file_system) {
				systems.push_back(*handle->file_system);
			}
		}
		return systems;
	}
	optional_ptr<FileSystem> Find(const string &name) const {
		for (auto &system : Systems()) {
			if (system.get().GetName() == name) {
				return system.get();
			}
		}
		return nullptr;
	}

	shared_ptr<FileSystemRegistry> registry;
};

FileSystem &RegistryOf(DatabaseInstance &db) {
	return static_cast<OpenerFileSystem &>(db.GetFileSystem()).GetFileSystem();
}

bool IsDuckDBs(const FileSystem &registry) {
	return registry.GetName() == "VirtualFileSystem";
}

VirtualFileSystem &AllSystems(DatabaseInstance &db) {
	auto &all = RegistryOf(db);
	if (!IsDuckDBs(all)) {
		throw NotImplementedException("Another extension replaced DuckDB's registry of file systems by \"%s\", in "
		                              "which Penstock cannot wrap any",
		                              all.GetName());
	}
	return static_cast<VirtualFileSystem &>(all);
}

//! The file systems of an extension; empty if the name is none of a known extension.
vector<string> SystemsOf(const string &extension) {
	vector<string> names;
	for (size_t index = 0; index < ps_wrap_system_count(); index++) {
		ps_wrap_system system;
		ps_wrap_system_get(index, &system);
		if (StringUtil::CIEquals(Text(system.extension), extension)) {
			names.push_back(Text(system.file_system));
		}
	}
	return names;
}

//! A name as it is among these, in whatever case it was written.
string Spelled(const vector<string> &names, const string &name) {
	auto found = std::find_if(names.begin(), names.end(),
	                          [&](const string &known) { return StringUtil::CIEquals(known, name); });
	return found == names.end() ? name : *found;
}

string Quoted(const vector<string> &names) {
	return names.empty() ? string("none") : "\"" + StringUtil::Join(names, "\", \"") + "\"";
}

//! The names that may be wrapped as they are: not our own, and not those of our wrappers.
vector<string> Candidates(VirtualFileSystem &all) {
	vector<string> names;
	for (auto &name : all.ListSubSystems()) {
		if (!StringUtil::StartsWith(name, "Penstock")) {
			names.push_back(name);
		}
	}
	return names;
}

void RefuseUnknown(VirtualFileSystem &all, const string &name, const vector<string> &of_extension) {
	if (!of_extension.empty()) {
		throw InvalidInputException("Cannot wrap \"%s\": the extension is not loaded. LOAD %s comes first", name, name);
	}
	if (StringUtil::StartsWith(name, "Penstock") || StringUtil::CIEquals(name, "penstock")) {
		throw InvalidInputException("Cannot wrap \"%s\": Penstock's own reads are parallel already", name);
	}
	throw InvalidInputException("Cannot wrap \"%s\": no extension and no file system of this name is loaded. "
	                            "Extensions that can be wrapped: \"httpfs\", \"azure\"; file systems that are there: %s",
	                            name, Quoted(Candidates(all)));
}

} // namespace

vector<Handler> HandlersOf(DatabaseInstance &db, const string &path) {
	vector<Handler> handlers;
	if (!IsDuckDBs(RegistryOf(db))) {
		return handlers;
	}
	Registered registered(AllSystems(db));
	for (auto &system : registered.Systems()) {
		if (system.get().CanHandleFile(path)) {
			handlers.push_back({system.get().GetName(), system.get().IsManuallySet()});
		}
	}
	return handlers;
}

bool Wraps::Claims(const string &path) {
	lock_guard<mutex> guard(lock);
	for (auto &wrap : wraps) {
		if (wrap->active && wrap->inner.CanHandleFile(path)) {
			return true;
		}
	}
	return false;
}

vector<string> Wraps::Names() {
	lock_guard<mutex> guard(lock);
	vector<string> names;
	for (auto &wrap : wraps) {
		names.push_back(wrap->name);
	}
	return names;
}

shared_ptr<Wrap> Wraps::Find(const string &name) {
	lock_guard<mutex> guard(lock);
	for (auto &wrap : wraps) {
		if (wrap->name == name) {
			return wrap;
		}
	}
	return nullptr;
}

vector<std::pair<string, string>> Wraps::Add(const shared_ptr<Engine> &engine, const string &name) {
	lock_guard<mutex> one_at_a_time(change);
	auto &all = AllSystems(engine->db);
	auto of_extension = SystemsOf(name);
	auto candidates = Candidates(all);
	auto names = of_extension.empty() ? vector<string> {Spelled(candidates, name)} : of_extension;
	Registered registered(all);
	vector<std::pair<string, string>> done;
	for (auto &system : names) {
		auto inner = registered.Find(system);
		if (!inner || std::find(candidates.begin(), candidates.end(), system) == candidates.end()) {
			continue;
		}
		if (all.SubSystemIsDisabled(system)) {
			throw PermissionException("File system %s has been disabled by configuration", system);
		}
		auto wrap = Find(system);
		if (wrap) {
			bool was_active = wrap->active.exchange(true);
			done.emplace_back(system, was_active ? "was wrapped already" : "wrapped");
			continue;
		}
		if (inner->IsManuallySet()) {
			throw NotImplementedException("Cannot wrap \"%s\": it was set by the user, as Python's fsspec systems are, "
			                              "and DuckDB asks such a system before any wrapper. Read its files without "
			                              "a wrapper, or their storage by a URL that httpfs, azure or Penstock serves",
			                              system);
		}
		wrap = make_shared_ptr<Wrap>(system, *inner);
		all.RegisterSubSystem(make_uniq<WrapFileSystem>(wrap, registered.registry, all, engine));
		lock_guard<mutex> guard(lock);
		wraps.push_back(std::move(wrap));
		done.emplace_back(system, "wrapped");
	}
	if (done.empty()) {
		RefuseUnknown(all, name, of_extension);
	}
	return done;
}

vector<std::pair<string, string>> Wraps::Remove(const string &name) {
	lock_guard<mutex> one_at_a_time(change);
	auto names = SystemsOf(name);
	if (names.empty()) {
		names.push_back(Spelled(Names(), name));
	}
	vector<std::pair<string, string>> done;
	for (auto &system : names) {
		auto wrap = Find(system);
		if (wrap && wrap->active.exchange(false)) {
			done.emplace_back(system, "unwrapped");
		}
	}
	if (done.empty()) {
		vector<string> active;
		lock_guard<mutex> guard(lock);
		for (auto &wrap : wraps) {
			if (wrap->active) {
				active.push_back(wrap->name);
			}
		}
		throw InvalidInputException("Cannot unwrap \"%s\": it is not wrapped. Wrapped file systems: %s", name,
		                            Quoted(active));
	}
	return done;
}

namespace {

using WrapVerb = vector<std::pair<string, string>> (*)(const shared_ptr<Engine> &engine, const string &name);

struct WrapFunctionInfo : public TableFunctionInfo {
	WrapFunctionInfo(shared_ptr<Engine> engine, WrapVerb verb) : engine(std::move(engine)), verb(verb) {
	}
	shared_ptr<Engine> engine;
	WrapVerb verb;
};

struct WrapCall : public TableFunctionData {
	WrapCall(const WrapFunctionInfo &info, string name)
	    : engine(info.engine), verb(info.verb), name(std::move(name)) {
	}
	shared_ptr<Engine> engine;
	WrapVerb verb;
	string name;
};

struct WrapRows : public GlobalTableFunctionState {
	vector<std::pair<string, string>> rows;
	idx_t next = 0;
};

unique_ptr<FunctionData> BindWrap(ClientContext &, TableFunctionBindInput &input, vector<LogicalType> &types,
                                  vector<Name> &names) {
	if (input.inputs[0].IsNull()) {
		throw InvalidInputException("The name of an extension or file system cannot be NULL");
	}
	for (auto name : {"file_system", "result"}) {
		names.emplace_back(name);
		types.push_back(LogicalType::VARCHAR);
	}
	return make_uniq<WrapCall>(input.info->Cast<WrapFunctionInfo>(), StringValue::Get(input.inputs[0]));
}

//! Runs once for each execution; binding alone (EXPLAIN, PREPARE) changes nothing.
unique_ptr<GlobalTableFunctionState> RunWrap(ClientContext &, TableFunctionInitInput &input) {
	auto &call = input.bind_data->Cast<WrapCall>();
	auto result = make_uniq<WrapRows>();
	result->rows = call.verb(call.engine, call.name);
	return std::move(result);
}

void EmitWrap(ClientContext &, TableFunctionInput &input, DataChunk &output) {
	auto &result = input.global_state->Cast<WrapRows>();
	idx_t count = MinValue<idx_t>(STANDARD_VECTOR_SIZE, result.rows.size() - result.next);
	for (idx_t row = 0; row < count; row++) {
		auto &cells = result.rows[result.next + row];
		output.data[0].SetValue(row, Value(cells.first));
		output.data[1].SetValue(row, Value(cells.second));
	}
	result.next += count;
	SetChunkSize(output, count);
}

} // namespace

void RegisterWrapFunctions(ExtensionLoader &loader, const shared_ptr<Engine> &engine) {
	auto add = [&](const char *name, WrapVerb verb, const char *description, const char *example) {
		auto function = FunctionOfText(name, "file_system", EmitWrap, BindWrap, RunWrap);
		function.function_info = make_shared_ptr<WrapFunctionInfo>(engine, verb);
		FunctionDescription told;
		told.parameter_types = {LogicalType::VARCHAR};
		told.parameter_names = {"file_system"};
		told.description = description;
		told.examples = {example};
		RegisterDescribed(loader, std::move(function), std::move(told));
	};
	add("penstock_wrap",
	    [](const shared_ptr<Engine> &engine, const string &name) { return engine->wraps.Add(engine, name); },
	    "Reads through a file system of another extension in parallel, by its name or that of its extension",
	    "CALL penstock_wrap('httpfs')");
	add("penstock_unwrap",
	    [](const shared_ptr<Engine> &engine, const string &name) { return engine->wraps.Remove(name); },
	    "Takes a wrap away: that file system is read through itself again",
	    "CALL penstock_unwrap('httpfs')");
}

} // namespace penstock
