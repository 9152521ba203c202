// What DuckDB's own views show of our requests: rows of type HTTP in duckdb_logs, a box in EXPLAIN ANALYZE,
// values in profiles.
#include "query.hpp"

#include <algorithm>
#include <cstdlib>

namespace penstock {

constexpr const char *CONNECTIONS_LOG = "HTTPFSInfo";

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

//! Names that a setting of azure lists, with semicolons between.
vector<string> ListOf(const Query &query, const char *setting) {
	Value names;
	auto client = query.Client();
	if (!client || !LookupSetting(*client, setting, names) || names.IsNull()) {
		return {};
	}
	auto list = StringUtil::Split(StringUtil::Lower(names.ToString()), ";");
	for (auto &name : list) {
		StringUtil::Trim(name);
	}
	return list;
}

//! Of lines `Name: value`; not those in the list.
void AddHeaders(HTTPHeaders &headers, const string &lines, const vector<string> &hidden) {
	for (auto &line : StringUtil::Split(lines, "\n")) {
		auto colon = line.find(": ");
		if (colon == string::npos) {
			continue;
		}
		auto name = line.substr(0, colon);
		if (std::find(hidden.begin(), hidden.end(), StringUtil::Lower(name)) == hidden.end()) {
			headers.Insert(name, line.substr(colon + 2));
		}
	}
}

bool IsAzure(const string &url) {
	auto lower = StringUtil::Lower(url.substr(0, 8));
	return StringUtil::StartsWith(lower, "az") || StringUtil::StartsWith(lower, "abfs");
}

void LogRequest(Logger &logger, HTTPParams &params, const Rows &rows, idx_t row, const vector<string> &hidden) {
	HTTPHeaders headers;
	AddHeaders(headers, rows.Cell(row, "sent_headers"), hidden);
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
		auto failure = rows.Cell(row, "error");
		response.reason = rows.Cell(row, "reason") + (failure.empty() ? "" : ": " + failure);
		AddHeaders(response.headers, rows.Cell(row, "received_headers"), hidden);
		message = HTTPLogType::ConstructLogMessage(request, &response);
	}
	logger.WriteLog(HTTPLogType::NAME, HTTPLogType::LEVEL, message);
}

//! Whether a request opened its connection or had a kept one, as httpfs tells it.
void LogConnection(Logger &logger, const Rows &rows, idx_t row) {
	auto url = rows.Cell(row, "request_url");
	auto begin = url.find("://");
	auto host = begin == string::npos ? url : url.substr(0, url.find('/', begin + 3));
	auto is_new = rows.Cell(row, "new_connection") == "true";
	logger.WriteLog(CONNECTIONS_LOG, LogLevel::LOG_INFO,
	                string("{\"type\":\"") + (is_new ? "connection_cache_miss" : "connection_cache_hit") +
	                    "\",\"host\":\"" + host + "\"}");
}

//! Of all values in profiles that are ours.
constexpr const char *PROFILE_PREFIX = "penstock.";

} // namespace

bool LogsRequests(Query &query) {
	return query.logger && query.logger->ShouldLog(HTTPLogType::NAME, HTTPLogType::LEVEL);
}

void LogRequests(Query &query) {
	bool logs_requests = LogsRequests(query);
	bool logs_connections = query.logger && query.logger->ShouldLog(CONNECTIONS_LOG, LogLevel::LOG_INFO);
	if (!logs_requests && !logs_connections) {
		return;
	}
	Rows rows(ps_query_drain_requests(query.handle));
	HTTPUtil util;
	HTTPParams params(util);
	Value azure;
	auto client = query.Client();
	bool logs_azure = !client || !LookupSetting(*client, "azure_http_logging", azure) || azure.IsNull() ||
	                  TextOf(azure) != "false";
	auto hidden = ListOf(query, "azure_http_logging_redact_headers");
	for (idx_t row = 0; row < rows.Count(); row++) {
		bool is_azure = IsAzure(rows.Cell(row, "url"));
		if (logs_requests && (logs_azure || !is_azure)) {
			LogRequest(*query.logger, params, rows, row, is_azure ? hidden : vector<string>());
		}
		if (logs_connections) {
			LogConnection(*query.logger, rows, row);
		}
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
