// What DuckDB's own views show of our requests: rows of type HTTP in duckdb_logs, a box in EXPLAIN ANALYZE,
// values in profiles.
#include "query.hpp"

#include <cstdlib>

namespace penstock {

namespace {

RequestType TypeOfMethod(const string &method) {
	if (method == "PUT") {
		return RequestType::PUT_REQUEST;
	}
	if (method == "HEAD") {
		return RequestType::HEAD_REQUEST;
	}
	if (method == "DELETE") {
		return RequestType::DELETE_REQUEST;
	}
	if (method == "POST") {
		return RequestType::POST_REQUEST;
	}
	return RequestType::GET_REQUEST;
}

int64_t Number(const string &text) {
	return std::strtoll(text.c_str(), nullptr, 10);
}

void LogRequest(Logger &logger, HTTPParams &params, const Rows &rows, idx_t row) {
	HTTPHeaders headers;
	auto range = rows.Cell(row, "range");
	if (!range.empty()) {
		headers.Insert("Range", range);
	}
	BaseRequest request(TypeOfMethod(rows.Cell(row, "method")), rows.Cell(row, "request_url"), headers, params);
	SetRequestTimes(request, timestamp_t(Number(rows.Cell(row, "started_us"))), Number(rows.Cell(row, "duration_us")));
	request.request_body_length = NumericCast<idx_t>(Number(rows.Cell(row, "sent_bytes")));
	auto status = Number(rows.Cell(row, "status"));
	string message;
	if (status == 0) {
		message = HTTPLogType::ConstructLogMessage(request, nullptr);
	} else {
		HTTPResponse response(HTTPUtil::ToStatusCode(NumericCast<int32_t>(status)));
		response.reason = rows.Cell(row, "error");
		message = HTTPLogType::ConstructLogMessage(request, &response);
	}
	logger.WriteLog(HTTPLogType::NAME, HTTPLogType::LEVEL, message);
}

//! Of all values in profiles that are ours.
constexpr const char *PROFILE_PREFIX = "penstock.";

} // namespace

void LogRequests(Query &query) {
	if (!query.logger || !query.logger->ShouldLog(HTTPLogType::NAME, HTTPLogType::LEVEL)) {
		return;
	}
	Rows rows(ps_query_drain_requests(query.handle));
	HTTPUtil util;
	HTTPParams params(util);
	for (idx_t row = 0; row < rows.Count(); row++) {
		LogRequest(*query.logger, params, rows, row);
	}
	query.logger->Flush();
}

void ClientIo::WriteProfilingInformation(std::ostream &ss) {
	auto query = CurrentIfAny();
	if (query) {
		ss << Rows(ps_query_box(query->handle)).Cell(0, idx_t(0));
	}
}

void ClientIo::ShowInProfile(ClientContext &client) {
	if (!QueryProfiler::Get(client).IsEnabled()) {
		return;
	}
	auto query = CurrentIfAny();
	if (!query) {
		return;
	}
	// A task that ends calls this in a destructor.
	try {
		Rows rows(ps_query_profile(query->handle));
		ProfileValues values;
		for (idx_t row = 0; row < rows.Count(); row++) {
			Value text(rows.Cell(row, "value"));
			auto name = rows.Cell(row, "name");
			auto is_number = rows.Cell(row, "type") == "uint64";
			values.emplace_back(PROFILE_PREFIX + name, is_number ? text.DefaultCastAs(LogicalType::UBIGINT) : text);
		}
		if (!values.empty()) {
			SetInProfile(client, values);
		}
	} catch (std::exception &) { // NOLINT: the statement goes on without it
	}
}

void RegisterProfile(ExtensionLoader &loader) {
	Rows rows(ps_profile_values());
	for (idx_t row = 0; row < rows.Count(); row++) {
		RegisterProfileMetric(loader, {PROFILE_PREFIX + rows.Cell(row, "name"), rows.Cell(row, "type"),
		                               rows.Cell(row, "description"), rows.Cell(row, "unit")});
	}
}

} // namespace penstock
