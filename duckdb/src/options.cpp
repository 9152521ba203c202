// Decides which secret and which DuckDB settings belong to a path; their meaning is the store's.
#include "options.hpp"
#include "theirs.hpp"

#include <algorithm>

namespace penstock {

namespace {

struct Family {
	//! Schemes, each with its colon and slashes.
	vector<const char *> schemes;
	//! Secret types that may apply; on equal scope the earlier one wins.
	vector<const char *> secret_types;
	//! How the names of its settings begin; empty where it has none.
	const char *settings_prefix;
	//! The file system of httpfs or azure in whose place ours stands.
	const char *stands_for;
};

const vector<Family> &Families() {
	static const vector<Family> families = {
	    {{"s3://", "s3a://", "s3n://"}, {"s3", "r2", "gcs", "aws"}, "s3_", "S3FileSystem"},
	    {{"gs://", "gcs://"}, {"gcs", "s3", "r2", "aws"}, "s3_", "S3FileSystem"},
	    {{"r2://"}, {"r2", "s3", "gcs", "aws"}, "s3_", "S3FileSystem"},
	    {{"az://", "azure://"}, {"azure"}, "azure_", "AzureBlobStorageFileSystem"},
	    {{"abfss://", "abfs://"}, {"azure"}, "azure_", "AzureDfsStorageFileSystem"},
	    {{"hf://"}, {"huggingface"}, "hf_", "HuggingFaceFileSystem"},
	    {{"http://", "https://"}, {"http"}, "", "HTTPFileSystem"},
	};
	return families;
}

//! Length of "azure://".
constexpr idx_t LONGEST_SCHEME = 8;
//! Whether headers and proxy of http secrets count for S3.
constexpr const char *MERGE_SETTING = "merge_http_secret_into_s3_request";
//! The options of a secret by which a store knows whose request it is.
constexpr const char *CREDENTIALS[] = {"key_id", "secret", "session_token", "bearer_token"};
//! Most secrets that an error text lists.
constexpr idx_t LISTED_SECRETS_MAX = 5;

//! Settings of DuckDB itself that concern every HTTP request.
constexpr const char *HTTP_SETTINGS[] = {"http_proxy", "http_proxy_username", "http_proxy_password"};

//! The path with its scheme in lower case: schemes are the same in any case (RFC 3986 section 3.1).
string WithLowerScheme(const string &path) {
	auto end = path.find("://");
	return end == string::npos ? path : StringUtil::Lower(path.substr(0, end)) + path.substr(end);
}

optional_ptr<const Family> FindFamily(const string &path) {
	auto known = WithLowerScheme(path.substr(0, LONGEST_SCHEME));
	for (auto &family : Families()) {
		for (auto scheme : family.schemes) {
			if (StringUtil::StartsWith(known, scheme)) {
				return &family;
			}
		}
	}
	return nullptr;
}

bool IsOfHub(const Family &family) {
	return string(family.settings_prefix) == "hf_";
}

const Family &FamilyOf(const string &path) {
	auto family = FindFamily(path);
	if (!family) {
		throw InvalidInputException("Penstock does not serve the scheme of \"%s\"", WithoutSecrets(path));
	}
	return *family;
}

//! DuckDB compares the names in `disabled_filesystems` with that of our file system only. Whoever has disabled the one
//! in whose place ours stands, or that of cache_httpfs around it, means ours.
void RefuseDisabled(const Engine &engine, const Family &family) {
	for (auto prefix : {"", "cache_httpfs_"}) {
		auto name = string(prefix) + family.stands_for;
		if (engine.db.GetFileSystem().SubSystemIsDisabled(name)) {
			throw PermissionException("File system %s has been disabled by configuration", name);
		}
	}
}

void AddValue(Pairs &pairs, const string &key, const Value &value) {
	if (value.IsNull()) {
		return;
	}
	switch (value.type().id()) {
	case LogicalTypeId::STRUCT: {
		// refresh_info: what the secret was made from, so that it can be made again
		auto &children = StructValue::GetChildren(value);
		for (idx_t index = 0; index < children.size(); index++) {
			AddValue(pairs, key + "." + NameText(StructType::GetChildName(value.type(), index)), children[index]);
		}
		return;
	}
	case LogicalTypeId::MAP:
		for (auto &entry : MapValue::GetChildren(value)) {
			auto &key_value = StructValue::GetChildren(entry);
			AddValue(pairs, key + "." + key_value[0].ToString(), key_value[1]);
		}
		return;
	default:
		pairs.Add(key, TextOf(value));
	}
}

//! For the error text of a request without credentials: the secrets of this family, none of whose scopes
//! the path begins with. Names and scopes only.
void AddUnmatchedSecrets(Pairs &pairs, const vector<SecretEntry> &secrets, const Family &family) {
	string text;
	idx_t count = 0;
	for (auto &entry : secrets) {
		auto &secret = *entry.secret;
		auto type = StringUtil::Lower(NameText(secret.GetType()));
		auto &scopes = secret.GetScope();
		bool is_ours = type == family.secret_types[0] ||
		               std::any_of(scopes.begin(), scopes.end(), [&](const string &scope) {
			               return FindFamily(scope).get() == &family;
		               });
		if (!is_ours) {
			continue;
		}
		count++;
		if (count <= LISTED_SECRETS_MAX) {
			text += (text.empty() ? "" : ", ") + ("'" + NameText(secret.GetName()) + "' for ") +
			        StringUtil::Join(scopes, " ");
		}
	}
	if (count > LISTED_SECRETS_MAX) {
		text += " and " + to_string(count - LISTED_SECRETS_MAX) + " more";
	}
	if (count == 0) {
		if (string(family.secret_types[0]) == "http" || IsOfHub(family)) {
			return; // most web servers and repositories ask for none
		}
		text = "none of TYPE " + string(family.secret_types[0]);
	}
	pairs.Add("unmatched_secrets", text);
}

//! A secret that covers a path, and the scope of it that does.
struct Choice {
	optional_ptr<const BaseSecret> secret;
	string scope;
	int64_t score = NumericLimits<int64_t>::Minimum();
};

//! Place of a secret's storage in DuckDB's order: of two with the same scope the temporary one counts.
int64_t StorageRank(const SecretEntry &entry) {
	if (entry.storage_mode == SecretManager::TEMPORARY_STORAGE_NAME) {
		return 1;
	}
	return entry.storage_mode == SecretManager::LOCAL_FILE_STORAGE_NAME ? 2 : 3;
}

//! The secret whose scope covers the path and is the longest. DuckDB's own look-up takes scopes that end in the
//! middle of a name, too, and so the secret of a neighbour.
Choice ChooseSecret(const vector<SecretEntry> &secrets, const string &path, const Family &family) {
	Choice best;
	for (auto &entry : secrets) {
		auto type = StringUtil::Lower(NameText(entry.secret->GetType()));
		auto known = std::find(family.secret_types.begin(), family.secret_types.end(), type);
		if (known == family.secret_types.end()) {
			continue;
		}
		auto type_rank = int64_t(known - family.secret_types.begin());
		auto scopes = entry.secret->GetScope();
		if (scopes.empty()) {
			scopes.emplace_back(); // DuckDB's own secrets of TYPE http: for every host
		}
		for (auto &scope : scopes) {
			auto covered_bytes = ps_scope_covers(Borrow(scope), Borrow(path));
			auto score = 100 * covered_bytes - 10 * StorageRank(entry) - type_rank;
			if (covered_bytes >= 0 && score > best.score) {
				best.secret = *entry.secret;
				best.scope = scope;
				best.score = score;
			}
		}
	}
	return best;
}

//! The secret for a path. The Hub takes the token of a secret of TYPE http where it has none of its own, as in httpfs.
Choice ChooseFor(const vector<SecretEntry> &secrets, const string &path, const Family &family) {
	auto choice = ChooseSecret(secrets, path, family);
	return choice.secret || !IsOfHub(family) ? choice : ChooseSecret(secrets, path, Families().back());
}

//! Headers as the text of a map; as they are where they are none.
Value HeadersOf(const string &text) {
	try {
		return Value(text).DefaultCastAs(LogicalType::MAP(LogicalType::VARCHAR, LogicalType::VARCHAR));
	} catch (std::exception &) { // NOLINT: the store names what it does not understand
		return Value(text);
	}
}

//! What a secret is to be made from anew, by REFRESH_INFO or REFRESH. A chain is the engine's. Names are in lower case,
//! but for those of headers.
vector<std::pair<string, string>> RefreshInfoOf(const KeyValueSecret &secret) {
	vector<std::pair<string, string>> found;
	auto info = secret.secret_map.find(Name("refresh_info"));
	if (StringUtil::Lower(NameText(secret.GetProvider())) != "config" || info == secret.secret_map.end() ||
	    info->second.IsNull()) {
		return found;
	}
	Pairs told, pairs;
	AddValue(told, "", info->second);
	for (idx_t index = 0; index < told.Count(); index++) {
		auto key = Text(told.Data()[index].key).substr(1);
		auto value = Text(told.Data()[index].value);
		auto name = StringUtil::Lower(key.substr(0, key.find('.')));
		auto is_text = key.size() == name.size();
		// The values of REFRESH_INFO are texts, those that httpfs keeps of REFRESH have their types.
		AddValue(pairs, name + key.substr(name.size()),
		         is_text && name == EXTRA_HEADERS ? HeadersOf(value) : Value(value));
	}
	for (idx_t index = 0; index < pairs.Count(); index++) {
		found.emplace_back(Text(pairs.Data()[index].key), Text(pairs.Data()[index].value));
	}
	return found;
}

//! Of a secret that was found wrong: what it is made from anew, before its own values.
void AddRefreshed(Pairs &pairs, const Engine &engine, const KeyValueSecret &secret) {
	auto info = RefreshInfoOf(secret);
	auto type = StringUtil::Lower(NameText(secret.GetType()));
	for (auto &value : info) {
		if (!IsSecretOption(type, value.first.substr(0, value.first.find('.')))) {
			auto name = NameText(secret.GetName());
			pairs.Add("refresh_failure", "Exception thrown while trying to refresh secret " + name + ": `" +
			                                 value.first + "` is no option of TYPE " + type);
			return;
		}
	}
	if (!info.empty() && engine.refreshed.Has(secret)) {
		for (auto &value : info) {
			pairs.Add(value.first, value.second);
		}
	}
}

//! Adds the secret that is for the path. False where none is.
bool AddSecret(Pairs &pairs, const Engine &engine, const Choice &choice, const string &path) {
	if (!choice.secret) {
		return false;
	}
	auto &secret = *choice.secret;
	pairs.Add("secret_type", StringUtil::Lower(NameText(secret.GetType())));
	pairs.Add("secret_name", NameText(secret.GetName()));
	pairs.Add("provider", StringUtil::Lower(NameText(secret.GetProvider())));
	if (IsPlainHttp(path)) {
		pairs.Add("scope", choice.scope); // a redirect may lead out of it
	}
	auto key_values = dynamic_cast<const KeyValueSecret *>(&secret);
	if (key_values) {
		AddRefreshed(pairs, engine, *key_values);
		for (auto &entry : key_values->secret_map) {
			AddValue(pairs, StringUtil::Lower(NameText(entry.first)), entry.second);
		}
	}
	return true;
}

void LogRefresh(DatabaseInstance &db, const KeyValueSecret &secret, const Pairs &current) {
	auto &logger = Logger::Get(db);
	if (!logger.ShouldLog(DefaultLogType::NAME, LogLevel::LOG_INFO)) {
		return;
	}
	string key_id;
	for (idx_t index = 0; index < current.Count() && key_id.empty(); index++) {
		auto &pair = current.Data()[index];
		key_id = Text(pair.key) == "key_id" ? Text(pair.value) : string();
	}
	logger.WriteLog(DefaultLogType::NAME, LogLevel::LOG_INFO,
	                "Successfully refreshed secret: " + NameText(secret.GetName()) + ", new key_id: " + key_id);
}

//! Headers and proxy of the http secret that covers a path of S3 or the Hub, behind those of its own secret. That one
//! authorizes requests, so a header of that kind is left out. An endpoint that only the URL names gets none of them.
void AddHttpSecret(Pairs &pairs, const vector<SecretEntry> &secrets, const string &path) {
	if (StringUtil::Contains(StringUtil::Lower(path), "s3_endpoint=")) {
		return;
	}
	auto choice = ChooseSecret(secrets, path, Families().back());
	auto key_values = dynamic_cast<const KeyValueSecret *>(choice.secret.get());
	if (!key_values) {
		return;
	}
	// A name and a password go to the proxy of their own secret only.
	auto takes_proxy = !pairs.Has("http_proxy") && key_values->secret_map.count(Name("http_proxy"));
	Pairs all;
	for (auto &entry : key_values->secret_map) {
		AddValue(all, StringUtil::Lower(NameText(entry.first)), entry.second);
	}
	for (idx_t index = 0; index < all.Count(); index++) {
		auto key = Text(all.Data()[index].key);
		auto is_header = StringUtil::StartsWith(key, string(EXTRA_HEADERS) + ".") &&
		                 !StringUtil::CIEquals(key, "extra_http_headers.authorization");
		if (is_header || (takes_proxy && StringUtil::StartsWith(key, "http_proxy"))) {
			pairs.Add(key, Text(all.Data()[index].value));
		}
	}
}

string OwnValue(const KeyValueSecret &secret, const char *key) {
	auto found = secret.secret_map.find(Name(key));
	return found == secret.secret_map.end() || found->second.IsNull() ? string() : TextOf(found->second);
}

string TextOfSecret(const KeyValueSecret &secret) {
	auto text = NameText(secret.GetName()) + "\n" + OwnValue(secret, "refresh_info");
	for (auto key : CREDENTIALS) {
		text += "\n" + OwnValue(secret, key);
	}
	return text;
}

//! Whether the credentials in use are those that a secret has. If not, somebody has replaced it since, and nobody has
//! refused its own.
bool Uses(const ps_pair *used, size_t count, const KeyValueSecret &secret) {
	return std::all_of(std::begin(CREDENTIALS), std::end(CREDENTIALS), [&](const char *key) {
		auto of_key = [&](const ps_pair &pair) { return Text(pair.key) == key; };
		auto pair = std::find_if(used, used + count, of_key);
		return OwnValue(secret, key) == (pair == used + count ? string() : Text(pair->value));
	});
}

} // namespace

bool RefreshedSecrets::Has(const KeyValueSecret &secret) const {
	lock_guard<mutex> guard(lock);
	return known.count(TextOfSecret(secret)) != 0;
}

bool RefreshedSecrets::Add(const KeyValueSecret &secret) {
	lock_guard<mutex> guard(lock);
	return known.insert(TextOfSecret(secret)).second;
}

bool IsOurs(const string &path) {
	return FindFamily(path) != nullptr;
}

vector<string> OurSchemes() {
	vector<string> schemes;
	for (auto &family : Families()) {
		schemes.insert(schemes.end(), family.schemes.begin(), family.schemes.end());
	}
	return schemes;
}

bool IsForType(const string &url, const string &type) {
	auto family = FindFamily(url);
	return family && std::find(family->secret_types.begin(), family->secret_types.end(), type) !=
	                     family->secret_types.end();
}

bool IsSecretType(const string &type) {
	auto schemes = OurSchemes();
	return std::any_of(schemes.begin(), schemes.end(), [&](const string &scheme) { return IsForType(scheme, type); });
}

bool IsPlainHttp(const string &path) {
	return FindFamily(path).get() == &Families().back();
}

string RootOf(const string &path) {
	auto authority = path.find("://") + 3;
	auto end = path.find('/', authority);
	auto &family = FamilyOf(path);
	if (IsOfHub(family)) {
		// hf://datasets/user/name@revision
		for (idx_t names = 0; names < 2 && end != string::npos; names++) {
			end = path.find('/', end + 1);
		}
		return path.substr(0, end);
	}
	bool azure = string(family.secret_types[0]) == "azure";
	bool qualified = azure && path.substr(authority, end - authority).find('.') != string::npos;
	if (qualified && end != string::npos) {
		end = path.find('/', end + 1);
	}
	return path.substr(0, end);
}

Pairs StoreOptions(const Engine &engine, optional_ptr<FileOpener> opener, const string &path) {
	Pairs pairs;
	auto &family = FamilyOf(path);
	RefuseDisabled(engine, family);
	auto manager = FileOpener::TryGetSecretManager(opener);
	auto transaction = FileOpener::TryGetCatalogTransaction(opener);
	if (manager && transaction) {
		auto secrets = manager->AllSecrets(*transaction);
		if (!AddSecret(pairs, engine, ChooseFor(secrets, path, family), path)) {
			AddUnmatchedSecrets(pairs, secrets, family);
		}
		Value merges;
		if (IsOfHub(family) ||
		    (string(family.settings_prefix) == "s3_" &&
		     (!LookupSetting(*opener, MERGE_SETTING, merges) || merges.IsNull() || TextOf(merges) != "false"))) {
			AddHttpSecret(pairs, secrets, path);
		}
	}
	if (opener) {
		engine.settings.AddStoreSettings(pairs, *opener, family.settings_prefix);
	}
	return pairs;
}

bool CurrentOptions(Engine &engine, const string &path, const ps_pair *used, size_t count, Pairs &current) {
	auto secrets = SecretManager::Get(engine.db).AllSecrets(CommittedByNow(engine.db));
	auto &family = FamilyOf(path);
	auto choice = ChooseFor(secrets, path, family);
	auto key_values = dynamic_cast<const KeyValueSecret *>(choice.secret.get());
	bool is_new = key_values && Uses(used, count, *key_values) && !RefreshInfoOf(*key_values).empty() &&
	              engine.refreshed.Add(*key_values);
	if (!AddSecret(current, engine, choice, path)) {
		return false;
	}
	if (is_new && !current.Has("refresh_failure")) {
		LogRefresh(engine.db, *key_values, current);
	}
	// The settings are those of the statement.
	Pairs set;
	auto settings = StoreSettingNames();
	bool merges = string(family.settings_prefix) == "s3_" || IsOfHub(family);
	for (size_t index = 0; index < count; index++) {
		auto name = Text(used[index].key);
		if (StringUtil::StartsWith(name, EMPTIED_OPTION) ||
		    std::find(settings.begin(), settings.end(), name) != settings.end()) {
			set.Add(name, Text(used[index].value));
			merges = merges && !(name == MERGE_SETTING && Text(used[index].value) == "false");
		}
	}
	if (merges) {
		AddHttpSecret(current, secrets, path);
	}
	for (idx_t index = 0; index < set.Count(); index++) {
		current.Add(Text(set.Data()[index].key), Text(set.Data()[index].value));
	}
	return true;
}

bool IsDividedByScopes(optional_ptr<FileOpener> opener, const string &root) {
	auto manager = FileOpener::TryGetSecretManager(opener);
	auto transaction = FileOpener::TryGetCatalogTransaction(opener);
	if (!manager || !transaction) {
		return false;
	}
	auto ends_within = [&](const string &scope) {
		return scope.size() > root.size() + 1 && ps_scope_covers(Borrow(root), Borrow(scope)) >= 0;
	};
	auto secrets = manager->AllSecrets(*transaction);
	return std::any_of(secrets.begin(), secrets.end(), [&](const SecretEntry &entry) {
		auto &scopes = entry.secret->GetScope();
		return std::any_of(scopes.begin(), scopes.end(), ends_within);
	});
}

vector<StoreGroup> GroupByStore(const Engine &engine, optional_ptr<FileOpener> opener, const vector<string> &paths) {
	vector<StoreGroup> groups;
	for (auto &path : paths) {
		auto root = RootOf(path);
		auto options = StoreOptions(engine, opener, path);
		auto same = [&](const StoreGroup &group) { return group.root == root && group.options == options; };
		auto group = std::find_if(groups.begin(), groups.end(), same);
		if (group == groups.end()) {
			group = groups.insert(groups.end(), StoreGroup {std::move(root), std::move(options), {}});
		}
		group->paths.push_back(Borrow(path));
	}
	return groups;
}

bool HasFileCache(optional_ptr<FileOpener> opener) {
	Value enabled;
	return opener && LookupSetting(*opener, "enable_external_file_cache", enabled) && !enabled.IsNull() &&
	       enabled.GetValue<bool>();
}

vector<string> StoreSettingNames() {
	vector<string> names;
	for (auto &setting : TheirSettings()) {
		if (setting.meaning == "option") {
			names.push_back(setting.name);
		}
	}
	names.insert(names.end(), std::begin(HTTP_SETTINGS), std::end(HTTP_SETTINGS));
	return names;
}

} // namespace penstock
