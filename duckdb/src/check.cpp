// penstock_check() for whoever moves from httpfs, azure, aws and cache_httpfs: what Penstock does otherwise with this
// database's settings, secrets and extensions, and with the environment. It reads, asks no store, and shows no value of
// a setting, a secret or a variable. What settings and variables mean is in the engine's table.
#include "shown.hpp"

#include "options.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace penstock {

namespace {

constexpr const char *OUR_SYSTEM = "PenstockFileSystem";
constexpr const char *CACHE_SETTINGS = "cache_httpfs_";

class Findings {
public:
	void Add(const string &area, const string &name, const string &finding, const string &cure) {
		rows.push_back({Value(area), Value(name), Value(finding), Value(cure)});
	}
	vector<vector<Value>> rows;
};

string Listed(const vector<string> &names) {
	return StringUtil::Join(names, ", ");
}

void CheckSettings(Findings &findings, ClientContext &context, const Engine &engine) {
	Pairs set;
	engine.settings.AddTheirs(set, context);
	for (auto &entry : DBConfig::GetConfig(context).GetExtensionSettings()) {
		auto name = NameText(entry.first);
		Value value;
		if (StringUtil::StartsWith(name, CACHE_SETTINGS) && LookupSetting(context, name, value) && !value.IsNull() &&
		    value.ToString() != entry.second.default_value.ToString()) {
			set.Add(name, value.ToString());
		}
	}
	ps_rows *told = nullptr;
	ps_error *error = nullptr;
	Check(ps_differences(set.Data(), set.Count(), &told, &error), error);
	Rows rows(told);
	for (idx_t row = 0; row < rows.Count(); row++) {
		findings.Add(rows.Cell(row, "area"), rows.Cell(row, "name"), rows.Cell(row, "finding"), rows.Cell(row, "cure"));
	}
}

//! The extension that brings a file system; empty where none is known.
string ExtensionOf(const string &system) {
	if (StringUtil::StartsWith(system, CACHE_SETTINGS)) {
		return "cache_httpfs";
	}
	for (size_t index = 0; index < ps_wrap_system_count(); index++) {
		ps_wrap_system known;
		ps_wrap_system_get(index, &known);
		if (Text(known.file_system) == system) {
			return Text(known.extension);
		}
	}
	return string();
}

//! Who serves the schemes of Penstock: itself in the place of others, or others.
class Servers {
public:
	explicit Servers(DatabaseInstance &db) {
		for (auto &scheme : OurSchemes()) {
			auto asked = HandlersOf(db, scheme + "name/key");
			if (asked.empty()) {
				continue;
			}
			// The first that its user has set is asked, else the last.
			auto is_set = [](const Handler &handler) { return handler.is_manually_set; };
			auto first = std::find_if(asked.begin(), asked.end(), is_set);
			auto &server = first == asked.end() ? asked.back() : *first;
			if (server.name != OUR_SYSTEM) {
				serving[server.name].push_back(scheme);
				continue;
			}
			for (auto &handler : asked) {
				if (!StringUtil::StartsWith(handler.name, "Penstock")) {
					auto extension = ExtensionOf(handler.name);
					replaced[extension.empty() ? handler.name : extension].push_back(scheme);
				}
			}
		}
	}

