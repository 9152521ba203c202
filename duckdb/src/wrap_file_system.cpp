// Passes calls on to the wrapped system, with its own handles; reads take another way, and changes are told of.
#include "wrap_file_system.hpp"

#include "duckdb/common/multi_file/multi_file_list.hpp"

#include <chrono>

namespace penstock {

namespace {

WrapHandle &Wrapped(FileHandle &handle) {
	return handle.Cast<WrapHandle>();
}

//! The wrapped system's handle. Its own file system is asked, which may be another still.
FileHandle &Own(FileHandle &handle) {
	return *Wrapped(handle).own;
}

FileSystem &SystemOf(FileHandle &handle) {
	return Own(handle).file_system;
}

ps_parallel *NewParallel(const string &file_system) {
	ps_parallel *parallel = nullptr;
	ps_error *error = nullptr;
	Check(ps_parallel_new(Borrow(file_system), &parallel, &error), error);
	return parallel;
}

} // namespace

WrapFileSystem::WrapFileSystem(shared_ptr<Wrap> wrap_p, shared_ptr<FileSystemRegistry> registry_p, FileSystem &all_p,
                               shared_ptr<Engine> engine_p)
    : wrap(std::move(wrap_p)), registry(std::move(registry_p)), all(all_p), engine(std::move(engine_p)),
      parallel(NewParallel(wrap->name)) {
}

bool WrapFileSystem::CanHandleFile(const string &path) {
	// A disabled system must not be reached around the corner: DuckDB then asks it, and refuses.
	return wrap->active && wrap->inner.CanHandleFile(path) && !all.SubSystemIsDisabled(wrap->name);
}

unique_ptr<FileHandle> WrapFileSystem::OpenFileExtended(const OpenFileInfo &file, FileOpenFlags flags,
                                                        optional_ptr<FileOpener> opener) {
	auto change = flags.OpenForWriting() ? make_uniq<WrapChange>(engine, vector<string> {file.path}, opener) : nullptr;
	auto begin = std::chrono::steady_clock::now();
	auto own = wrap->inner.OpenFile(file, flags, opener);
	if (!own) {
		return nullptr;
	}
	auto took = std::chrono::steady_clock::now() - begin;
	auto took_us = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
	bool asked_the_store = ps_parallel_opened(parallel.get(), took_us);
	return make_uniq<WrapHandle>(*this, file, flags, std::move(own), asked_the_store, opener, engine,
	                             std::move(change));
}

void WrapFileSystem::Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) {
	Wrapped(handle).ReadAt(*parallel, data_ptr_cast(buffer), NumericCast<idx_t>(size), location);
}

int64_t WrapFileSystem::Read(FileHandle &handle, void *buffer, int64_t size) {
	return Wrapped(handle).ReadNext(*parallel, data_ptr_cast(buffer), size);
}

void WrapFileSystem::Write(FileHandle &handle, void *buffer, int64_t size, idx_t location) {
	SystemOf(handle).Write(Own(handle), buffer, size, location);
}

int64_t WrapFileSystem::Write(FileHandle &handle, void *buffer, int64_t size) {
	return SystemOf(handle).Write(Own(handle), buffer, size);
}

bool WrapFileSystem::Trim(FileHandle &handle, idx_t offset, idx_t size) {
	return SystemOf(handle).Trim(Own(handle), offset, size);
}

void WrapFileSystem::FileSync(FileHandle &handle) {
	SystemOf(handle).FileSync(Own(handle));
}

void WrapFileSystem::Truncate(FileHandle &handle, int64_t new_size) {
	SystemOf(handle).Truncate(Own(handle), new_size);
}

int64_t WrapFileSystem::GetFileSize(FileHandle &handle) {
	return SystemOf(handle).GetFileSize(Own(handle));
}

timestamp_t WrapFileSystem::GetLastModifiedTime(FileHandle &handle) {
	return Wrapped(handle).IsUntold() ? timestamp_t::infinity() : SystemOf(handle).GetLastModifiedTime(Own(handle));
}

string WrapFileSystem::GetVersionTag(FileHandle &handle) {
	return Wrapped(handle).IsUntold() ? string() : SystemOf(handle).GetVersionTag(Own(handle));
}

FileType WrapFileSystem::GetFileType(FileHandle &handle) {
	return SystemOf(handle).GetFileType(Own(handle));
}

FileMetadata WrapFileSystem::Stats(FileHandle &handle) {
	auto stats = SystemOf(handle).Stats(Own(handle));
	if (Wrapped(handle).IsUntold()) {
		stats.last_modification_time = timestamp_t::infinity();
#if PENSTOCK_DUCKDB_2
		stats.version_tag = string();
#endif
	}
#if PENSTOCK_DUCKDB_2
	stats.cache_valid_until = Wrapped(handle).Deadline(stats.cache_valid_until);
#endif
	return stats;
}

void WrapFileSystem::Seek(FileHandle &handle, idx_t location) {
	SystemOf(handle).Seek(Own(handle), location);
}

void WrapFileSystem::Reset(FileHandle &handle) {
	SystemOf(handle).Reset(Own(handle));
}

idx_t WrapFileSystem::SeekPosition(FileHandle &handle) {
	return SystemOf(handle).SeekPosition(Own(handle));
}

bool WrapFileSystem::CanSeek() {
	return wrap->inner.CanSeek();
}

bool WrapFileSystem::OnDiskFile(FileHandle &handle) {
	return SystemOf(handle).OnDiskFile(Own(handle));
}

bool WrapFileSystem::IsLocalFileSystem() const {
	return wrap->inner.IsLocalFileSystem();
}

