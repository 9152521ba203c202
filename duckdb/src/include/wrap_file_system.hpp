// A file system around another one: reads are split and run at once, everything else is passed on.
#pragma once

#include "query.hpp"
#include "wrap.hpp"
#include "wrap_change.hpp"

#if PENSTOCK_DUCKDB_2
#include "duckdb/common/memory_mapped_file.hpp"
#endif

namespace duckdb {
struct FileSystemRegistry;
class VirtualFileSystem;
} // namespace duckdb

namespace penstock {

using ParallelHandle = std::unique_ptr<ps_parallel, Freed<ps_parallel, ps_parallel_free>>;

//! An open file of the wrapped system, and further ones of the same object, opened when needed.
class WrapHandle : public FileHandle {
public:
	WrapHandle(FileSystem &fs, const OpenFileInfo &file, FlagsArg flags, unique_ptr<FileHandle> own,
	           bool is_connected, optional_ptr<FileOpener> opener, const shared_ptr<Engine> &engine,
	           unique_ptr<WrapChange> change);

	void Close() override;
	idx_t GetProgress() override {
		return own->GetProgress();
	}
	FileCompressionType GetFileCompressionType() override {
		return own->GetFileCompressionType();
	}
#if PENSTOCK_DUCKDB_2
	bool CanSeek() override {
		return own->CanSeek();
	}
#endif

	//! Exactly `size` bytes.
	void ReadAt(const ps_parallel &parallel, data_ptr_t buffer, idx_t size, idx_t location);
	//! Up to `size` bytes from the position on, and moves it.
	int64_t ReadNext(const ps_parallel &parallel, data_ptr_t buffer, int64_t size);

private:
	//! Of a file that is written; before what the wrapped system opened, which may write when it is destroyed.
	const unique_ptr<WrapChange> change;

public:
	//! What the wrapped system opened.
	const unique_ptr<FileHandle> own;

	//! DuckDB asks for the version: it is to be told none where others read another one through its cache.
	bool IsUntold();
#if PENSTOCK_DUCKDB_2
	//! Until when DuckDB's cache is to take bytes for valid unasked: only of what nothing tells the version of. A
	//! deadline would count for all who have the file open, whichever version they read.
	optional<timestamp_t> Deadline(optional<timestamp_t> told);
#endif

private:
	struct SubReads;
	static bool OnSubRead(void *context, uint64_t handle, uint64_t offset, uint64_t size);

	bool CanOpenAgain() const {
		return bool(reads) && (!of_client || !client.expired());
	}
	//! The open file of this number; 0 is our own.
	FileHandle &File(idx_t number);
	//! Open files that reads have used; 0 before the first read has succeeded.
	uint64_t FilesUsed();
	unique_ptr<FileHandle> OpenAgain();

	const OpenFileInfo file;
	const shared_ptr<Engine> engine;
	//! Once DuckDB has asked; while it is there, no other version is told.
	KeptHandle kept;
	bool was_asked = false;
	//! It is read, and DuckDB's cache is on.
	bool is_cached = false;
	//! Opening it asked the store.
	const bool is_connected;
	//! Whose settings count and who may interrupt; null if the file is written or has no opener.
	unique_ptr<Scope> reads;
	//! The connection that opened the file, if one did: its secrets and settings open further ones.
	weak_ptr<ClientContext> client;
	bool of_client = false;
	bool can_seek = false;
	atomic<bool> was_read {false};
	//! What reads have brought so far.
	atomic<idx_t> bytes_read {0};
	//! A further open file; null until it could be opened.
	struct Other {
		mutex opening;
		unique_ptr<FileHandle> file;
	};
	//! Of the map; taken before the lock of one of them, never while a file is opened.
	mutex lock;
	unordered_map<idx_t, shared_ptr<Other>> others;
	//! How many of them are open.
	atomic<idx_t> others_opened {0};
};

class WrapFileSystem : public FileSystem {
public:
	//! `registry` keeps the wrapped system alive; it is what DuckDB registered before us.
	WrapFileSystem(shared_ptr<Wrap> wrap, shared_ptr<FileSystemRegistry> registry, FileSystem &all,
	               shared_ptr<Engine> engine);

	string GetName() const override {
		return "Penstock(" + wrap->name + ")";
	}
	bool CanHandleFile(const string &path) override;
	//! Wins over the wrapped system, which stays registered.
	bool IsManuallySet() override {
		return true;
	}

