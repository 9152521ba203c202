// Translates DuckDB's calls on files of nvme:// into the treaty's; keeps positions, and nothing else.
#include "volume_file_system.hpp"

#include "query.hpp"

namespace penstock {

namespace {

constexpr const char *SCHEME = "nvme://";
//! Most bytes that are appended and not written.
constexpr idx_t APPENDED_MAX_BYTES = 1024 * 1024;

VolumeHandle &Of(FileHandle &handle) {
	return handle.Cast<VolumeHandle>();
}

uint32_t Bits(FileOpenFlags flags) {
	uint32_t bits = 0;
	auto add = [&](bool wanted, uint32_t bit) { bits |= wanted ? bit : 0; };
	add(flags.OpenForWriting(), PS_FILE_WRITE);
	add(flags.CreateFileIfNotExists() || flags.ReturnNullIfExists(), PS_FILE_CREATE);
	add(flags.OverwriteExistingFile(), PS_FILE_TRUNCATE);
	add(flags.ExclusiveCreate() || flags.ReturnNullIfExists(), PS_FILE_EXCLUSIVE);
	add(flags.ReturnNullIfNotExists(), PS_FILE_NULL_IF_ABSENT);
	add(flags.Lock() == FileLockType::READ_LOCK, PS_FILE_READ_LOCK);
	add(flags.Lock() == FileLockType::WRITE_LOCK, PS_FILE_WRITE_LOCK);
	return bits;
}

} // namespace

bool IsOnVolume(const string &path) {
	return StringUtil::StartsWith(StringUtil::Lower(path.substr(0, string(SCHEME).size())), SCHEME);
}

string DatabaseOnVolume(const string &path) {
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	if (!ps_volume_database(Borrow(path), &rows, &error)) {
		ps_error_free(error);
		return string();
	}
	return Rows(rows).Cell(0, idx_t(0));
}

string ReplacedOnVolume(const string &path) {
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_volume_replaced(Borrow(path), &rows, &error), error);
	return Rows(rows).Cell(0, idx_t(0));
}

ps_file &VolumeHandle::File() {
	if (!file) {
		throw IOException("\"%s\" was closed", path);
	}
	return *file;
}

VolumeHandle::~VolumeHandle() {
	try {
		Close();
	} catch (std::exception &) {
		// Nobody synced what could not be written, so nobody was told that it is there.
		file.reset();
	}
}

string VolumeHandle::Version() {
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_file_version(&File(), &rows, &error), error);
	return Rows(rows).Cell(0, idx_t(0));
}

idx_t VolumeHandle::Size() {
	return ps_file_size(&File()) + appended.size();
}

void VolumeHandle::Append(const void *buffer, idx_t size) {
	CheckCut();
	if (appended.size() + size > APPENDED_MAX_BYTES) {
		WriteAppended();
	}
	if (size > APPENDED_MAX_BYTES) {
		WriteAt(buffer, size, Size());
		return;
	}
	auto bytes = static_cast<const data_t *>(buffer);
	appended.insert(appended.end(), bytes, bytes + size);
}

void VolumeHandle::WriteAppended() {
	if (appended.empty()) {
		return;
	}
	// Given up if this fails: the log is cut back to what was there before.
	auto bytes = std::move(appended);
	appended.clear();
	WriteAt(bytes.data(), bytes.size(), ps_file_size(&File()));
}

void VolumeHandle::Sync() {
	CheckCut();
	WriteAppended();
	ps_error *error = nullptr;
	Check(ps_file_sync(&File(), &error), error);
	unsynced = false;
}

void VolumeHandle::Truncate(idx_t size) {
	auto written = ps_file_size(&File());
	if (size >= written && size <= Size()) {
		appended.resize(size - written);
		return;
	}
	if (size < written) {
		appended.clear();
	} else {
		WriteAppended();
	}
	unsynced = true;
	ps_error *error = nullptr;
	if (ps_file_truncate(&File(), size, &error)) {
		return;
	}
	if (!appends) {
		Raise(error);
	}
	// DuckDB cuts its log back where a commit has failed, and an exception there would end the process.
	// What is left must never have anything behind it, or a replay would take it for committed.
	uncut = Text(ps_error_message(error));
	ps_error_free(error);
}

void VolumeHandle::CheckCut() {
	if (!uncut.empty()) {
		throw IOException("\"%s\" takes nothing more, since a transaction that failed could not be cut off: %s. "
		                  "DETACH the database and ATTACH it again",
		                  path, uncut);
	}
}

idx_t VolumeHandle::ReadAt(void *buffer, idx_t size, idx_t location) {
	WriteAppended();
	uint64_t got = 0;
	ps_error *error = nullptr;
	// DuckDB does not say for which statement it reads a block of a database.
	auto query = ClientIo::OfTask();
	Check(ps_file_read(&File(), query ? query->handle : nullptr, buffer, size, location, &got, &error), error);
	DUCKDB_LOG_FILE_SYSTEM_READ((*this), got, location);
	return got;
}

