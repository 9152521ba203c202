// Secret types for a DuckDB without httpfs, azure and aws, which step aside when those are loaded: our entries are
// moved out of the SecretManager then, and whatever is still missing afterwards is put back.
// docs/design/secret-types.md has the reasons and what was rejected.
#include "extension.hpp"
#include "options.hpp"
#include "reach.hpp"
#include "stand_ins.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace penstock {

namespace {

constexpr const char *OURS = "penstock";

struct ManagerLock {
	using type = mutex SecretManager::*;
	friend type Member(ManagerLock);
};
struct ManagerTypes {
	using type = NameMap<SecretType> SecretManager::*;
	friend type Member(ManagerTypes);
};
struct ManagerFunctions {
	using type = NameMap<CreateSecretFunctionSet> SecretManager::*;
	friend type Member(ManagerFunctions);
};
struct SetFunctions {
	using type = NameMap<CreateSecretFunction> CreateSecretFunctionSet::*;
	friend type Member(SetFunctions);
};
template struct Reach<ManagerLock, &SecretManager::manager_lock>;
template struct Reach<ManagerTypes, &SecretManager::secret_types>;
template struct Reach<ManagerFunctions, &SecretManager::secret_functions>;
template struct Reach<SetFunctions, &CreateSecretFunctionSet::functions>;

using TypeNode = NameMap<SecretType>::node_type;
using FunctionNode = NameMap<CreateSecretFunction>::node_type;

struct Provider {
	//! The extension that registers this provider when it is loaded.
	const char *extension;
	const char *type;
	const char *name;
	vector<const char *> texts;
	vector<const char *> flags;
};

const vector<Provider> &Providers() {
	static const vector<const char *> s3 = {"key_id",     "secret",   "session_token",       "region",
	                                        "endpoint",   "url_style", "kms_key_id",         "refresh",
	                                        "http_proxy", "http_proxy_username", "http_proxy_password"};
	static const vector<const char *> flags = {"use_ssl", "verify_ssl", "url_compatibility_mode", "requester_pays"};
	static const vector<const char *> azure = {"endpoint", "account_name", "http_proxy", "proxy_user_name",
	                                           "proxy_password"};
	auto with = [](vector<const char *> base, std::initializer_list<const char *> more) {
		base.insert(base.end(), more.begin(), more.end());
		return base;
	};
	static const auto chain = with(s3, {"chain", "profile", "assume_role_arn", "external_id", "web_identity_token_file",
	                                    "session_name"});
	static const vector<Provider> providers = {
	    {"httpfs", "s3", "config", s3, flags},
	    {"httpfs", "aws", "config", s3, flags},
	    {"httpfs", "gcs", "config", with(s3, {"bearer_token"}), flags},
	    {"httpfs", "r2", "config", with(s3, {"account_id"}), flags},
	    {"httpfs", "huggingface", "config", {"token"}, {}},
	    {"httpfs", "huggingface", "credential_chain", {}, {}},
	    {"aws", "s3", "credential_chain", chain, flags},
	    {"aws", "aws", "credential_chain", chain, flags},
	    {"aws", "gcs", "credential_chain", chain, flags},
	    {"aws", "r2", "credential_chain", with(chain, {"account_id"}), flags},
	    {"azure", "azure", "config", with(azure, {"connection_string"}), {}},
	    {"azure", "azure", "credential_chain", with(azure, {"chain"}), {}},
	    {"azure", "azure", "managed_identity", with(azure, {"client_id", "object_id", "resource_id"}), {}},
	    {"azure",
	     "azure",
	     "service_principal",
	     with(azure, {"tenant_id", "client_id", "client_secret", "client_certificate_path"}),
	     {}},
	    {"azure", "azure", "access_token", with(azure, {"access_token"}), {}},
	};
	return providers;
}

//! The extension that registers a type: that of its provider config.
string OwnerOfType(const string &type) {
	auto config = std::find_if(Providers().begin(), Providers().end(), [&](const Provider &provider) {
		return type == provider.type && string(provider.name) == "config";
	});
	return config->extension;
}

vector<string> DefaultScope(const string &type) {
	if (type == "s3") {
		return {"s3://", "s3n://", "s3a://"};
	}
	if (type == "gcs") {
		return {"gcs://", "gs://"};
	}
	if (type == "r2") {
		return {"r2://"};
	}
	if (type == "azure") {
		return {"azure://", "az://", "abfss://", "abfs://"};
	}
	if (type == "huggingface") {
		return {"hf://"};
	}
	return {""};
}

//! A proxy's URL may hold a password too; one that holds none tells where requests go.
void HideProxyWithPassword(KeyValueSecret &secret) {
	auto proxy = secret.secret_map.find(Name("http_proxy"));
	if (proxy != secret.secret_map.end() && StringUtil::Contains(proxy->second.ToString(), "@")) {
		secret.redact_keys.insert(proxy->first);
	}
}

//! Whether a provider's secret can be made anew from what it was made from. What renews a chain is the engine.
bool HasRefresh(const string &provider, const string &type) {
	return provider == "config" && type != "azure" && type != "huggingface";
}

//! Under `refresh_info`: of REFRESH the options of this very statement. As httpfs has it, any value asks for it.
void AddRefreshInfo(KeyValueSecret &secret, const CreateSecretInput &input) {
	vector<Value> keys, values;
	bool is_asked = false, is_given = false;
	for (auto &option : input.options) {
		auto key = StringUtil::Lower(NameText(option.first));
		is_asked = is_asked || key == "refresh";
		is_given = is_given || key == "refresh_info";
		if (key != "refresh" && key != EXTRA_HEADERS) {
			keys.emplace_back(key);
			values.emplace_back(option.second.ToString());
		}
	}
	if (is_asked && is_given) {
		throw InvalidInputException("Can not set `refresh` and `refresh_info` at the same time. Leave one of them out");
	}
	if (is_asked) {
		secret.secret_map[Name("refresh_info")] =
		    Value::MAP(LogicalType::VARCHAR, LogicalType::VARCHAR, std::move(keys), std::move(values));
	}
}

//! The token that Hugging Face's own tools left here; empty where there is none.
string HuggingFaceToken() {
	if (auto token = std::getenv("HF_TOKEN")) {
		return token;
	}
	string path;
	if (auto named = std::getenv("HF_TOKEN_PATH")) {
		path = named;
	} else if (auto home = std::getenv("HF_HOME")) {
		path = string(home) + "/token";
	} else if (auto user = std::getenv("HOME")) {
		path = string(user) + "/.cache/huggingface/token";
	}
	std::ifstream file(path);
	string token;
	std::getline(file, token);
	return token;
}

unique_ptr<BaseSecret> CreateSecret(ClientContext &, CreateSecretInput &input) {
	auto type = StringUtil::Lower(NameText(input.type));
	auto scope = input.scope.empty() ? DefaultScope(type) : input.scope;
	auto secret = make_uniq<KeyValueSecret>(scope, Name(type), input.provider, input.name);
	for (auto &option : input.options) {
		auto key = StringUtil::Lower(NameText(option.first));
		if (key == "account_id") {
			// An ENDPOINT and a URL_STYLE of its own win, in whichever order they come.
			secret->secret_map.emplace(Name("endpoint"), Value(option.second.ToString() + ".r2.cloudflarestorage.com"));
			secret->secret_map.emplace(Name("url_style"), Value("path"));
		} else {
			secret->secret_map[Name(key == "session_name" ? "role_session_name" : key)] = option.second;
		}
	}
	auto provider = StringUtil::Lower(NameText(input.provider));
	if (HasRefresh(provider, type)) {
		AddRefreshInfo(*secret, input);
	} else if (type == "huggingface" && provider == "credential_chain") {
		secret->secret_map[Name("token")] = Value(HuggingFaceToken());
	}
	for (auto key : {"token", "refresh_info", "secret", "session_token", "bearer_token", "connection_string",
	                 "client_secret", "access_token", "http_proxy_password", "proxy_password", EXTRA_HEADERS}) {
		secret->redact_keys.insert(Name(key));
	}
	HideProxyWithPassword(*secret);
	return std::move(secret);
}

CreateSecretFunction FunctionOf(const Provider &provider) {
	CreateSecretFunction function;
	function.secret_type = provider.type;
	function.provider = provider.name;
	function.function = CreateSecret;
	for (auto text : provider.texts) {
		function.named_parameters[Name(text)] = LogicalType::VARCHAR;
	}
	for (auto flag : provider.flags) {
		function.named_parameters[Name(flag)] = LogicalType::BOOLEAN;
	}
	if (HasRefresh(provider.name, provider.type)) {
		for (auto map : {EXTRA_HEADERS, "refresh_info"}) {
			function.named_parameters[Name(map)] = LogicalType::MAP(LogicalType::VARCHAR, LogicalType::VARCHAR);
		}
	}
	return function;
}

//! DuckDB's own secret type http shows its extra headers; its functions are called through these.
template <bool FROM_ENVIRONMENT>
struct HttpSecret {
	static atomic<create_secret_function_t> original;