	void Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) override;
	int64_t Read(FileHandle &handle, void *buffer, int64_t size) override;
	void Write(FileHandle &handle, void *buffer, int64_t size, idx_t location) override;
	int64_t Write(FileHandle &handle, void *buffer, int64_t size) override;
	bool Trim(FileHandle &handle, idx_t offset, idx_t size) override;
	void FileSync(FileHandle &handle) override;
	void Truncate(FileHandle &handle, int64_t new_size) override;

	int64_t GetFileSize(FileHandle &handle) override;
	timestamp_t GetLastModifiedTime(FileHandle &handle) override;
	string GetVersionTag(FileHandle &handle) override;
	FileType GetFileType(FileHandle &handle) override;
	FileMetadata Stats(FileHandle &handle) override;
	void Seek(FileHandle &handle, idx_t location) override;
	void Reset(FileHandle &handle) override;
	idx_t SeekPosition(FileHandle &handle) override;
	bool CanSeek() override;
	bool OnDiskFile(FileHandle &handle) override;
	bool IsLocalFileSystem() const override;

	bool DirectoryExists(const string &path, optional_ptr<FileOpener> opener) override;
	void CreateDirectory(const string &path, optional_ptr<FileOpener> opener) override;
	void CreateDirectoriesRecursive(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveDirectory(const string &path, optional_ptr<FileOpener> opener) override;
	bool ListFiles(const string &directory, const std::function<void(const string &, bool)> &callback,
	               FileOpener *opener) override;
	void MoveFile(const string &source, const string &target, optional_ptr<FileOpener> opener) override;
	bool FileExists(const string &path, optional_ptr<FileOpener> opener) override;
	bool IsPipe(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveFile(const string &path, optional_ptr<FileOpener> opener) override;
	bool TryRemoveFile(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveFiles(const vector<string> &paths, optional_ptr<FileOpener> opener) override;
	vector<OpenFileInfo> Glob(const string &path, FileOpener *opener) override;

	string GetHomeDirectory() override;
	string ExpandPath(const string &path) override;
	string PathSeparator(const string &path) override;
	bool IsPathAbsolute(const string &path) override;
	string CanonicalizePath(const string &path, optional_ptr<FileOpener> opener) override;

#if PENSTOCK_DUCKDB_2
	unique_ptr<MemoryMappedFile> MemoryMapFile(const OpenFileInfo &file, FileOpenFlags flags,
	                                           const MMapOptions &options, optional_ptr<FileOpener> opener) override;
	optional<timestamp_t> GetCacheValidUntil(FileHandle &handle) override;
	optional<FileMetadata> GetStatsIfExists(const OpenFileInfo &file, optional_ptr<FileOpener> opener) override;
	bool CreateDirectoryExtended(const string &path, const CreateDirectoryOptions &options,
	                             optional_ptr<FileOpener> opener) override;
	bool RemoveDirectoryExtended(const string &path, const RemoveDirectoryOptions &options,
	                             optional_ptr<FileOpener> opener) override;
	void AbortFileWrite(FileHandle &handle) override;
	FileWriteMode GetWriteMode(FileHandle &handle) override;
	bool TryGetNetworkThroughput(FileHandle &handle, NetworkThroughputEstimate &result) override;
#endif

protected:
	unique_ptr<FileHandle> OpenFileExtended(const OpenFileInfo &file, FileOpenFlags flags,
	                                        optional_ptr<FileOpener> opener) override;
	bool SupportsOpenFileExtended() const override {
		return true;
	}
	bool ListFilesExtended(const string &directory, const std::function<void(OpenFileInfo &info)> &callback,
	                       optional_ptr<FileOpener> opener) override;
	bool SupportsListFilesExtended() const override {
		return true;
	}
	unique_ptr<MultiFileList> GlobFilesExtended(const string &path, const FileGlobInput &input,
	                                            optional_ptr<FileOpener> opener) override;
	bool SupportsGlobExtended() const override {
		return true;
	}

private:
	const shared_ptr<Wrap> wrap;
	const shared_ptr<FileSystemRegistry> registry;
	//! DuckDB's registry of file systems, which owns us.
	FileSystem &all;
	const shared_ptr<Engine> engine;
	ParallelHandle parallel;
};

} // namespace penstock
