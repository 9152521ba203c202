// Table functions that show what the engine knows of itself. Cells are texts; columns are typed by name.
#include "extension.hpp"

#include "shown.hpp"

namespace penstock {

namespace {

using ShowVerb = Shown (*)(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked);

struct ShowInfo : public TableFunctionInfo {
	ShowInfo(shared_ptr<Engine> engine, ShowVerb verb) : engine(std::move(engine)), verb(verb) {
	}
	shared_ptr<Engine> engine;
	ShowVerb verb;
};

struct ShowCall : public TableFunctionData {
	ShowCall(const ShowInfo &info, ShowVerb verb) : engine(info.engine), verb(verb) {
	}
	//! What is shown is of the moment.
	bool SupportStatementCache() const override {
		return false;
	}
	shared_ptr<Engine> engine;
	ShowVerb verb;
};

struct Cursor : public GlobalTableFunctionState {
	vector<vector<Value>> rows;
	idx_t next = 0;
};

//! What this statement's settings say of the engine's limits is in force before they are looked at.
shared_ptr<Query> AdoptSettings(ClientContext &context, const shared_ptr<Engine> &engine) {
	return ClientIo::Get(context, engine)->Current();
}

//! A point in time, in microseconds since the epoch; shown as a timestamp in UTC. One with a time zone would need
//! Python's pytz to be fetched.
constexpr const char *STARTED = "started_us";

//! Units are the last word of a name in every table of the engine.
LogicalType TypeOfColumn(const string &name) {
	if (name == STARTED) {
		return LogicalType::TIMESTAMP;
	}
	if (name == "value" || name == "number" || name == "statement" || name == "attempt" || name == "blocks" ||
	    StringUtil::EndsWith(name, "_us") || StringUtil::EndsWith(name, "_bytes")) {
		return LogicalType::UBIGINT;
	}
	if (name == "status") {
		return LogicalType::INTEGER;
	}
	if (name == "new_connection") {
		return LogicalType::BOOLEAN;
	}
	return LogicalType::VARCHAR;
}

Value CellValue(const string &text, const LogicalType &type) {
	if (text.empty()) {
		return Value(type);
	}
	if (type.id() == LogicalTypeId::TIMESTAMP) {
		return Value::TIMESTAMP(timestamp_t(Value(text).DefaultCastAs(LogicalType::BIGINT).GetValue<int64_t>()));
	}
	return Value(text).DefaultCastAs(type);
}

Shown ShowRows(ps_rows *handle, Asked asked) {
	Rows rows(handle);
	Shown shown;
	for (idx_t column = 0; column < rows.ColumnCount(); column++) {
		auto name = rows.ColumnName(column);
		shown.types.push_back(TypeOfColumn(name));
		shown.names.push_back(name == STARTED ? "started_at" : name);
	}
	for (idx_t row = 0; asked == Asked::ROWS && row < rows.Count(); row++) {
		vector<Value> cells;
		for (idx_t column = 0; column < rows.ColumnCount(); column++) {
			cells.push_back(CellValue(rows.Cell(row, column), shown.types[column]));
		}
		shown.rows.push_back(std::move(cells));
	}
	return shown;
}

Shown ShowStats(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	AdoptSettings(context, engine);
	return ShowRows(ps_engine_stats(engine->handle), asked);
}

Shown ShowStatements(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	AdoptSettings(context, engine);
	return ShowRows(ps_engine_statements(engine->handle), asked);
}

Shown ShowRequests(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	AdoptSettings(context, engine);
	return ShowRows(ps_engine_requests(engine->handle), asked);
}

Shown ShowCache(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	auto query = AdoptSettings(context, engine);
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_query_cache(query->handle, &rows, &error), error);
	return ShowRows(rows, asked);
}

Shown ShowSettings(ClientContext &context, const shared_ptr<Engine> &, Asked asked) {
	static constexpr const char *TYPE_NAMES[] = {"bool", "number", "bytes", "milliseconds", "text", "URL"};
	Shown shown;
	for (auto name : {"name", "value", "default_value", "type", "min", "max", "description"}) {
		shown.names.emplace_back(name);
		bool is_bound = StringUtil::StartsWith(name, "m");
		shown.types.push_back(is_bound ? LogicalType::UBIGINT : LogicalType::VARCHAR);
	}
	for (size_t index = 0; asked == Asked::ROWS && index < ps_setting_count(); index++) {
		ps_setting_info info;
		ps_setting_describe(index, &info);
		auto name = "penstock_" + Text(info.name);
		Value value;
		LookupSetting(context, name, value);
		auto text = value.ToString();
		Rows told(ps_setting_shown(info.name, Borrow(text)));
		shown.rows.push_back({Value(name), Value(told.Cell(0, idx_t(0))),
		                      Value(Text(info.default_value)), Value(TYPE_NAMES[info.type]),
		                      info.has_range ? Value::UBIGINT(info.min) : Value(LogicalType::UBIGINT),
		                      info.has_range ? Value::UBIGINT(info.max) : Value(LogicalType::UBIGINT),
		                      Value(Text(info.doc))});
	}
	return shown;
}

Shown ResetStats(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	Shown shown;
	shown.names.emplace_back("reset");
	shown.types.push_back(LogicalType::BOOLEAN);
	if (asked == Asked::ROWS) {
		AdoptSettings(context, engine);
		ps_engine_reset_stats(engine->handle);
		shown.rows.push_back({Value::BOOLEAN(true)});
	}
	return shown;
}

Shown ClearCache(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	Shown shown;
	shown.names.emplace_back("cleared");
	shown.types.push_back(LogicalType::BOOLEAN);
	if (asked == Asked::ROWS) {
		auto query = AdoptSettings(context, engine);
		ps_error *error = nullptr;
		Check(ps_query_clear_cache(query->handle, &error), error);
		shown.rows.push_back({Value::BOOLEAN(true)});
	}
	return shown;
}

unique_ptr<FunctionData> BindShow(ClientContext &context, TableFunctionBindInput &input, vector<LogicalType> &types,
                                  vector<Name> &names) {
	auto &info = input.info->Cast<ShowInfo>();
	auto verb = info.verb;
	// The only parameter that any of them has.
	for (auto &by_statement : input.named_parameters) {
		if (!by_statement.second.IsNull() && BooleanValue::Get(by_statement.second)) {
			verb = ShowStatements;
		}
	}
	auto call = make_uniq<ShowCall>(info, verb);
	auto shown = call->verb(context, call->engine, Asked::COLUMNS);
	types = shown.types;
	for (auto &name : shown.names) {
		names.emplace_back(name);
	}
	return std::move(call);
}

//! Runs once for each execution.
unique_ptr<GlobalTableFunctionState> RunShow(ClientContext &context, TableFunctionInitInput &input) {
	auto &call = input.bind_data->Cast<ShowCall>();
	auto cursor = make_uniq<Cursor>();
	cursor->rows = call.verb(context, call.engine, Asked::ROWS).rows;
	return std::move(cursor);
}

void EmitShow(ClientContext &, TableFunctionInput &input, DataChunk &output) {
	auto &cursor = input.global_state->Cast<Cursor>();
	idx_t count = MinValue<idx_t>(STANDARD_VECTOR_SIZE, cursor.rows.size() - cursor.next);
	for (idx_t row = 0; row < count; row++) {
		auto &cells = cursor.rows[cursor.next + row];
		for (idx_t column = 0; column < cells.size(); column++) {
			output.data[column].SetValue(row, cells[column]);
		}
	}
	cursor.next += count;
	SetChunkSize(output, count);
}

void ShowVersion(DataChunk &input, ExpressionState &, Vector &result) {
	SetAll(result, Value(Text(ps_version())), input.size());
}

FunctionDescription Describe(const char *text, vector<string> examples) {
	FunctionDescription description;
	description.description = text;
	description.examples = std::move(examples);
	return description;
}

//! A function without parameters that shows a table.
struct Show {
	const char *name;
	ShowVerb verb;
	const char *description;
	const char *example;
};

const Show SHOWS[] = {
    {"penstock_settings", ShowSettings, "The settings of Penstock: value, default, range and meaning of each",
     "FROM penstock_settings()"},
    {"penstock_check", ShowCheck,
     "What differs for whoever moves from httpfs, azure, aws and cache_httpfs: of this database's settings, secrets "
     "and extensions, and of the environment; no rows: nothing",
     "CALL penstock_check()"},
    {"penstock_requests", ShowRequests,
     "The last requests to stores: for which statement, URL and cause, at which attempt, and how long each took",
     "SELECT url, cause, attempt, duration_us FROM penstock_requests() ORDER BY number DESC LIMIT 10"},
    {"penstock_cache", ShowCache, "What is remembered and kept of each object, in memory and on the disk",
     "SELECT url, cache, cached_bytes FROM penstock_cache()"},
    {"penstock_clear_cache", ClearCache, "Forgets what is remembered and kept of objects, the disk cache included",
     "CALL penstock_clear_cache()"},
    {"penstock_reset_stats", ResetStats,
     "Sets the counters of penstock_stats() to 0 and forgets its statements; gauges and the counters of devices stay",
     "CALL penstock_reset_stats()"},
};

} // namespace

