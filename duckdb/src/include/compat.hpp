// The only place where DuckDB 1.5 and 2.0 differ in spelling. Everything else includes this first.
#pragma once

#include "duckdb.hpp"
#include "duckdb/catalog/catalog_transaction.hpp"
#include "duckdb/common/encryption_state.hpp"
#include "duckdb/common/encryption_types.hpp"
#include "duckdb/common/exception/http_exception.hpp"
#include "duckdb/common/file_opener.hpp"
#include "duckdb/common/file_system.hpp"
#include "duckdb/common/http_util.hpp"
#include "duckdb/common/multi_file/multi_file_list.hpp"
#include "duckdb/common/opener_file_system.hpp"
#include "duckdb/function/table_function.hpp"
#include "duckdb/logging/file_system_logger.hpp"
#include "duckdb/logging/log_type.hpp"
#include "duckdb/logging/logger.hpp"
#include "duckdb/main/client_context.hpp"
#include "duckdb/main/client_context_state.hpp"
#include "duckdb/main/client_data.hpp"
#include "duckdb/main/config.hpp"
#include "duckdb/main/connection_manager.hpp"
#include "duckdb/main/database.hpp"
#include "duckdb/main/extension/extension_loader.hpp"
#include "duckdb/main/query_profiler.hpp"
#include "duckdb/main/secret/secret.hpp"
#include "duckdb/main/secret/secret_manager.hpp"
#include "duckdb/parser/parsed_data/create_scalar_function_info.hpp"
#include "duckdb/parser/parsed_data/create_table_function_info.hpp"
#include "duckdb/planner/operator/logical_get.hpp"

#include "reach.hpp"

// Not by identifier.hpp: 1.5.6 has that too, and uses it nowhere that the shim looks.
#if __has_include("duckdb/common/memory_mapped_file.hpp")
#define PENSTOCK_DUCKDB_2 1
#include "duckdb/common/identifier.hpp"
#else
#define PENSTOCK_DUCKDB_2 0
#include "duckdb/common/extra_type_info.hpp"
#endif