	//! By extension, or by file system where none is known.
	std::map<string, vector<string>> replaced;
	//! By file system.
	std::map<string, vector<string>> serving;
};

void CheckExtensions(Findings &findings, DatabaseInstance &db) {
	Servers servers(db);
	for (auto &other : servers.replaced) {
		auto finding = "Penstock serves " + Listed(other.second) + " in its place";
		auto load = "Leave LOAD " + other.first + " out";
		if (other.first == "azure" || other.first == "httpfs" || other.first == "cache_httpfs") {
			findings.Add("extension", other.first, finding, load);
		} else {
			findings.Add("file system", other.first, finding, "Nothing, or leave it unregistered");
		}
	}
	for (auto &other : servers.serving) {
		auto finding = "it serves " + Listed(other.second) + ", and Penstock does not";
		auto is_wrapped = StringUtil::StartsWith(other.first, "Penstock(");
		auto name = is_wrapped ? other.first.substr(9, other.first.size() - 10) : other.first;
		findings.Add("file system", name, finding,
		             is_wrapped ? "CALL penstock_unwrap('" + name + "')" : "LOAD penstock before it is registered");
	}
	if (db.GetFileSystem().SubSystemIsDisabled(OUR_SYSTEM)) {
		findings.Add("file system", OUR_SYSTEM, "it is in disabled_filesystems: every URL of Penstock's is refused",
		             "Disable HTTPFileSystem, S3FileSystem and the like alone, in a new database");
	}
}

//! The beginnings of URLs of ours that requests were sent to lately.
std::set<string> AskedLately(const Engine &engine) {
	std::set<string> asked;
	Rows requests(ps_engine_requests(engine.handle));
	for (idx_t row = 0; row < requests.Count(); row++) {
		auto url = requests.Cell(row, "url");
		if (IsOurs(url)) {
			asked.insert(RootOf(url) + "/");
		}
	}
	return asked;
}

//! What a scope covers by DuckDB's rule, as the beginning of a text, and not by ours: the beginning of such a URL.
string LostOf(const string &scope, const string &type, const std::set<string> &asked) {
	auto is_lost = [&](const string &url) {
		return IsForType(url, type) && StringUtil::StartsWith(url, scope) &&
		       ps_scope_covers(Borrow(scope), Borrow(url)) < 0;
	};
	for (auto &scheme : OurSchemes()) {
		if (is_lost(scheme + "name/")) {
			return scheme;
		}
	}
	// No host, bucket or container ends so.
	auto end = scope.empty() ? ' ' : scope.back();
	if ((end == '-' || end == '.' || end == '_') && is_lost(scope + "x/")) {
		return scope + "...";
	}
	auto found = std::find_if(asked.begin(), asked.end(), is_lost);
	return found == asked.end() ? string() : *found;
}

void CheckOptions(Findings &findings, const KeyValueSecret &secret) {
	for (auto &option : secret.secret_map) {
		auto kind = option.second.type().id();
		auto is_map = kind == LogicalTypeId::MAP || kind == LogicalTypeId::STRUCT;
		auto name = StringUtil::Lower(NameText(option.first));
		if (!ps_is_option(Borrow(is_map ? name + "." : name))) {
			findings.Add("secret", NameText(secret.GetName()),
			             "no store knows its option `" + name + "`: what uses the secret fails",
			             "CREATE OR REPLACE SECRET without that option");
		}
	}
}

void CheckSecret(Findings &findings, const BaseSecret &secret, const std::set<string> &asked) {
	auto name = NameText(secret.GetName());
	auto type = StringUtil::Lower(NameText(secret.GetType()));
	auto provider = StringUtil::Lower(NameText(secret.GetProvider()));
	if (!IsSecretType(type)) {
		return;
	}
	if (!IsSecretProvider(type, provider)) {
		auto told = "Penstock does not know its provider `" + provider + "`: ";
		findings.Add("secret", name,
		             told + (type == "azure" ? "what uses the secret fails"
		                                     : "it takes the keys that the secret holds, and renews none"),
		             "CREATE OR REPLACE SECRET with PROVIDER config or credential_chain");
	}
	if (auto key_values = dynamic_cast<const KeyValueSecret *>(&secret)) {
		CheckOptions(findings, *key_values);
	}
	for (auto &scope : secret.GetScope()) {
		auto lost = LostOf(scope, type, asked);
		if (!lost.empty()) {
			findings.Add("secret", name,
			             "its scope '" + scope + "' ends in the middle of a name, and does not cover " + lost +
			                 ", as it does for DuckDB",
			             "CREATE SECRET with a SCOPE for each name that is to be covered, up to its end");
		}
	}
}

void CheckSecrets(Findings &findings, ClientContext &context, const Engine &engine) {
	vector<SecretEntry> secrets;
	try {
		auto transaction = CatalogTransaction::GetSystemCatalogTransaction(context);
		secrets = SecretManager::Get(context).AllSecrets(transaction);
	} catch (std::exception &error) {
		// A file in secret_directory is damaged. One of an extension that is not there is read all the same.
		findings.Add("secret", "", "the secrets cannot be read, so what looks for one fails: " +
		                               ErrorData(error).RawMessage(),
		             "Take the file out of secret_directory, and make its secret anew");
		return;
	}
	auto asked = AskedLately(engine);
	std::multimap<string, reference<const BaseSecret>> by_name;
	for (auto &entry : secrets) {
		by_name.emplace(NameText(entry.secret->GetName()), *entry.secret);
	}
	for (auto &entry : by_name) {
		CheckSecret(findings, entry.second, asked);
	}
}

} // namespace

Shown ShowCheck(ClientContext &context, const shared_ptr<Engine> &engine, Asked asked) {
	Shown shown;
	shown.names = {"area", "name", "finding", "cure"};
	shown.types = vector<LogicalType>(shown.names.size(), LogicalType::VARCHAR);
	if (asked == Asked::ROWS) {
		Findings findings;
		CheckSettings(findings, context, *engine);
		CheckSecrets(findings, context, *engine);
		CheckExtensions(findings, engine->db);
		shown.rows = std::move(findings.rows);
	}
	return shown;
}

} // namespace penstock
