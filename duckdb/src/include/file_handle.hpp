// Open files: ReadHandle is pinned to one version of an object; WriteHandle is invisible until closed.
#pragma once

#include "query.hpp"
#include "writer.hpp"

namespace penstock {

//! What every open file of this file system can be asked.
class PenstockHandle : public FileHandle {
public:
	PenstockHandle(FileSystem &fs, const string &path, FlagsArg flags, bool is_reader)
	    : FileHandle(fs, path, flags), is_reader(is_reader) {
	}
	const bool is_reader;

	//! What happens to the file, for DuckDB's log of file systems: under a path that shows no secret.
	void LogOpen() const;
	void LogRead(idx_t size, idx_t location) const;
	void LogWrite(idx_t size, idx_t location) const;
	void LogClose() const;
};

class ReadHandle : public PenstockHandle {
public:
	//! `is_cached`: DuckDB keeps what it reads of files whose version it asks for.
	ReadHandle(FileSystem &fs, const string &path, FlagsArg flags, Scope scope, ReaderHandle reader, bool is_cached);

	//! Exactly `size` bytes; any thread, many at once.
	void ReadAt(void *buffer, idx_t size, idx_t location);
	//! Up to `size` bytes from the position on, and moves it; one thread at a time.
	idx_t ReadNext(void *buffer, idx_t size);
	void Close() override;
	//! Of the version that it reads; none where DuckDB's cache is to keep nothing of it.
	string VersionTag();
	timestamp_t LastModified();
#if PENSTOCK_DUCKDB_2
	NetworkThroughputEstimate Link() const;
	optional<timestamp_t> ValidUntil() const;
#endif
	idx_t GetProgress() override {
		return position;
	}

	idx_t size = 0;
	idx_t position = 0;

private:
	//! Fills the window at `position`; small sequential reads (gz, text) are served from it.
	void FillWindow();

	Scope scope;
	ReaderHandle reader;
	bool is_cached;
	vector<data_t> window;
	idx_t window_start = 0;
	idx_t window_size = 0;
	idx_t window_longest = 0;
	//! Where what was in a window ends.
	idx_t read_to = 0;
};

class WriteHandle : public PenstockHandle {
public:
	WriteHandle(FileSystem &fs, const string &path, FlagsArg flags, shared_ptr<WriterState> writer);
	//! Ends the file as Close does: DuckDB writes some files without ever calling Close (schema.sql of EXPORT).
	~WriteHandle() override;

	void Close() override;

	shared_ptr<WriterState> writer;

private:
	bool IsUnwinding() const;

	int exceptions_at_open;
	bool is_closed = false;
};

} // namespace penstock
