// Table functions that show what the engine knows of itself. Cells are texts; columns are typed by name.
#include "extension.hpp"

namespace penstock {

namespace {

struct EngineInfo : public TableFunctionInfo {
	explicit EngineInfo(shared_ptr<Engine> engine) : engine(std::move(engine)) {
	}
	shared_ptr<Engine> engine;
};

struct Snapshot : public TableFunctionData {
	vector<LogicalType> types;
	vector<vector<Value>> rows;
};

struct Cursor : public GlobalTableFunctionState {
	idx_t next = 0;
};

shared_ptr<Engine> EngineOf(TableFunctionBindInput &input) {
	return input.info->Cast<EngineInfo>().engine;
}

//! What this statement's settings say of the engine's limits is in force before they are looked at.
void AdoptSettings(ClientContext &context, TableFunctionBindInput &input) {
	ClientIo::Get(context, EngineOf(input))->Current();
}

//! A point in time, in microseconds since the epoch; shown as a timestamp in UTC. One with a time zone would need
//! Python's pytz to be fetched.
constexpr const char *STARTED = "started_us";

//! Units are the last word of a name in every table of the engine.
LogicalType TypeOfColumn(const string &name) {
	if (name == STARTED) {
		return LogicalType::TIMESTAMP;
	}
	if (name == "value" || name == "number" || name == "blocks" || StringUtil::EndsWith(name, "_us") ||
	    StringUtil::EndsWith(name, "_bytes")) {
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

unique_ptr<FunctionData> ShowRows(ps_rows *handle, vector<LogicalType> &types, vector<Name> &names) {
	Rows rows(handle);
	auto snapshot = make_uniq<Snapshot>();
	for (idx_t column = 0; column < rows.ColumnCount(); column++) {
		auto name = rows.ColumnName(column);
		types.push_back(TypeOfColumn(name));
		names.emplace_back(name == STARTED ? "started_at" : name);
	}
	for (idx_t row = 0; row < rows.Count(); row++) {
		vector<Value> cells;
		for (idx_t column = 0; column < rows.ColumnCount(); column++) {
			cells.push_back(CellValue(rows.Cell(row, column), types[column]));
		}
		snapshot->rows.push_back(std::move(cells));
	}
	return std::move(snapshot);
}

unique_ptr<FunctionData> BindStats(ClientContext &context, TableFunctionBindInput &input, vector<LogicalType> &types,
                                   vector<Name> &names) {
	AdoptSettings(context, input);
	return ShowRows(ps_engine_stats(EngineOf(input)->handle), types, names);
}

unique_ptr<FunctionData> BindRequests(ClientContext &context, TableFunctionBindInput &input,
                                      vector<LogicalType> &types, vector<Name> &names) {
	AdoptSettings(context, input);
	return ShowRows(ps_engine_requests(EngineOf(input)->handle), types, names);
}

unique_ptr<FunctionData> BindCache(ClientContext &context, TableFunctionBindInput &input, vector<LogicalType> &types,
                                   vector<Name> &names) {
	auto query = ClientIo::Get(context, EngineOf(input))->Current();
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_query_cache(query->handle, &rows, &error), error);
	return ShowRows(rows, types, names);
}

unique_ptr<FunctionData> BindSettings(ClientContext &context, TableFunctionBindInput &, vector<LogicalType> &types,
                                      vector<Name> &names) {
	static constexpr const char *TYPE_NAMES[] = {"bool", "number", "bytes", "milliseconds", "text", "URL"};
	for (auto name : {"name", "value", "default_value", "type", "min", "max", "description"}) {
		names.emplace_back(name);
		bool is_bound = StringUtil::StartsWith(name, "m");
		types.push_back(is_bound ? LogicalType::UBIGINT : LogicalType::VARCHAR);
	}
	auto snapshot = make_uniq<Snapshot>();
	for (size_t index = 0; index < ps_setting_count(); index++) {
		ps_setting_info info;
		ps_setting_describe(index, &info);
		auto name = "penstock_" + Text(info.name);
		Value value;
		LookupSetting(context, name, value);
		auto text = value.ToString();
		Rows shown(ps_setting_shown(info.name, Borrow(text)));
		snapshot->rows.push_back({Value(name), Value(shown.Cell(0, idx_t(0))),
		                          Value(Text(info.default_value)), Value(TYPE_NAMES[info.type]),
		                          info.has_range ? Value::UBIGINT(info.min) : Value(LogicalType::UBIGINT),
		                          info.has_range ? Value::UBIGINT(info.max) : Value(LogicalType::UBIGINT),
		                          Value(Text(info.doc))});
	}
	return std::move(snapshot);
}

unique_ptr<FunctionData> BindClearCache(ClientContext &context, TableFunctionBindInput &input,
                                        vector<LogicalType> &types, vector<Name> &names) {
	names.emplace_back("cleared");
	types.push_back(LogicalType::BOOLEAN);
	auto query = ClientIo::Get(context, EngineOf(input))->Current();
	ps_error *error = nullptr;
	Check(ps_query_clear_cache(query->handle, &error), error);
	auto snapshot = make_uniq<Snapshot>();
	snapshot->rows.push_back({Value::BOOLEAN(true)});
	return std::move(snapshot);
}

unique_ptr<GlobalTableFunctionState> Begin(ClientContext &, TableFunctionInitInput &) {
	return make_uniq<Cursor>();
}

void Emit(ClientContext &, TableFunctionInput &input, DataChunk &output) {
	auto &snapshot = input.bind_data->Cast<Snapshot>();
	auto &cursor = input.global_state->Cast<Cursor>();
	idx_t count = MinValue<idx_t>(STANDARD_VECTOR_SIZE, snapshot.rows.size() - cursor.next);
	for (idx_t row = 0; row < count; row++) {
		auto &cells = snapshot.rows[cursor.next + row];
		for (idx_t column = 0; column < cells.size(); column++) {
			output.data[column].SetValue(row, cells[column]);
		}
	}
	cursor.next += count;
	SetChunkSize(output, count);
}

} // namespace

void RegisterFunctions(ExtensionLoader &loader, const shared_ptr<Engine> &engine) {
	auto info = make_shared_ptr<EngineInfo>(engine);
	auto add = [&](const char *name, table_function_bind_t bind) {
		TableFunction function(name, {}, Emit, bind, Begin);
		function.function_info = info;
		loader.RegisterFunction(std::move(function));
	};
	add("penstock_settings", BindSettings);
	add("penstock_stats", BindStats);
	add("penstock_requests", BindRequests);
	add("penstock_cache", BindCache);
	add("penstock_clear_cache", BindClearCache);
}

} // namespace penstock
