// DuckDB's file system over volumes on devices: nvme://PATH?db=NAME. Where bytes lie, when they are
// durable and who may open what is decided behind the treaty.
#pragma once

#include "query.hpp"

namespace penstock {

//! True for nvme:// in any case.
bool IsOnVolume(const string &path);
//! The database that a path names; empty if it names none, or is wrong.
string DatabaseOnVolume(const string &path);
//! The path of the same file that COPY can replace: what it makes of it by itself would be another device.
string ReplacedOnVolume(const string &path);

class VolumeHandle : public FileHandle {
public:
	VolumeHandle(FileSystem &fs, const string &path, FlagsArg flags, VolumeFileHandle file)
	    : FileHandle(fs, path, flags), appends(flags.OpenForAppending()), file(std::move(file)) {
	}
	~VolumeHandle() override;

	ps_file &File();
	idx_t Size();
	//! The same for every handle to the same file, and another once that was replaced.
	string Version();
	//! As many bytes as there are.
	idx_t ReadAt(void *buffer, idx_t size, idx_t location);
	void WriteAt(const void *buffer, idx_t size, idx_t location);
	//! Behind the last byte. DuckDB writes its log in pieces of 4 KiB: they go to the device together,
	//! when there are enough of them or somebody asks for more than the size.
	void Append(const void *buffer, idx_t size);
	void Sync();
	//! Raises nothing for a log: one that cannot be cut back takes nothing more instead.
	void Truncate(idx_t size);
	void Close() override;

	const bool appends;
	idx_t position = 0;

private:
	void WriteAppended();
	//! Raises if the log could not be cut back.
	void CheckCut();

	VolumeFileHandle file;
	//! What was appended and is not written yet.
	vector<data_t> appended;
	//! Whether anything was written or cut off since the last sync.
	bool unsynced = false;
	//! Why the log could not be cut back; empty if it could.
	string uncut;
};

class VolumeFileSystem : public FileSystem {
public:
	explicit VolumeFileSystem(shared_ptr<Engine> engine);

	string GetName() const override {
		return "PenstockVolumeFileSystem";
	}
	bool CanHandleFile(const string &path) override {
		return IsOnVolume(path);
	}

	void Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) override;
	int64_t Read(FileHandle &handle, void *buffer, int64_t size) override;
	void Write(FileHandle &handle, void *buffer, int64_t size, idx_t location) override;
	int64_t Write(FileHandle &handle, void *buffer, int64_t size) override;
	bool Trim(FileHandle &handle, idx_t offset, idx_t length) override;
	void FileSync(FileHandle &handle) override;
	void Truncate(FileHandle &handle, int64_t new_size) override;

	int64_t GetFileSize(FileHandle &handle) override;
	timestamp_t GetLastModifiedTime(FileHandle &handle) override;
	FileType GetFileType(FileHandle &handle) override;
	FileMetadata Stats(FileHandle &handle) override;
	void Seek(FileHandle &handle, idx_t location) override;
	void Reset(FileHandle &handle) override;
	idx_t SeekPosition(FileHandle &handle) override;
	bool CanSeek() override {
		return true;
	}
	//! False would make DuckDB read neighbouring blocks together and copy them; the volume reads ahead.
	bool OnDiskFile(FileHandle &) override {
		return true;
	}
	bool IsPipe(const string &, optional_ptr<FileOpener>) override {
		return false;
	}
	string PathSeparator(const string &) override {
		return "/";
	}
	//! The same text for every spelling of a database, so that DuckDB sees when it is attached twice.
	string CanonicalizePath(const string &path, optional_ptr<FileOpener> opener) override;

	vector<OpenFileInfo> Glob(const string &path, FileOpener *opener) override;
	bool FileExists(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveFile(const string &path, optional_ptr<FileOpener> opener) override;
	bool TryRemoveFile(const string &path, optional_ptr<FileOpener> opener) override;
	void MoveFile(const string &source, const string &target, optional_ptr<FileOpener> opener) override;
	//! Directories are places to spill.
	bool DirectoryExists(const string &path, optional_ptr<FileOpener> opener) override;
	void CreateDirectory(const string &path, optional_ptr<FileOpener> opener) override;
	void RemoveDirectory(const string &path, optional_ptr<FileOpener> opener) override;

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

private:
	//! The settings that are not as they were when the extension was loaded.
	void RefuseDisabled(const string &path) const;
	Pairs Settings(const string &path, optional_ptr<FileOpener> opener) const;

	shared_ptr<Engine> engine;
	VolumesHandle volumes;
};

} // namespace penstock