void RegisterDescribed(ExtensionLoader &loader, TableFunction function, FunctionDescription description) {
	CreateTableFunctionInfo info(std::move(function));
	info.descriptions.push_back(std::move(description));
	loader.RegisterFunction(std::move(info));
}

void RegisterFunctions(ExtensionLoader &loader, const shared_ptr<Engine> &engine) {
	auto make = [&](const char *name, ShowVerb verb) {
		TableFunction function(name, {}, EmitShow, BindShow, RunShow);
		function.function_info = make_shared_ptr<ShowInfo>(engine, verb);
		return function;
	};
	for (auto &show : SHOWS) {
		RegisterDescribed(loader, make(show.name, show.verb), Describe(show.description, {show.example}));
	}
	auto stats = make("penstock_stats", ShowStats);
	AddFlag(stats, "by_statement");
	RegisterDescribed(loader, std::move(stats),
	                  Describe("The counters of Penstock since it was loaded, or those of each of the last statements",
	                           {"SELECT area, name, value FROM penstock_stats() WHERE value > 0",
	                            "FROM penstock_stats(by_statement := true)"}));
	ScalarFunction version("penstock_version", vector<LogicalType>(), LogicalType::VARCHAR, ShowVersion);
	CreateScalarFunctionInfo info(std::move(version));
	info.descriptions.push_back(Describe("The version of Penstock", {"SELECT penstock_version()"}));
	loader.RegisterFunction(std::move(info));
}

} // namespace penstock
