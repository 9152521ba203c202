// Decides what a combination of open flags means for an object, or why it cannot be had.
#include "file_handle.hpp"
#include "file_system.hpp"
#include "known.hpp"

namespace penstock {

namespace {

//! Whether whoever opens this is likely to read through DuckDB's external file cache: it passes its mode on, but for
//! Parquet, which always goes through it. The cache itself asks for the version then, and so tells.
bool LooksCached(const string &path, FileOpenFlags &flags) {
	if (flags.GetCachingMode() != CachingMode::NO_CACHING) {
		return true;
	}
	auto name = StringUtil::Lower(path.substr(0, path.find('?')));
	return StringUtil::EndsWith(name, ".parquet") || StringUtil::EndsWith(name, ".pq");
}

void RefuseUnsupported(const string &path, FlagsArg flags) {
	if (flags.OpenForAppending()) {
		throw NotImplementedException(
		    "Cannot append to \"%s\": objects are written whole. Write another object beside it",
		    WithoutSecrets(path));
	}
	if (flags.OpenForReading() && flags.OpenForWriting()) {
		throw NotImplementedException("Cannot open \"%s\" for reading and writing at once: objects are written whole. "
		                              "A database is attached with (READ_ONLY)",
		                              WithoutSecrets(path));
	}
	if (!flags.OpenForReading() && !flags.OpenForWriting()) {
		throw InvalidInputException("\"%s\" is to be opened neither for reading nor for writing", WithoutSecrets(path));
	}
}

} // namespace

unique_ptr<FileHandle> PenstockFileSystem::OpenFileExtended(const OpenFileInfo &file, FileOpenFlags flags,
                                                            optional_ptr<FileOpener> opener) {
	unique_ptr<FileHandle> handle;
	try {
		RefuseUnsupported(file.path, flags);
		handle = flags.OpenForReading() ? OpenRead(file, flags, opener) : OpenWrite(file, flags, opener);
	} catch (std::exception &error) {
		auto client = FileOpener::TryGetClientContext(opener);
		if (client && flags.OpenForWriting()) {
			ClientIo::Get(*client, engine)->Current()->CannotOpen(ErrorData(error));
		}
		throw;
	}
	if (handle && opener) {
		handle->TryAddLogger(*opener);
		handle->Cast<PenstockHandle>().LogOpen();
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
	auto is_cached = HasFileCache(opener);
	told.host_keeps = is_cached && LooksCached(file.path, flags);
	ps_reader *reader = nullptr;
	ps_error *error = nullptr;
	if (!ps_open_read(query->handle, Borrow(file.path), options.Data(), options.Count(), &told, &reader,
	                  &error)) {
		if (!flags.ReturnNullIfNotExists()) {
			Raise(error);
		}
		auto is_refused = ErrorKind(ps_error_kind(error)) == ErrorKind::DENIED && IsBesidePresigned(file.path);
		IsKind(error, is_refused ? ErrorKind::DENIED : ErrorKind::NOT_FOUND);
		return nullptr;
	}
	return make_uniq<ReadHandle>(*this, file.path, flags, std::move(scope), ReaderHandle(reader),
	                              is_cached);
}

unique_ptr<FileHandle> PenstockFileSystem::OpenWrite(const OpenFileInfo &file, FileOpenFlags flags,
                                                     optional_ptr<FileOpener> opener) {
	bool only_if_absent = flags.ExclusiveCreate() || flags.ReturnNullIfExists();
	if (!only_if_absent && !flags.CreateFileIfNotExists() && !flags.OverwriteExistingFile()) {
		throw NotImplementedException("Cannot change \"%s\" in place: objects are written whole",
		                              WithoutSecrets(file.path));
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
