// The treaty in C++ clothes: owned handles, borrowed strings, and errors thrown as DuckDB's classes.
#pragma once

#include "compat.hpp"
#include "penstock.h"

#include <memory>

namespace penstock {

inline ps_str Borrow(const string &text) {
	return ps_str {text.data(), text.size()};
}

inline string Text(ps_str text) {
	return text.len == 0 ? string() : string(text.data, text.len);
}

template <class T, void (*FREE)(T *)>
struct Freed {
	void operator()(T *handle) const {
		FREE(handle);
	}
};

using ReaderHandle = std::unique_ptr<ps_reader, Freed<ps_reader, ps_reader_free>>;
using WriterHandle = std::unique_ptr<ps_writer, Freed<ps_writer, ps_writer_free>>;
using ListingHandle = std::unique_ptr<ps_listing, Freed<ps_listing, ps_listing_free>>;
using PagesHandle = std::unique_ptr<ps_pages, Freed<ps_pages, ps_pages_free>>;
using VolumesHandle = std::unique_ptr<ps_volumes, Freed<ps_volumes, ps_volumes_free>>;
using VolumeFileHandle = std::unique_ptr<ps_file, Freed<ps_file, ps_file_free>>;
using KeptHandle = std::unique_ptr<ps_kept, Freed<ps_kept, ps_kept_free>>;
using RowsHandle = std::unique_ptr<ps_rows, Freed<ps_rows, ps_rows_free>>;

//! Key and value texts that outlive the call that borrows them.
class Pairs {
public:
	void Add(string key, string value) {
		texts.emplace_back(std::move(key), std::move(value));
	}
	bool Has(const string &key) const {
		for (auto &text : texts) {
			if (text.first == key) {
				return true;
			}
		}
		return false;
	}
	//! Valid until the next Add.
	const ps_pair *Data() const {
		view.clear();
		for (auto &text : texts) {
			view.push_back(ps_pair {Borrow(text.first), Borrow(text.second)});
		}
		return view.data();
	}
	size_t Count() const {
		return texts.size();
	}
	bool operator==(const Pairs &other) const {
		return texts == other.texts;
	}

private:
	vector<std::pair<string, string>> texts;
	mutable vector<ps_pair> view;
};

//! Numbers of penstock_base::Kind that the shim acts on.
enum class ErrorKind : int32_t {
	NOT_FOUND = 1,
	DENIED = 2,
	CONFLICT = 3,
	THROTTLED = 4,
	UNAVAILABLE = 5,
	INVALID = 6,
	UNSUPPORTED = 7,
	CORRUPT = 8,
	CANCELLED = 9,
	EXHAUSTED = 10,
	INTERNAL = 11
};

//! Frees the error and throws it as the DuckDB class that fits its kind.
[[noreturn]] void Raise(ps_error *error);

//! The URL with *** for the secrets in it: what a text of this extension may show.
string WithoutSecrets(const string &url);

//! Raises the error of a call that returned false. By reference, because the call that fills it in is
//! an argument too, and arguments are evaluated in any order.
inline void Check(bool succeeded, ps_error *const &error) {
	if (!succeeded) {
		Raise(error);
	}
}

//! The error of a call that returned false, for a place that must not throw. Frees it.
ErrorData Caught(ps_error *error);

//! For a call that returned false: true (and the error freed) when it is of this kind, else raised.
bool IsKind(ps_error *error, ErrorKind kind);

//! One column set of an introspection table, addressed by column name.
class Rows {
public:
	explicit Rows(ps_rows *rows) : handle(rows) {
	}
	idx_t Count() const {
		return ps_rows_count(handle.get());
	}
	idx_t ColumnCount() const {
		return ps_rows_column_count(handle.get());
	}
	string ColumnName(idx_t column) const {
		return Text(ps_rows_column_name(handle.get(), column));
	}
	string Cell(idx_t row, idx_t column) const {
		return Text(ps_rows_cell(handle.get(), row, column));
	}
	//! The cell of a named column; a column that does not exist reads as empty.
	string Cell(idx_t row, const char *column_name) const;

private:
	RowsHandle handle;
};

} // namespace penstock
