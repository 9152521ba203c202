// Open files: ReadHandle is pinned to one version of an object; WriteHandle is invisible until closed.
#pragma once

#include "query.hpp"
#include "writer.hpp"

#include <thread>

namespace penstock {

//! Whether DuckDB's external file cache is between whoever opens this and us, as far as can be seen: it passes its mode
//! on, but for Parquet, which always goes through it.
bool IsCachedByDuckDB(const string &path, FileOpenFlags flags, optional_ptr<FileOpener> opener);

//! What every open file of this file system can be asked.
class PenstockHandle : public FileHandle {
public:
	PenstockHandle(FileSystem &fs, const string &path, FlagsArg flags, bool is_reader)
	    : FileHandle(fs, path, flags), is_reader(is_reader) {
	}
	const bool is_reader;
};

class ReadHandle : public PenstockHandle {
public:
	ReadHandle(FileSystem &fs, const string &path, FlagsArg flags, Scope scope, ReaderHandle reader);

	//! Exactly `size` bytes; any thread, many at once.
	void ReadAt(void *buffer, idx_t size, idx_t location);
	//! Up to `size` bytes from the position on, and moves it; one thread at a time.
	idx_t ReadNext(void *buffer, idx_t size);
	void Close() override;
#if PENSTOCK_DUCKDB_2
	NetworkThroughputEstimate Link() const;
	optional<timestamp_t> ValidUntil() const;
#endif
	idx_t GetProgress() override {
		return position;
	}

	idx_t size = 0;
	timestamp_t modified;
	string etag;
	idx_t position = 0;

private:
	//! Fills the window at `position`; small sequential reads (gz, text) are served from it.
	void FillWindow();

	Scope scope;
	ReaderHandle reader;
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
	//! Publishes if the code that opened the file simply left its scope; see the note in the source.
	~WriteHandle() override;

	void Close() override;

	shared_ptr<WriterState> writer;

private:
	bool LeavesItsScope() const;

	std::thread::id opened_by;
	idx_t opened_in_task;
	int exceptions_at_open;
};

} // namespace penstock