void VolumeHandle::WriteAt(const void *buffer, idx_t size, idx_t location) {
	CheckCut();
	unsynced = true;
	ps_error *error = nullptr;
	Check(ps_file_write(&File(), buffer, size, location, &error), error);
	DUCKDB_LOG_FILE_SYSTEM_WRITE((*this), size, location);
}

void VolumeHandle::Close() {
	if (!file) {
		return;
	}
	WriteAppended();
	// COPY never syncs, and unlike on a file system a file has no size before it is synced.
	ps_error *error = nullptr;
	bool lasts = !unsynced || ps_file_sync(file.get(), &error);
	file.reset();
	DUCKDB_LOG_FILE_SYSTEM_CLOSE((*this));
	if (!lasts) {
		// What was removed meanwhile need not last.
		IsKind(error, ErrorKind::NOT_FOUND);
	}
}

VolumeFileSystem::VolumeFileSystem(shared_ptr<Engine> engine_p) : engine(std::move(engine_p)) {
	ps_volumes *handle = nullptr;
	ps_error *error = nullptr;
	Check(ps_volumes_new(engine->handle, &handle, &error), error);
	volumes.reset(handle);
}

//! A volume in a file is a local file, and is disabled with those.
void VolumeFileSystem::RefuseDisabled(const string &path) const {
	if (engine->db.GetFileSystem().SubSystemIsDisabled("LocalFileSystem") && ps_volume_is_file(Borrow(path))) {
		throw PermissionException("File system LocalFileSystem has been disabled by configuration");
	}
}

Pairs VolumeFileSystem::Settings(const string &path, optional_ptr<FileOpener> opener) const {
	RefuseDisabled(path);
	auto client = FileOpener::TryGetClientContext(opener);
	if (client) {
		// The limits of a statement hold, though it may never read a store.
		ClientIo::Get(*client, engine)->Current();
	}
	return engine->settings.Changed(client);
}

unique_ptr<FileHandle> VolumeFileSystem::OpenFileExtended(const OpenFileInfo &info, FileOpenFlags flags,
                                                          optional_ptr<FileOpener> opener) {
	auto settings = Settings(info.path, opener);
	ps_file *file = nullptr;
	ps_error *error = nullptr;
	if (!ps_file_open(volumes.get(), Borrow(info.path), settings.Data(), settings.Count(), Bits(flags), &file,
	                  &error)) {
		if (!flags.ReturnNullIfExists()) {
			Raise(error);
		}
		IsKind(error, ErrorKind::CONFLICT);
		return nullptr;
	}
	if (!file) {
		return nullptr;
	}
	auto handle = make_uniq<VolumeHandle>(*this, info.path, flags, VolumeFileHandle(file));
	auto client = FileOpener::TryGetClientContext(opener);
	if (client && !flags.OpenForWriting() && flags.Lock() == FileLockType::NO_LOCK) {
		// DuckDB reads a footer by one handle and what it tells of by another.
		ClientIo::Get(*client, engine)->Current()->SeesVersion(info.path, handle->Version());
	}
	if (opener) {
		handle->TryAddLogger(*opener);
		DUCKDB_LOG_FILE_SYSTEM_OPEN((*handle));
	}
	return std::move(handle);
}

void VolumeFileSystem::Read(FileHandle &handle, void *buffer, int64_t size, idx_t location) {
	auto wanted = NumericCast<idx_t>(size);
	auto got = Of(handle).ReadAt(buffer, wanted, location);
	if (got != wanted) {
		throw IOException("Could not read %llu bytes at %llu of \"%s\": it has %llu bytes", wanted, location,
		                  handle.path, ps_file_size(&Of(handle).File()));
	}
}

int64_t VolumeFileSystem::Read(FileHandle &handle, void *buffer, int64_t size) {
	auto &file = Of(handle);
	auto got = file.ReadAt(buffer, NumericCast<idx_t>(size), file.position);
	file.position += got;
	return NumericCast<int64_t>(got);
}

void VolumeFileSystem::Write(FileHandle &handle, void *buffer, int64_t size, idx_t location) {
	Of(handle).WriteAt(buffer, NumericCast<idx_t>(size), location);
}

int64_t VolumeFileSystem::Write(FileHandle &handle, void *buffer, int64_t size) {
	auto &file = Of(handle);
	if (file.appends) {
		file.Append(buffer, NumericCast<idx_t>(size));
		file.position = file.Size();
		return size;
	}
	file.WriteAt(buffer, NumericCast<idx_t>(size), file.position);
	file.position += NumericCast<idx_t>(size);
	return size;
}

bool VolumeFileSystem::Trim(FileHandle &handle, idx_t offset, idx_t length) {
	ps_error *error = nullptr;
	Check(ps_file_trim(&Of(handle).File(), offset, length, &error), error);
	return true;
}

