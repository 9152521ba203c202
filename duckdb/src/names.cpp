// Names: glob, list, exists, remove, move. Directories of object stores exist by having something in them.
#include "file_system.hpp"
#include "known.hpp"

namespace penstock {

namespace {

OpenFileInfo Describe(const ps_entry &entry, string path) {
	OpenFileInfo file(std::move(path));
	file.extended_info = make_shared_ptr<ExtendedOpenFileInfo>();
	auto &options = file.extended_info->options;
	options["type"] = Value(entry.is_directory ? "directory" : "file");
	if (entry.has_size) {
		options["file_size"] = Value::UBIGINT(entry.size_bytes);
	}
	if (entry.has_modified) {
		options["last_modified"] = Value::TIMESTAMP(timestamp_t(entry.modified_us));
	}
	if (entry.etag.len != 0) {
		options["etag"] = Value(Text(entry.etag));
		options[LISTED_OPTION] = Value::UBIGINT(entry.listed_us);
	}
	return file;
}

template <class VISIT>
idx_t Visit(ps_listing *listing, VISIT &&visit) {
	ListingHandle owned(listing);
	auto count = ps_listing_count(listing);
	for (size_t index = 0; index < count; index++) {
		ps_entry entry;
		ps_listing_get(listing, index, &entry);
		visit(entry);
	}
	return count;
}

vector<OpenFileInfo> FilesOf(ps_listing *listing) {
	vector<OpenFileInfo> files;
	Visit(listing, [&](const ps_entry &entry) {
		if (!entry.is_directory) {
			files.push_back(Describe(entry, Text(entry.url)));
		}
	});
	return files;
}

//! The files of a glob, of which no more pages are fetched than a scan asks for, and one more.
class GlobList : public LazyMultiFileList {
public:
	// Whether the statement was stopped, the query knows; the list may outlive its context.
	GlobList(shared_ptr<Query> query, PagesHandle pages)
	    : LazyMultiFileList(nullptr), query(std::move(query)), pages(std::move(pages)) {
	}

