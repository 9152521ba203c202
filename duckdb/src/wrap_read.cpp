// Carries out sub-reads on the wrapped system's own handles. How a read is split is the engine's to decide.
#include "wrap_file_system.hpp"

#include "duckdb/main/client_data.hpp"

#include <exception>

namespace penstock {

namespace {

bool SeeksIn(FileSystem &fs) {
	try {
		return fs.CanSeek();
	} catch (NotImplementedException &) { // what the base class says
		return false;
	}
}

//! What has to be the same in two open files of one version of an object.
struct Version {
	explicit Version(FileHandle &handle) : size(handle.file_system.GetFileSize(handle)) {
		tag = handle.file_system.GetVersionTag(handle);
		try {
			modified = handle.file_system.GetLastModifiedTime(handle);
		} catch (NotImplementedException &) { // what the base class says
			modified = timestamp_t(0);
		}
	}
	bool operator==(const Version &other) const {
		return size == other.size && tag == other.tag && modified == other.modified;
	}

	int64_t size;
	string tag;
	timestamp_t modified;
};

} // namespace

WrapHandle::WrapHandle(FileSystem &fs, const OpenFileInfo &file_p, FlagsArg flags, unique_ptr<FileHandle> own_p,
                       bool is_connected_p, optional_ptr<FileOpener> opener, const shared_ptr<Engine> &engine,
                       unique_ptr<WrapChange> change_p)
    : FileHandle(fs, file_p.path, flags), change(std::move(change_p)), own(std::move(own_p)), file(file_p),
      engine(engine), is_connected(is_connected_p) {
	if (!opener || !flags.OpenForReading() || flags.OpenForWriting()) {
		return;
	}
	auto context = FileOpener::TryGetClientContext(opener);
	if (context) {
		client = context->shared_from_this();
		of_client = true;
	}
	reads = make_uniq<Scope>(engine, opener);
	is_cached = HasFileCache(opener);
	can_seek = SeeksIn(own->file_system);
}

bool WrapHandle::IsUntold() {
	if (!is_cached) {
		return false;
	}
	lock_guard<mutex> guard(lock);
	if (!was_asked) {
		Version version(*own);
		ps_known known {};
		known.has_size = true;
		known.size_bytes = NumericCast<uint64_t>(MaxValue<int64_t>(version.size, 0));
		known.has_modified = version.modified != timestamp_t(0);
		known.modified_us = version.modified.value;
		known.etag = Borrow(version.tag);
		ps_kept *held = nullptr;
		ps_error *error = nullptr;
		Check(ps_told_elsewhere(engine->handle, Borrow(file.path), &known, &held, &error), error);
		kept.reset(held);
		was_asked = true;
	}
	return !kept;
}

#if PENSTOCK_DUCKDB_2
optional<timestamp_t> WrapHandle::Deadline(optional<timestamp_t> told) {
	if (!told || *told == timestamp_t::ninfinity()) {
		return told;
	}
	Version version(*own);
	return version.tag.empty() && version.modified == timestamp_t(0) ? told : optional<timestamp_t>();
}
#endif

void WrapHandle::Close() {
	{
		lock_guard<mutex> guard(lock);
		for (auto &other : others) {
			lock_guard<mutex> opening(other.second->opening);
			if (other.second->file) {
				other.second->file->Close();
			}
		}
	}
	own->Close();
	if (change) {
		change->Ended();
	}
}

//! One read on its way: where its bytes go, and what failed first.
struct WrapHandle::SubReads {
	WrapHandle &handle;
	Query &query;
	data_ptr_t buffer;
	idx_t location;
	mutex lock;
	std::exception_ptr failure;
};

bool WrapHandle::OnSubRead(void *context, uint64_t number, uint64_t offset, uint64_t size) {
	auto &reads = *static_cast<SubReads *>(context);
	try {
		if (reads.query.IsInterrupted()) {
			throw InterruptException();
		}
		auto &file = reads.handle.File(number);
		file.file_system.Read(file, reads.buffer + (offset - reads.location), NumericCast<int64_t>(size), offset);
		return true;
	} catch (...) {
		lock_guard<mutex> guard(reads.lock);
		if (!reads.failure) {
			reads.failure = std::current_exception();
		}
		return false;
	}
}

void WrapHandle::ReadAt(const ps_parallel &parallel, data_ptr_t buffer, idx_t size, idx_t location) {
	if (!CanOpenAgain()) {
		own->file_system.Read(*own, buffer, NumericCast<int64_t>(size), location);
		return;
	}
	auto keep_alive = client.lock();
	auto query = reads->Current();
	SubReads sub_reads {*this, *query, buffer, location, {}, nullptr};
	ps_error *error = nullptr;
	ps_own_file own_file {own->flags.RequireParallelAccess(), is_connected, FilesUsed(), bytes_read};
	bool succeeded =
	    ps_parallel_read(&parallel, query->handle, location, size, own_file, OnSubRead, &sub_reads, &error);
	if (!succeeded && sub_reads.failure) {
		ps_error_free(error);
		std::rethrow_exception(sub_reads.failure);
	}
	Check(succeeded, error);
	bytes_read += size;
	was_read = true;
}

int64_t WrapHandle::ReadNext(const ps_parallel &parallel, data_ptr_t buffer, int64_t size) {
	auto &fs = own->file_system;
	auto wanted = NumericCast<idx_t>(size);
	if (can_seek && CanOpenAgain() && ps_parallel_may_split(&parallel, reads->Current()->handle, wanted)) {
		auto position = fs.SeekPosition(*own);
		auto end = NumericCast<idx_t>(MaxValue<int64_t>(fs.GetFileSize(*own), 0));
		if (position < end) {
			auto count = MinValue(wanted, end - position);
			ReadAt(parallel, buffer, count, position);
			fs.Seek(*own, position + count);
			return NumericCast<int64_t>(count);
		}
	}
	auto count = fs.Read(*own, buffer, size);
	bytes_read += NumericCast<idx_t>(MaxValue<int64_t>(count, 0));
	was_read = true;
	return count;
}

uint64_t WrapHandle::FilesUsed() {
	return was_read ? 1 + others_opened : 0;
}

FileHandle &WrapHandle::File(idx_t number) {
	if (number == 0) {
		return *own;
	}
	shared_ptr<Other> other;
	{
		lock_guard<mutex> guard(lock);
		auto &known = others[number];
		if (!known) {
			known = make_shared_ptr<Other>();
		}
		other = known;
	}
	// A lock for each, since opening may cost a request: those of several helpers overlap. A file that could not be
	// opened is tried again by whoever wants it next.
	lock_guard<mutex> opening(other->opening);
	if (!other->file) {
		other->file = OpenAgain();
		others_opened++;
	}
	return *other->file;
}

//! The same version of the same object once more, without a request where the system takes our word for it.
unique_ptr<FileHandle> WrapHandle::OpenAgain() {
	Version version(*own);
	OpenFileInfo again(file.path);
	again.extended_info = file.extended_info ? make_shared_ptr<ExtendedOpenFileInfo>(*file.extended_info)
	                                         : make_shared_ptr<ExtendedOpenFileInfo>();
	auto &known = again.extended_info->options;
	known["file_size"] = Value::UBIGINT(NumericCast<uint64_t>(version.size));
	known["last_modified"] = Value::TIMESTAMP(version.modified);
	known["etag"] = Value(version.tag);

	FileOpenFlags open_flags = FileFlags::FILE_FLAGS_READ;
	open_flags |= FileFlags::FILE_FLAGS_DIRECT_IO;
	open_flags |= FileFlags::FILE_FLAGS_PARALLEL_ACCESS;
	if (own->flags.MultiClientAccess()) {
		open_flags |= FileFlags::FILE_FLAGS_MULTI_CLIENT_ACCESS;
	}
	auto context = client.lock();
	optional_ptr<FileOpener> opener;
	if (context) {
		opener = ClientData::Get(*context).file_opener.get();
	} else {
		opener = static_cast<OpenerFileSystem &>(engine->db.GetFileSystem()).GetOpener();
	}
	auto opened = own->file_system.OpenFile(again, open_flags, opener);
	if (!opened || !(Version(*opened) == version)) {
		throw IOException("The object changed while it was read: \"%s\". Run the statement again",
		                  WithoutSecrets(file.path));
	}
	return opened;
}

} // namespace penstock
