// Reads through a window; tells the statement when a file that is written ends. Bytes go straight to the treaty.
#include "file_handle.hpp"

#include <exception>

namespace penstock {

namespace {

//! Sequential reads at least this large need no window.
constexpr idx_t WINDOW_MIN_BYTES = 256 * 1024;
constexpr idx_t WINDOW_MAX_BYTES = 8 * 1024 * 1024;

//! A file as the log of file systems shows it: that log writes the path of the handle it is given.
class LoggedFile : public FileHandle {
public:
	explicit LoggedFile(const PenstockHandle &file)
	    : FileHandle(file.file_system, WithoutSecrets(file.path), file.flags) {
		logger = file.logger;
	}
	void Close() override {
	}
};

} // namespace

void PenstockHandle::LogOpen() const {
	if (logger) {
		LoggedFile file(*this);
		DUCKDB_LOG_FILE_SYSTEM_OPEN(file);
	}
}

void PenstockHandle::LogRead(idx_t size, idx_t location) const {
	if (logger) {
		LoggedFile file(*this);
		DUCKDB_LOG_FILE_SYSTEM_READ(file, size, location);
	}
}

void PenstockHandle::LogWrite(idx_t size, idx_t location) const {
	if (logger) {
		LoggedFile file(*this);
		DUCKDB_LOG_FILE_SYSTEM_WRITE(file, size, location);
	}
}

void PenstockHandle::LogClose() const {
	if (logger) {
		LoggedFile file(*this);
		DUCKDB_LOG_FILE_SYSTEM_CLOSE(file);
	}
}

ReadHandle::ReadHandle(FileSystem &fs, const string &path, FlagsArg flags, Scope scope_p, ReaderHandle reader_p,
                       bool is_cached)
    : PenstockHandle(fs, path, flags, true), scope(std::move(scope_p)), reader(std::move(reader_p)),
      is_cached(is_cached) {
	size = ps_reader_size(reader.get());
}

string ReadHandle::VersionTag() {
	ps_told told;
	return ps_reader_version(reader.get(), scope.Current()->handle, is_cached, &told) ? Text(told.etag) : string();
}

timestamp_t ReadHandle::LastModified() {
	ps_told told;
	if (ps_reader_version(reader.get(), scope.Current()->handle, is_cached, &told) && told.has_modified) {
		return timestamp_t(told.modified_us);
	}
	// Unknown lies in the future: DuckDB's file cache then keeps nothing, where it would subtract
	// the other infinity.
	return timestamp_t::infinity();
}

void ReadHandle::ReadAt(void *buffer, idx_t count, idx_t location) {
	auto query = scope.Current();
	query->TellBounds();
	ps_error *error = nullptr;
	Check(ps_read_at(reader.get(), query->handle, buffer, count, location, &error), error);
	LogRead(count, location);
}

void ReadHandle::FillWindow() {
	// Who goes back reads again, as far as before at least (DuckDB looks at a gzip file, and then reads it from its
	// beginning); what may end at any moment is read little further than it was used.
	bool goes_on = window_size > 0 && position == window_start + window_size;
	bool again = position < read_to;
	auto longer = goes_on ? window_size * 2 : again ? MaxValue(window_longest, read_to - position) : 0;
	if (scope.Current()->MayEndEarly()) {
		longer = MinValue(longer, MaxValue(position, read_to) / 10);
	}
	auto wanted = MinValue(MaxValue<idx_t>(longer, WINDOW_MIN_BYTES), WINDOW_MAX_BYTES);
	auto count = MinValue(wanted, size - position);
	window.resize(count);
	window_size = 0;
	ReadAt(window.data(), count, position);
	window_start = position;
	window_size = count;
	window_longest = MaxValue(window_longest, count);
	read_to = MaxValue(read_to, position + count);
}

idx_t ReadHandle::ReadNext(void *buffer, idx_t count) {
	if (position >= size) {
		return 0;
	}
	count = MinValue(count, size - position);
	bool in_window = position >= window_start && position < window_start + window_size;
	if (!in_window && count < WINDOW_MIN_BYTES) {
		FillWindow();
		in_window = true;
	}
	if (in_window) {
		auto offset = position - window_start;
		count = MinValue(count, window_size - offset);
		memcpy(buffer, window.data() + offset, count);
	} else {
		ReadAt(buffer, count, position);
	}
	position += count;
	return count;
}

void ReadHandle::Close() {
	LogClose();
}

#if PENSTOCK_DUCKDB_2
NetworkThroughputEstimate ReadHandle::Link() const {
	NetworkThroughputEstimate link;
	ps_reader_link(reader.get(), scope.Current()->handle, &link.latency_seconds, &link.bandwidth_bytes_per_s);
	return link;
}

optional<timestamp_t> ReadHandle::ValidUntil() const {
	uint64_t us = 0;
	if (!ps_reader_valid_for(reader.get(), scope.Current()->handle, &us)) {
		return {};
	}
	auto now = Timestamp::GetCurrentTimestamp();
	auto left = uint64_t(timestamp_t::infinity().value - now.value);
	return us < left ? timestamp_t(now.value + int64_t(us)) : timestamp_t::infinity();
}
#endif

WriteHandle::WriteHandle(FileSystem &fs, const string &path, FlagsArg flags, shared_ptr<WriterState> writer_p)
    : PenstockHandle(fs, path, flags, false), writer(std::move(writer_p)),
      exceptions_at_open(std::uncaught_exceptions()) {
}

//! An exception that began after the file was opened passes through its writer, so the file is half written.
bool WriteHandle::IsUnwinding() const {
	return std::uncaught_exceptions() > exceptions_at_open;
}

WriteHandle::~WriteHandle() {
	if (is_closed) {
		return;
	}
	try {
		writer->query->Ends(writer, false, IsUnwinding());
	} catch (...) { // NOLINT: a destructor must not throw
	}
}

void WriteHandle::Close() {
	is_closed = true;
	writer->query->Ends(writer, true, IsUnwinding());
	LogClose();
}

} // namespace penstock
