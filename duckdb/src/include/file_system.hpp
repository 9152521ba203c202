// DuckDB's file system over the treaty. No policy: every decision about requests is the engine's.
#pragma once

#include "options.hpp"
#include "query.hpp"
#include "writer.hpp"

namespace penstock {


class PenstockFileSystem : public FileSystem {
public:
	explicit PenstockFileSystem(shared_ptr<Engine> engine) : engine(std::move(engine)) {
	}

	string GetName() const override {
		return "PenstockFileSystem";
	}
	bool CanHandleFile(const string &path) override {
		return engine->Serves(path);
	}
	//! Wins over httpfs and azure whether they are loaded earlier or later.
	bool IsManuallySet() override {
		return true;
	}

	void Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) override;
	int64_t Read(FileHandle &handle, void *buffer, int64_t size) override;
	void Write(FileHandle &handle, void *buffer, int64_t size, idx_t location) override;
	int64_t Write(FileHandle &handle, void *buffer, int64_t size) override;
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
	bool CanSeek() override {
		return true;
	}
	bool OnDiskFile(FileHandle &) override {
		return false;
	}
	bool IsPipe(const string &, optional_ptr<FileOpener>) override {
		return false;
	}
	string PathSeparator(const string &) override {
		return "/";
	}
	//! Object names are taken literally: "a//b" and "a/../b" are names of their own.
	string CanonicalizePath(const string &path, optional_ptr<FileOpener>) override {
		return path;
	}

	vector<OpenFileInfo> Glob(const string &path, FileOpener *opener) override;
	bool FileExists(const string &path, optional_ptr<FileOpener> opener) override;
	bool DirectoryExists(const string &path, optional_ptr<FileOpener> opener) override;
	void CreateDirectory(const string &path, optional_ptr<FileOpener> opener) override;
	void CreateDirectoriesRecursive(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveDirectory(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveFile(const string &path, optional_ptr<FileOpener> opener) override;
	bool TryRemoveFile(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveFiles(const vector<string> &paths, optional_ptr<FileOpener> opener) override;
	void MoveFile(const string &source, const string &target, optional_ptr<FileOpener> opener) override;

#if PENSTOCK_DUCKDB_2
	void AbortFileWrite(FileHandle &handle) override;
	//! For DuckDB's prefetcher: it fetches together what a gap divides that is cheaper than a request.
	bool TryGetNetworkThroughput(FileHandle &handle, NetworkThroughputEstimate &result) override;
	optional<timestamp_t> GetCacheValidUntil(FileHandle &handle) override;
	optional<FileMetadata> GetStatsIfExists(const OpenFileInfo &file, optional_ptr<FileOpener> opener) override;
	bool CreateDirectoryExtended(const string &path, const CreateDirectoryOptions &options,
	                             optional_ptr<FileOpener> opener) override;
	bool RemoveDirectoryExtended(const string &path, const RemoveDirectoryOptions &options,
	                             optional_ptr<FileOpener> opener) override;
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
	unique_ptr<FileHandle> OpenRead(const OpenFileInfo &file, FileOpenFlags flags, optional_ptr<FileOpener> opener);
	unique_ptr<FileHandle> OpenWrite(const OpenFileInfo &file, FileOpenFlags flags, optional_ptr<FileOpener> opener);

	shared_ptr<Engine> engine;
};

} // namespace penstock
