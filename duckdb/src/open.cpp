// Decides what a combination of open flags means for an object, or why it cannot be had.
#include "file_handle.hpp"
#include "file_system.hpp"
#include "known.hpp"

namespace penstock {

namespace {

void RefuseUnsupported(const string &path, FlagsArg flags) {
	if (flags.OpenForAppending()) {
		throw NotImplementedException(
		    "Cannot append to \"%s\": objects are written whole. Write another object beside it", path);
	}
	if (flags.OpenForReading() && flags.OpenForWriting()) {
		throw NotImplementedException("Cannot open \"%s\" for reading and writing at once: objects are written whole. "
		                              "A database is attached with (READ_ONLY)",
		                              path);
	}
	if (!flags.OpenForReading() && !flags.OpenForWriting()) {
		throw InvalidInputException("\"%s\" is to be opened neither for reading nor for writing", path);
	}
}

} // namespace

bool IsCachedByDuckDB(const string &path, FileOpenFlags flags, optional_ptr<FileOpener> opener) {
	if (flags.GetCachingMode() == CachingMode::NO_CACHING && !StringUtil::EndsWith(path, ".parquet")) {
		return false;
	}
	Value enabled;
	return opener && LookupSetting(*opener, "enable_external_file_cache", enabled) && !enabled.IsNull() &&
	       enabled.GetValue<bool>();
}

unique_ptr<FileHandle> PenstockFileSystem::OpenFileExtended(const OpenFileInfo &file, FileOpenFlags flags,
                                                            optional_ptr<FileOpener> opener) {
	RefuseUnsupported(file.path, flags);
	auto handle = flags.OpenForReading() ? OpenRead(file, flags, opener) : OpenWrite(file, flags, opener);
	if (handle && opener) {
		handle->TryAddLogger(*opener);
		DUCKDB_LOG_FILE_SYSTEM_OPEN((*handle));
	}
	return handle;
}

unique_ptr<FileHandle> PenstockFileSystem::OpenRead(const OpenFileInfo &file, FileOpenFlags flags,
                                                    optional_ptr<FileOpener> opener) {
	Scope scope(engine, opener);
	auto query = scope.Current();
	auto options = query->OptionsOf(file.path, opener);
	Known known(file);
	auto told = known.Get();
	told.host_keeps = IsCachedByDuckDB(file.path, flags, opener);
	ps_reader *reader = nullptr;
	ps_error *error = nullptr;
	if (!ps_open_read(query->handle, Borrow(file.path), options.Data(), options.Count(), &told, &reader,
	                  &error)) {
		if (!flags.ReturnNullIfNotExists()) {
			Raise(error);
		}
		IsKind(error, ErrorKind::NOT_FOUND);
		return nullptr;
	}
	return make_uniq<ReadHandle>(*this, file.path, flags, std::move(scope), ReaderHandle(reader));
}

unique_ptr<FileHandle> PenstockFileSystem::OpenWrite(const OpenFileInfo &file, FileOpenFlags flags,
                                                     optional_ptr<FileOpener> opener) {
	bool only_if_absent = flags.ExclusiveCreate() || flags.ReturnNullIfExists();
	if (!only_if_absent && !flags.CreateFileIfNotExists() && !flags.OverwriteExistingFile()) {
		throw NotImplementedException("Cannot change \"%s\" in place: objects are written whole", file.path);
	}
	if (flags.ReturnNullIfExists() && FileExists(file.path, opener)) {
		return nullptr;
	}
	Scope scope(engine, opener);
	auto query = scope.Current();
	auto options = StoreOptions(*engine, opener, file.path);
	auto writer = make_shared_ptr<WriterState>(query, file.path, std::move(options), only_if_absent);
	if (scope.client) {
		// Outside a statement nobody asks for it again.
		query->Track(file.path, writer);
	}
	return make_uniq<WriteHandle>(*this, file.path, flags, std::move(writer));
}

} // namespace penstock