	static unique_ptr<BaseSecret> Create(ClientContext &context, CreateSecretInput &input) {
		auto secret = original.load()(context, input);
		auto key_values = dynamic_cast<KeyValueSecret *>(secret.get());
		if (key_values) {
			key_values->redact_keys.insert(Name(EXTRA_HEADERS));
			HideProxyWithPassword(*key_values);
		}
		return secret;
	}

	static void Hide(NameMap<CreateSecretFunction> &providers) {
		auto found = providers.find(Name(FROM_ENVIRONMENT ? "env" : "config"));
		if (found != providers.end() && found->second.function != Create) {
			original = found->second.function;
			found->second.function = Create;
		}
	}
};
template <bool FROM_ENVIRONMENT>
atomic<create_secret_function_t> HttpSecret<FROM_ENVIRONMENT>::original {nullptr};

//! Registers what is missing, and moves it out of the way of the extension that owns the name.
class SecretTypes : public StandIns {
protected:
	void Put(DatabaseInstance &db) override {
		auto &manager = SecretManager::Get(db);
		for (auto &provider : Providers()) {
			if (IsLoading(provider.extension) || IsLoading(OwnerOfType(provider.type))) {
				continue;
			}
			auto known = manager.AllSecretTypes();
			bool exists = std::any_of(known.begin(), known.end(), [&](const SecretType &type) {
				return StringUtil::CIEquals(NameText(type.name), provider.type);
			});
			if (!exists) {
				SecretType type;
				type.name = provider.type;
				type.deserializer = KeyValueSecret::Deserialize<KeyValueSecret>;
				type.default_provider = "config";
				type.extension = OURS;
				manager.RegisterSecretType(type);
			}
			manager.RegisterSecretFunction(FunctionOf(provider), OnCreateConflict::IGNORE_ON_CONFLICT);
		}
	}

