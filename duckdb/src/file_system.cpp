// Reading and writing open files. Opening is in open.cpp, names are in names.cpp.
#include "file_system.hpp"

#include "file_handle.hpp"

namespace penstock {

namespace {

ReadHandle &Reader(FileHandle &handle) {
	auto &file = handle.Cast<PenstockHandle>();
	if (!file.is_reader) {
		throw InvalidInputException("\"%s\" is open for writing, it cannot be read", WithoutSecrets(handle.path));
	}
	return file.Cast<ReadHandle>();
}

WriteHandle &Writer(FileHandle &handle) {
	auto &file = handle.Cast<PenstockHandle>();
	if (file.is_reader) {
		throw InvalidInputException("\"%s\" is open for reading, it cannot be written", WithoutSecrets(handle.path));
	}
	return file.Cast<WriteHandle>();
}

bool IsReader(FileHandle &handle) {
	return handle.Cast<PenstockHandle>().is_reader;
}

} // namespace

void PenstockFileSystem::Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) {
	auto &file = Reader(handle);
	auto count = NumericCast<idx_t>(size);
	if (location > file.size || count > file.size - location) {
		throw IOException("Cannot read %lld bytes at %llu of \"%s\": it has %llu bytes", size, location,
		                  WithoutSecrets(handle.path), file.size);
	}
	file.ReadAt(buffer, count, location);
}

int64_t PenstockFileSystem::Read(FileHandle &handle, void *buffer, int64_t size) {
	return NumericCast<int64_t>(Reader(handle).ReadNext(buffer, NumericCast<idx_t>(size)));
}

int64_t PenstockFileSystem::Write(FileHandle &handle, void *buffer, int64_t size) {
	auto &file = Writer(handle);
	file.writer->Write(buffer, NumericCast<idx_t>(size));
	file.LogWrite(size, file.writer->Position() - NumericCast<idx_t>(size));
	return size;
}

void PenstockFileSystem::Write(FileHandle &handle, void *buffer, int64_t size, idx_t location) {
	auto position = Writer(handle).writer->Position();
	if (location != position) {
		throw NotImplementedException("Objects are written from start to end: \"%s\" is at byte %llu, a write at %llu "
		                              "is not possible",
		                              WithoutSecrets(handle.path), position, location);
	}
	Write(handle, buffer, size);
}

//! An object becomes durable as a whole when it is closed; there is nothing earlier to wait for.
void PenstockFileSystem::FileSync(FileHandle &) {
}

void PenstockFileSystem::Truncate(FileHandle &handle, int64_t) {
	throw NotImplementedException("Objects cannot be truncated: \"%s\"", WithoutSecrets(handle.path));
}

int64_t PenstockFileSystem::GetFileSize(FileHandle &handle) {
	auto size = IsReader(handle) ? Reader(handle).size : Writer(handle).writer->Position();
	return NumericCast<int64_t>(size);
}

timestamp_t PenstockFileSystem::GetLastModifiedTime(FileHandle &handle) {
	return IsReader(handle) ? Reader(handle).LastModified() : timestamp_t::infinity();
}

string PenstockFileSystem::GetVersionTag(FileHandle &handle) {
	return IsReader(handle) ? Reader(handle).VersionTag() : string();
}

FileType PenstockFileSystem::GetFileType(FileHandle &) {
	return FileType::FILE_TYPE_REGULAR;
}

FileMetadata PenstockFileSystem::Stats(FileHandle &handle) {
	FileMetadata metadata;
	metadata.file_size = GetFileSize(handle);
	metadata.last_modification_time = GetLastModifiedTime(handle);
	metadata.file_type = FileType::FILE_TYPE_REGULAR;
#if PENSTOCK_DUCKDB_2
	metadata.version_tag = GetVersionTag(handle);
#endif
	return metadata;
}

void PenstockFileSystem::Seek(FileHandle &handle, idx_t location) {
	if (IsReader(handle)) {
		Reader(handle).position = location;
	} else if (location != Writer(handle).writer->Position()) {
		throw NotImplementedException("Objects are written from start to end: cannot seek in \"%s\"",
		                              WithoutSecrets(handle.path));
	}
}

void PenstockFileSystem::Reset(FileHandle &handle) {
	Seek(handle, 0);
}

idx_t PenstockFileSystem::SeekPosition(FileHandle &handle) {
	return IsReader(handle) ? Reader(handle).position : Writer(handle).writer->Position();
}

#if PENSTOCK_DUCKDB_2
void PenstockFileSystem::AbortFileWrite(FileHandle &handle) {
	Writer(handle).writer->Abort();
}

bool PenstockFileSystem::TryGetNetworkThroughput(FileHandle &handle, NetworkThroughputEstimate &result) {
	if (!IsReader(handle)) {
		return false;
	}
	result = Reader(handle).Link();
	return true;
}

optional<timestamp_t> PenstockFileSystem::GetCacheValidUntil(FileHandle &handle) {
	if (!IsReader(handle)) {
		return {};
	}
	return Reader(handle).ValidUntil();
}
#endif

} // namespace penstock