bool WrapFileSystem::DirectoryExists(const string &path, optional_ptr<FileOpener> opener) {
	return wrap->inner.DirectoryExists(path, opener);
}

void WrapFileSystem::CreateDirectory(const string &path, optional_ptr<FileOpener> opener) {
	wrap->inner.CreateDirectory(path, opener);
}

void WrapFileSystem::CreateDirectoriesRecursive(const string &path, optional_ptr<FileOpener> opener) {
	wrap->inner.CreateDirectoriesRecursive(path, opener);
}

void WrapFileSystem::RemoveDirectory(const string &path, optional_ptr<FileOpener> opener) {
	WrapRemovesDirectory(engine, path, opener);
	wrap->inner.RemoveDirectory(path, opener);
	WrapRemovesDirectory(engine, path, opener);
}

bool WrapFileSystem::ListFiles(const string &directory, const std::function<void(const string &, bool)> &callback,
                               FileOpener *opener) {
	return wrap->inner.ListFiles(directory, callback, opener);
}

bool WrapFileSystem::ListFilesExtended(const string &directory, const std::function<void(OpenFileInfo &info)> &callback,
                                       optional_ptr<FileOpener> opener) {
	return wrap->inner.ListFiles(directory, callback, opener);
}

void WrapFileSystem::MoveFile(const string &source, const string &target, optional_ptr<FileOpener> opener) {
	WrapChange change(engine, {source, target}, opener);
	wrap->inner.MoveFile(source, target, opener);
	change.Ended();
}

bool WrapFileSystem::FileExists(const string &path, optional_ptr<FileOpener> opener) {
	return wrap->inner.FileExists(path, opener);
}

bool WrapFileSystem::IsPipe(const string &path, optional_ptr<FileOpener> opener) {
	return wrap->inner.IsPipe(path, opener);
}

void WrapFileSystem::RemoveFile(const string &path, optional_ptr<FileOpener> opener) {
	WrapChange change(engine, {path}, opener);
	wrap->inner.RemoveFile(path, opener);
	change.Ended();
}

bool WrapFileSystem::TryRemoveFile(const string &path, optional_ptr<FileOpener> opener) {
	WrapChange change(engine, {path}, opener);
	auto removed = wrap->inner.TryRemoveFile(path, opener);
	change.Ended();
	return removed;
}

void WrapFileSystem::RemoveFiles(const vector<string> &paths, optional_ptr<FileOpener> opener) {
	WrapChange change(engine, paths, opener);
	wrap->inner.RemoveFiles(paths, opener);
	change.Ended();
}

vector<OpenFileInfo> WrapFileSystem::Glob(const string &path, FileOpener *opener) {
	return wrap->inner.Glob(path, opener);
}

unique_ptr<MultiFileList> WrapFileSystem::GlobFilesExtended(const string &path, const FileGlobInput &input,
                                                            optional_ptr<FileOpener> opener) {
	return wrap->inner.Glob(path, input, opener);
}

string WrapFileSystem::GetHomeDirectory() {
	return wrap->inner.GetHomeDirectory();
}

string WrapFileSystem::ExpandPath(const string &path) {
	return wrap->inner.ExpandPath(path);
}

string WrapFileSystem::PathSeparator(const string &path) {
	return wrap->inner.PathSeparator(path);
}

bool WrapFileSystem::IsPathAbsolute(const string &path) {
	return wrap->inner.IsPathAbsolute(path);
}

string WrapFileSystem::CanonicalizePath(const string &path, optional_ptr<FileOpener> opener) {
	return wrap->inner.CanonicalizePath(path, opener);
}

#if PENSTOCK_DUCKDB_2
unique_ptr<MemoryMappedFile> WrapFileSystem::MemoryMapFile(const OpenFileInfo &file, FileOpenFlags flags,
                                                           const MMapOptions &options,
                                                           optional_ptr<FileOpener> opener) {
	return wrap->inner.MemoryMapFile(file, flags, options, opener);
}

optional<timestamp_t> WrapFileSystem::GetCacheValidUntil(FileHandle &handle) {
	return Wrapped(handle).Deadline(SystemOf(handle).GetCacheValidUntil(Own(handle)));
}

optional<FileMetadata> WrapFileSystem::GetStatsIfExists(const OpenFileInfo &file, optional_ptr<FileOpener> opener) {
	return wrap->inner.GetStatsIfExists(file, opener);
}

bool WrapFileSystem::CreateDirectoryExtended(const string &path, const CreateDirectoryOptions &options,
                                             optional_ptr<FileOpener> opener) {
	return wrap->inner.CreateDirectoryExtended(path, options, opener);
}

bool WrapFileSystem::RemoveDirectoryExtended(const string &path, const RemoveDirectoryOptions &options,
                                             optional_ptr<FileOpener> opener) {
	if (options.mode == RemoveDirectoryMode::SINGLE) { // an empty one
		return wrap->inner.RemoveDirectoryExtended(path, options, opener);
	}
	WrapRemovesDirectory(engine, path, opener);
	auto removed = wrap->inner.RemoveDirectoryExtended(path, options, opener);
	WrapRemovesDirectory(engine, path, opener);
	return removed;
}

void WrapFileSystem::AbortFileWrite(FileHandle &handle) {
	SystemOf(handle).AbortFileWrite(Own(handle));
}

FileWriteMode WrapFileSystem::GetWriteMode(FileHandle &handle) {
	return SystemOf(handle).GetWriteMode(Own(handle));
}

bool WrapFileSystem::TryGetNetworkThroughput(FileHandle &handle, NetworkThroughputEstimate &result) {
	return SystemOf(handle).TryGetNetworkThroughput(Own(handle), result);
}
#endif

} // namespace penstock