void VolumeFileSystem::FileSync(FileHandle &handle) {
	Of(handle).Sync();
}

void VolumeFileSystem::Truncate(FileHandle &handle, int64_t new_size) {
	Of(handle).Truncate(NumericCast<idx_t>(new_size));
}

int64_t VolumeFileSystem::GetFileSize(FileHandle &handle) {
	return NumericCast<int64_t>(Of(handle).Size());
}

//! A volume keeps no times. One in the future makes DuckDB's file cache keep nothing.
timestamp_t VolumeFileSystem::GetLastModifiedTime(FileHandle &) {
	return timestamp_t::infinity();
}

FileType VolumeFileSystem::GetFileType(FileHandle &) {
	return FileType::FILE_TYPE_REGULAR;
}

FileMetadata VolumeFileSystem::Stats(FileHandle &handle) {
	FileMetadata metadata;
	metadata.file_size = GetFileSize(handle);
	metadata.last_modification_time = GetLastModifiedTime(handle);
	metadata.file_type = FileType::FILE_TYPE_REGULAR;
	return metadata;
}

void VolumeFileSystem::Seek(FileHandle &handle, idx_t location) {
	Of(handle).position = location;
}

void VolumeFileSystem::Reset(FileHandle &handle) {
	Seek(handle, 0);
}

idx_t VolumeFileSystem::SeekPosition(FileHandle &handle) {
	return Of(handle).position;
}

string VolumeFileSystem::CanonicalizePath(const string &path, optional_ptr<FileOpener> opener) {
	auto settings = Settings(path, opener);
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_volume_url(volumes.get(), Borrow(path), settings.Data(), settings.Count(), &rows, &error), error);
	return Rows(rows).Cell(0, idx_t(0));
}

vector<OpenFileInfo> VolumeFileSystem::Glob(const string &path, FileOpener *opener) {
	auto settings = Settings(path, opener);
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_volume_glob(volumes.get(), Borrow(path), settings.Data(), settings.Count(), &rows, &error), error);
	Rows urls(rows);
	vector<OpenFileInfo> found;
	for (idx_t row = 0; row < urls.Count(); row++) {
		found.emplace_back(urls.Cell(row, idx_t(0)));
	}
	return found;
}

bool VolumeFileSystem::FileExists(const string &path, optional_ptr<FileOpener> opener) {
	auto settings = Settings(path, opener);
	bool exists = false;
	ps_error *error = nullptr;
	Check(ps_file_exists(volumes.get(), Borrow(path), settings.Data(), settings.Count(), &exists, &error), error);
	return exists;
}

bool VolumeFileSystem::TryRemoveFile(const string &path, optional_ptr<FileOpener> opener) {
	auto settings = Settings(path, opener);
	bool was_there = false;
	ps_error *error = nullptr;
	Check(ps_file_remove(volumes.get(), Borrow(path), settings.Data(), settings.Count(), &was_there, &error), error);
	return was_there;
}

void VolumeFileSystem::RemoveFile(const string &path, optional_ptr<FileOpener> opener) {
	if (!TryRemoveFile(path, opener)) {
		throw IOException("Could not remove \"%s\": there is no such file", path);
	}
}

void VolumeFileSystem::MoveFile(const string &source, const string &target, optional_ptr<FileOpener> opener) {
	auto settings = Settings(source, opener);
	RefuseDisabled(target);
	ps_error *error = nullptr;
	Check(ps_file_move(volumes.get(), Borrow(source), Borrow(target), settings.Data(), settings.Count(), &error),
	      error);
}

bool VolumeFileSystem::DirectoryExists(const string &path, optional_ptr<FileOpener>) {
	RefuseDisabled(path);
	bool exists = false;
	ps_error *error = nullptr;
	Check(ps_spill_exists(volumes.get(), Borrow(path), &exists, &error), error);
	return exists;
}

void VolumeFileSystem::CreateDirectory(const string &path, optional_ptr<FileOpener> opener) {
	auto settings = Settings(path, opener);
	ps_error *error = nullptr;
	Check(ps_spill_create(volumes.get(), Borrow(path), settings.Data(), settings.Count(), &error), error);
}

void VolumeFileSystem::RemoveDirectory(const string &path, optional_ptr<FileOpener>) {
	ps_error *error = nullptr;
	Check(ps_spill_remove(volumes.get(), Borrow(path), &error), error);
}

bool VolumeFileSystem::ListFilesExtended(const string &directory,
                                         const std::function<void(OpenFileInfo &info)> &callback,
                                         optional_ptr<FileOpener>) {
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_spill_list(volumes.get(), Borrow(directory), &rows, &error), error);
	Rows names(rows);
	for (idx_t row = 0; row < names.Count(); row++) {
		OpenFileInfo info(names.Cell(row, idx_t(0)));
		callback(info);
	}
	return true;
}

} // namespace penstock
