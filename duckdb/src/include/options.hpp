// From a path to the options of its store: the matching secret and DuckDB's own settings, as pairs.
#pragma once

#include "query.hpp"

namespace penstock {

//! An option of secrets that is a map, and may hold an Authorization header.
static constexpr const char *EXTRA_HEADERS = "extra_http_headers";

//! True for the schemes that this file system serves.
bool IsOurs(const string &path);
//! Those schemes, each with its colon and slashes.
vector<string> OurSchemes();
//! Whether secrets of a type may be for a URL of ours.
bool IsForType(const string &url, const string &type);
//! True for plain http and https URLs, where `*` and `?` are part of the name.
bool IsPlainHttp(const string &path);

//! True for the log beside a database that a presigned URL names. The signature is for the database alone, so a server
//! refuses the log, whether or not there is one.
bool IsBesidePresigned(const string &path);

//! Scheme and authority, for fully qualified Azure URLs with the container, for the Hub with the repository: what one
//! batch may share.
string RootOf(const string &path);

//! All pairs of the secret with the longest matching scope, and of the settings of the path's family. Whatever sends a
//! request asks for them, so this is where a path is refused whose file system is disabled.
Pairs StoreOptions(const Engine &engine, optional_ptr<FileOpener> opener, const string &path);

//! The same for a statement that would begin now, given what a running one uses. False where no secret covers the path.
bool CurrentOptions(Engine &engine, const string &path, const ps_pair *used, size_t count, Pairs &current);

//! Whether secrets of a type may be for any URL of ours.
bool IsSecretType(const string &type);
//! Whether the stores know how secrets of a type and a provider are meant.
bool IsSecretProvider(const string &type, const string &provider);
//! Whether a secret of a type, made by PROVIDER config, has an option of this name.
bool IsSecretOption(const string &type, const string &name);

//! Whether the scope of some secret ends within a root, whose objects may have different secrets then.
bool IsDividedByScopes(optional_ptr<FileOpener> opener, const string &root);

//! Objects that one call may name: of one bucket or container, by the same secret.
struct StoreGroup {
	string root;
	Pairs options;
	vector<ps_str> paths;
};
//! Borrows the paths.
vector<StoreGroup> GroupByStore(const Engine &engine, optional_ptr<FileOpener> opener, const vector<string> &paths);

//! Whether DuckDB's external file cache is on.
bool HasFileCache(optional_ptr<FileOpener> opener);

//! The names of the settings that concern stores: ours, DuckDB's, and those of httpfs and azure.
vector<string> StoreSettingNames();
//! The penstock_* settings with the values that the environment (PENSTOCK_<NAME>) or the table gives them.
vector<std::pair<string, Value>> InitialValues();
//! The value of a setting of ours from the one that DuckDB keeps, which shows no password.
string RevealSetting(const string &shown);

} // namespace penstock
