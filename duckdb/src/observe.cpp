// What DuckDB's own views show of our requests: rows of type HTTP in duckdb_logs, a box in EXPLAIN ANALYZE.
#include "query.hpp"

#include <cstdlib>

namespace penstock {

namespace {

constexpr idx_t BOX_WIDTH = 46;

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

string Line(const string &text) {
	auto clipped = text.substr(0, BOX_WIDTH - 2);
	return "││ " + clipped + string(BOX_WIDTH - 1 - clipped.size(), ' ') + "││\n";
}

string Bytes(int64_t count) {
	return StringUtil::BytesToHumanReadableString(NumericCast<idx_t>(count));
}

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
	if (!query) {
		return;
	}
	Rows rows(ps_query_stats(query->handle));
	unordered_map<string, int64_t> stats;
	for (idx_t row = 0; row < rows.Count(); row++) {
		stats[rows.Cell(row, "name")] = Number(rows.Cell(row, "value"));
	}
	if (stats["requests"] == 0 && stats["metadata_hits"] == 0 && stats["cache_hits"] == 0) {
		return;
	}
	ss << "┌────────────────────────────────────────────────┐\n";
	ss << "│┌──────────────────────────────────────────────┐│\n";
	ss << Line("Penstock");
	ss << Line(StringUtil::Format("requests: %lld (GET %lld, HEAD %lld, PUT %lld,", stats["requests"],
	                              stats["requests_get"], stats["requests_head"], stats["requests_put"]));
	ss << Line(StringUtil::Format("          POST %lld, DELETE %lld)", stats["requests_post"],
	                              stats["requests_delete"]));
	ss << Line("read: " + Bytes(stats["bytes_read"]) + ", written: " + Bytes(stats["bytes_written"]));
	if (stats["cache_bytes_read"] > 0) {
		ss << Line("from caches of bytes: " + Bytes(stats["cache_bytes_read"]));
	}
	ss << Line(StringUtil::Format("retries: %lld, errors: %lld", stats["retries"], stats["errors"]));
	ss << Line(StringUtil::Format("waited for I/O: %.3f s", double(stats["wait_time_us"]) / 1e6));
	ss << "│└──────────────────────────────────────────────┘│\n";
	ss << "└────────────────────────────────────────────────┘\n";
}

} // namespace penstock