namespace penstock {

using namespace duckdb; // NOLINT: the shim is written in DuckDB's vocabulary

#if PENSTOCK_DUCKDB_2
//! Names of settings, secret types and columns.
using Name = Identifier;
inline const string &NameText(const Identifier &name) {
	return name.GetIdentifierName();
}
using FlagsArg = const FileOpenFlags &;
template <class T>
using NameMap = identifier_map_t<T>;
#else
using Name = string;
using FlagsArg = FileOpenFlags;
template <class T>
using NameMap = case_insensitive_map_t<T>;
#endif

inline const string &NameText(const string &name) {
	return name;
}

#if PENSTOCK_DUCKDB_2
constexpr bool DEFAULTS_ARE_VALUES = false;
inline Value AsDefault(const Value &value) {
	return value;
}
inline bool IsDefault(const Value &) {
	return false;
}
#else
//! The default of an extension's setting is a value as any that somebody gives it.
constexpr bool DEFAULTS_ARE_VALUES = true;

//! What a default's type carries, so that it is told from an equal value that somebody gave. It says nothing else.
inline const shared_ptr<ExtraTypeInfo> &DefaultMark() {
	static const auto mark = make_shared_ptr<ExtraTypeInfo>(ExtraTypeInfoType::GENERIC_TYPE_INFO);
	return mark;
}
inline Value AsDefault(Value value) {
	if (!value.IsNull()) {
		value.Reinterpret(LogicalType(value.type().id(), DefaultMark()));
	}
	return value;
}
inline bool IsDefault(const Value &value) {
	return value.type().AuxInfo() == DefaultMark().get();
}
#endif

//! A virtual call, so DuckDB looks: its table of settings, with the code behind each, stays out of our file.
inline bool LookupSetting(FileOpener &opener, const string &name, Value &out) {
	return bool(opener.TryGetCurrentSetting(Name(name), out));
}
inline bool LookupSetting(ClientContext &context, const string &name, Value &out) {
	return LookupSetting(*ClientData::Get(context).file_opener, name, out);
}
inline bool LookupSetting(DatabaseInstance &db, const string &name, Value &out) {
	return LookupSetting(*db.GetFileSystem().Cast<OpenerFileSystem>().GetOpener(), name, out);
}

//! Sees what is committed by now, which a transaction that runs does not.
inline CatalogTransaction CommittedByNow(DatabaseInstance &db) {
#if PENSTOCK_DUCKDB_2
	return CatalogTransaction(db, MAX_TRANSACTION_ID, VisibilityBound::AllCommitted());
#else
	return CatalogTransaction(db, MAX_TRANSACTION_ID, TRANSACTION_ID_START);
#endif
}

#if PENSTOCK_DUCKDB_2
namespace {
struct MonotonicTime {
	using type = std::chrono::time_point<std::chrono::steady_clock> TimePoint::*;
	friend type Member(MonotonicTime);
};
template struct Reach<MonotonicTime, &TimePoint::value>;
} // namespace
#endif

inline void SetRequestTimes(BaseRequest &request, timestamp_t start, int64_t duration_us) {
#if PENSTOCK_DUCKDB_2
	request.have_request_timing = true;
	request.request_system_start = start;
	request.request_monotonic_end.*Member(MonotonicTime()) =
	    request.request_monotonic_start.*Member(MonotonicTime()) + std::chrono::microseconds(duration_us);
#else
	request.have_request_timing = true;
	request.request_start = start;
	request.request_end = timestamp_t(start.value + duration_us);
#endif
}

//! A parameter that is passed by its name.
inline void AddFlag(TableFunction &function, const char *name) {
#if PENSTOCK_DUCKDB_2
	function.GetSignature().WithTypedKwargs(
	    "options", [&](TypedKwargs &options) { options.Add(Identifier(name), LogicalType::BOOLEAN); });
#else
	function.named_parameters[name] = LogicalType::BOOLEAN;
#endif
}

//! A table function of one text, whose name is shown in duckdb_functions().
inline TableFunction FunctionOfText(const char *name, const char *parameter, table_function_t run,
                                    table_function_bind_t bind, table_function_init_global_t init) {
	TableFunction function(name, {LogicalType::VARCHAR}, run, bind, init);
#if PENSTOCK_DUCKDB_2
	function.GetSignature().GetParameter(0).SetName(Identifier(parameter));
#endif
	return function;
}

//! A value that the profiles of statements may have, besides DuckDB's own.
struct ProfileMetric {
	string name;
	//! uint64 or string.
	string type;
	string description;
	string unit;
};
//! Name and value; numbers as UBIGINT.
using ProfileValues = vector<std::pair<string, Value>>;

#if PENSTOCK_DUCKDB_2
inline void RegisterProfileMetric(ExtensionLoader &loader, const ProfileMetric &metric) {
	loader.RegisterMetric({metric.name, metric.type, metric.description, metric.unit});
}

//! Puts them into the profile of the running statement, in place of those of the same names.
inline void SetInProfile(ClientContext &context, const ProfileValues &values) {
	auto &profiler = QueryProfiler::Get(context);
	profiler.GetRootUnderLock([&](optional_ptr<ProfilingNode> root) {
		// 2.0.0 has no place for them before there is a plan.
		if (!root) {
			return;
		}
		for (auto &value : values) {
			profiler.SetMetric(value.first, value.second);
		}
	});
}
#else
inline void RegisterProfileMetric(ExtensionLoader &, const ProfileMetric &) {
}

//! Puts them into the profile of the running statement, in place of those of the same names. It has no metrics but
//! DuckDB's: they stand in what the root of the plan tells of itself, as text.
inline void SetInProfile(ClientContext &context, const ProfileValues &values) {
	QueryProfiler::Get(context).GetRootUnderLock([&](optional_ptr<ProfilingNode> root) {
		if (!root) {
			return;
		}
		auto &metrics = root->GetProfilingInfo().metrics;
		auto known = metrics.find(MetricType::EXTRA_INFO);
		if (known == metrics.end()) {
			return; // its user wants no such text
		}
		InsertionOrderPreservingMap<string> texts;
		for (auto &entry : MapValue::GetChildren(known->second)) {
			auto &pair = StructValue::GetChildren(entry);
			texts[pair[0].ToString()] = pair[1].ToString();
		}
		for (auto &value : values) {
			texts[value.first] = value.second.ToString();
		}
		known->second = Value::MAP(texts);
	});
}
#endif

//! The function that a scan calls.
inline const string &FunctionName(const LogicalGet &get) {
#if PENSTOCK_DUCKDB_2
	return NameText(get.function.GetName());
#else
	return get.function.name;
#endif
}

//! Ciphers, with the digests that 2.0 asks of them: it hashes the keys of Parquet files that it remembers.
class CiphersAndDigests : public EncryptionUtil {
public:
	//! 32 bytes.
	virtual void Sha256(const_data_ptr_t input, idx_t input_len, data_ptr_t output) const = 0;
	virtual void HmacSha256(const_data_ptr_t key, idx_t key_len, const_data_ptr_t input, idx_t input_len,
	                        data_ptr_t output) const = 0;

#if PENSTOCK_DUCKDB_2
	void Hash(CryptoHashFunction function, const_data_ptr_t input, idx_t input_len, data_ptr_t output) const override {
		Want(function);
		Sha256(input, input_len, output);
	}
	void Hmac(CryptoHashFunction function, const_data_ptr_t key, idx_t key_len, const_data_ptr_t input, idx_t input_len,
	          data_ptr_t output) const override {
		Want(function);
		HmacSha256(key, key_len, input, input_len, output);
	}
	//! DuckDB has those of its own that are not.
	bool SupportsHash(CryptoHashFunction function) const override {
		return function == CryptoHashFunction::SHA256;
	}
	bool SupportsHmac(CryptoHashFunction function) const override {
		return function == CryptoHashFunction::SHA256;
	}

private:
	static void Want(CryptoHashFunction function) {
		if (function != CryptoHashFunction::SHA256) {
			throw NotImplementedException("Penstock has no MD5 and no SHA-1 for encryption, only SHA-256: LOAD httpfs, "
			                              "which has them");
		}
	}
#endif
};

//! Whether a scan has filters of its own.
inline bool HasTableFilters(const LogicalGet &get) {
#if PENSTOCK_DUCKDB_2
	return get.table_filters.HasFilters();
#else
	return !get.table_filters.filters.empty();
#endif
}

//! Whether a scan reads some row groups only, which the plan names.
inline bool ReadsPartitions(const LogicalGet &get) {
#if PENSTOCK_DUCKDB_2
	return !get.scan_partition_indices.empty();
#else
	return false;
#endif
}

//! The one value of all rows.
inline void SetAll(Vector &vector, const Value &value, idx_t count) {
#if PENSTOCK_DUCKDB_2
	vector.Reference(value, count_t(count));
#else
	vector.Reference(value);
#endif
}

inline void SetChunkSize(DataChunk &chunk, idx_t size) {
#if PENSTOCK_DUCKDB_2
	chunk.SetCardinalityUnsafe(size);
#else
	chunk.SetCardinality(size);
#endif
}

} // namespace penstock