	void Withdraw(DatabaseInstance &db, const string &extension) override {
		auto &manager = SecretManager::Get(db);
		lock_guard<mutex> guard(manager.*Member(ManagerLock()));
		auto &types = manager.*Member(ManagerTypes());
		auto &functions = manager.*Member(ManagerFunctions());
		for (auto &provider : Providers()) {
			if (extension != provider.extension) {
				continue;
			}
			auto type = types.find(Name(provider.type));
			if (type != types.end() && type->second.extension == OURS && string(provider.name) == "config") {
				withdrawn_types.push_back(types.extract(type));
			}
			auto set = functions.find(Name(provider.type));
			if (set == functions.end()) {
				continue;
			}
			auto &by_provider = set->second.*Member(SetFunctions());
			auto function = by_provider.find(Name(provider.name));
			if (function != by_provider.end() && function->second.function == CreateSecret) {
				withdrawn_functions.push_back(by_provider.extract(function));
			}
		}
	}

private:
	// DuckDB calls a secret function through a pointer taken under the manager's lock but used after
	// it: a CREATE SECRET that runs during the LOAD may still hold one, so nothing is destroyed.
	vector<TypeNode> withdrawn_types;
	vector<FunctionNode> withdrawn_functions;
};

//! Lets duckdb_secrets() hide the headers of http secrets, as the guide says of all values.
void HideHttpHeaders(DatabaseInstance &db) {
	auto &manager = SecretManager::Get(db);
	lock_guard<mutex> guard(manager.*Member(ManagerLock()));
	auto &functions = manager.*Member(ManagerFunctions());
	auto http = functions.find(Name("http"));
	if (http != functions.end()) {
		auto &providers = http->second.*Member(SetFunctions());
		HttpSecret<false>::Hide(providers);
		HttpSecret<true>::Hide(providers);
	}
}

} // namespace

bool IsSecretOption(const string &type, const string &name) {
	for (auto &provider : Providers()) {
		if (string(provider.name) == "config" && type == provider.type) {
			auto is_it = [&](const char *option) { return name == option; };
			return std::any_of(provider.texts.begin(), provider.texts.end(), is_it) ||
			       std::any_of(provider.flags.begin(), provider.flags.end(), is_it) ||
			       (HasRefresh(provider.name, type) && is_it(EXTRA_HEADERS));
		}
	}
	return false;
}

bool IsSecretProvider(const string &type, const string &provider) {
	if (type == "http") {
		return provider == "config" || provider == "env"; // DuckDB's own
	}
	return std::any_of(Providers().begin(), Providers().end(), [&](const Provider &known) {
		return type == known.type && provider == known.name;
	});
}

void RegisterSecrets(DatabaseInstance &db) {
	auto types = make_shared_ptr<SecretTypes>();
	types->Fill(db);
	HideHttpHeaders(db);
	ExtensionCallback::Register(DBConfig::GetConfig(db), std::move(types));
}

} // namespace penstock