	//! The next page's; none behind the last.
	vector<OpenFileInfo> Next() const {
		ps_listing *listing = nullptr;
		ps_error *error = nullptr;
		Check(ps_pages_next(query->handle, pages.get(), &listing, &error), error);
		return listing ? FilesOf(listing) : vector<OpenFileInfo>();
	}

protected:
	bool ExpandNextPath() const override {
		auto files = Next();
		std::move(files.begin(), files.end(), std::back_inserter(expanded_files));
		return !files.empty();
	}

private:
	shared_ptr<Query> query;
	PagesHandle pages;
};

string WithSlash(const string &path) {
	return StringUtil::EndsWith(path, "/") ? path : path + "/";
}

//! Whether a path without wildcards may be meant as a directory: below a bucket, and its last name without a dot.
bool MayBeDirectory(const string &path) {
	return !IsPlainHttp(path) && path.size() > RootOf(path).size() + 1 &&
	       path.find('.', path.rfind('/')) == string::npos;
}

} // namespace

bool IsBesidePresigned(const string &path) {
	auto query = path.find('?');
	if (!IsPlainHttp(path) || query == string::npos || !StringUtil::EndsWith(path.substr(0, query), ".wal")) {
		return false;
	}
	auto asked = StringUtil::Lower(path.substr(query));
	return StringUtil::Contains(asked, "signature=") || StringUtil::Contains(asked, "sig=");
}

vector<OpenFileInfo> PenstockFileSystem::Glob(const string &path, FileOpener *opener) {
	if (IsPlainHttp(path)) {
		if (path.substr(0, path.find('?')).find('*') != string::npos) {
			Value allowed;
			bool literal = opener && LookupSetting(*opener, "allow_asterisks_in_http_paths", allowed) &&
			               BooleanValue::Get(allowed.DefaultCastAs(LogicalType::BOOLEAN));
			if (!literal) {
				throw InvalidInputException("Globs (`*`) for generic HTTP file is are not supported. HTTP servers "
				                            "cannot list, so \"%s\" cannot have a `*`. Name the files one by one, as in "
				                            "read_parquet(['...', '...']), or SET allow_asterisks_in_http_paths = true",
				                            WithoutSecrets(path));
			}
		}
		return {OpenFileInfo(path)};
	}
	if (!HasGlob(path)) {
		return {OpenFileInfo(path)};
	}
	Scope scope(engine, opener);
	auto options = StoreOptions(*engine, opener, path);
	ps_listing *listing = nullptr;
	ps_error *error = nullptr;
	Check(ps_glob(scope.Current()->handle, Borrow(path), options.Data(), options.Count(), &listing, &error), error);
	return FilesOf(listing);
}

unique_ptr<MultiFileList> PenstockFileSystem::GlobFilesExtended(const string &path, const FileGlobInput &input,
                                                                optional_ptr<FileOpener> opener) {
	auto is_asked = input.behavior == FileGlobOptions::FALLBACK_GLOB && !HasGlob(path) && MayBeDirectory(path);
	// What opening a file fetches serves the scan, which opens it again in the same statement. A lookup would cost a
	// request of its own.
	auto is_file = [&]() {
		auto flags = FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS;
		return OpenRead(OpenFileInfo(path), flags, opener) != nullptr;
	};
	// Consoles make an empty object of a directory's name with a slash, which is no file to read.
	if (is_asked && (StringUtil::EndsWith(path, "/") || !is_file())) {
		auto below = Glob(WithSlash(path) + "**/*." + input.extension, opener.get());
		if (!below.empty()) {
			return make_uniq<SimpleMultiFileList>(std::move(below));
		}
	}
	if (IsPlainHttp(path) || !HasGlob(path)) {
		return make_uniq<SimpleMultiFileList>(Glob(path, opener.get()));
	}
	Scope scope(engine, opener);
	auto query = scope.Current();
	auto options = StoreOptions(*engine, opener, path);
	ps_pages *pages = nullptr;
	ps_error *error = nullptr;
	Check(ps_glob_pages(query->handle, Borrow(path), options.Data(), options.Count(), &pages, &error), error);
	auto is_whole = ps_pages_is_whole(pages);
	auto list = make_uniq<GlobList>(std::move(query), PagesHandle(pages));
	if (is_whole) {
		return make_uniq<SimpleMultiFileList>(list->Next());
	}
	return std::move(list);
}

bool PenstockFileSystem::ListFilesExtended(const string &directory,
                                           const std::function<void(OpenFileInfo &info)> &callback,
                                           optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	auto query = scope.Current();
	auto options = StoreOptions(*engine, opener, directory);
	auto prefix = WithSlash(directory);
	ps_listing *listing = nullptr;
	ps_error *error = nullptr;
	// COPY looks for files at any depth; asking for all of them at once saves a request per directory.
	auto list = query->IsArmed() ? ps_list_below : ps_list;
	bool listed = list(query->handle, Borrow(directory), options.Data(), options.Count(), &listing, &error);
	Check(listed, error);
	auto count = Visit(listing, [&](const ps_entry &entry) {
		auto url = Text(entry.url);
		auto name = StringUtil::StartsWith(url, prefix) ? url.substr(prefix.size()) : url;
		StringUtil::RTrim(name, "/");
		if (!name.empty()) {
			auto file = Describe(entry, name);
			callback(file);
		}
	});
	return count != 0;
}

bool PenstockFileSystem::FileExists(const string &path, optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	auto query = scope.Current();
	if (query->NewNamesAreUnique()) {
		// COPY ... APPEND asks whether its fresh UUID is taken, once per file.
		return false;
	}
	auto options = StoreOptions(*engine, opener, path);
	bool exists = false;
	ps_error *error = nullptr;
	if (!ps_exists(query->handle, Borrow(path), options.Data(), options.Count(), &exists, &error)) {
		if (!IsBesidePresigned(path)) {
			Raise(error);
		}
		return !IsKind(error, ErrorKind::DENIED);
	}
	return exists;
}

bool PenstockFileSystem::DirectoryExists(const string &path, optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	auto query = scope.Current();
	if (query->IsArmed()) {
		// COPY asks for each partition's directory before it writes there; it needs no creation.
		return true;
	}
	auto options = StoreOptions(*engine, opener, path);
	bool exists = false;
	ps_error *error = nullptr;
	Check(ps_directory_exists(query->handle, Borrow(path), options.Data(), options.Count(), &exists, &error), error);
	return exists;
}

//! Writing an object creates its directories.
void PenstockFileSystem::CreateDirectory(const string &, optional_ptr<FileOpener>) {
}

void PenstockFileSystem::CreateDirectoriesRecursive(const string &, optional_ptr<FileOpener>) {
}

void PenstockFileSystem::RemoveDirectory(const string &path, optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	auto options = StoreOptions(*engine, opener, path);
	ps_error *error = nullptr;
	Check(ps_remove_directory(scope.Current()->handle, Borrow(path), options.Data(), options.Count(), &error), error);
}

void PenstockFileSystem::RemoveFile(const string &path, optional_ptr<FileOpener> opener) {
	RemoveFiles({path}, opener);
}

bool PenstockFileSystem::TryRemoveFile(const string &path, optional_ptr<FileOpener> opener) {
	// After a failed COPY, DuckDB removes the files it began. One that was never published needs no
	// request, and what lay there before stays. A prepared COPY does so when it is dropped or runs again.
	Scope scope(engine, opener);
	auto query = scope.Current();
	auto writer = query->FindWriter(path);
	if (writer) {
		query->Abandon(writer);
		return true;
	}
	if (scope.client && scope.client->IsLeftOver(path)) {
		return true;
	}
	RemoveFiles({path}, opener);
	return true;
}

void PenstockFileSystem::RemoveFiles(const vector<string> &paths, optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	for (auto &group : GroupByStore(*engine, opener, paths)) {
		ps_error *error = nullptr;
		Check(ps_remove(scope.Current()->handle, group.paths.data(), group.paths.size(), group.options.Data(),
		                group.options.Count(), &error),
		      error);
	}
}

void PenstockFileSystem::MoveFile(const string &source, const string &target, optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	auto query = scope.Current();
	query->Settle(); // the source may have been closed a moment ago
	auto from = StoreOptions(*engine, opener, source);
	auto to = StoreOptions(*engine, opener, target);
	ps_error *error = nullptr;
	Check(ps_move(query->handle, Borrow(source), from.Data(), from.Count(), Borrow(target), to.Data(), to.Count(),
	              &error),
	      error);
}

#if PENSTOCK_DUCKDB_2
optional<FileMetadata> PenstockFileSystem::GetStatsIfExists(const OpenFileInfo &file, optional_ptr<FileOpener> opener) {
	auto handle = OpenFile(file, FileFlags::FILE_FLAGS_READ | FileFlags::FILE_FLAGS_NULL_IF_NOT_EXISTS, opener);
	if (!handle) {
		return {};
	}
	return Stats(*handle);
}

bool PenstockFileSystem::CreateDirectoryExtended(const string &, const CreateDirectoryOptions &,
                                                 optional_ptr<FileOpener>) {
	return false;
}

bool PenstockFileSystem::RemoveDirectoryExtended(const string &path, const RemoveDirectoryOptions &options,
                                                 optional_ptr<FileOpener> opener) {
	if (options.mode != RemoveDirectoryMode::RECURSIVE) {
		return false; // a directory that nothing is in does not exist
	}
	RemoveDirectory(path, opener);
	return true;
}
#endif

} // namespace penstock
