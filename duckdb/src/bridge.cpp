// Decides which DuckDB exception class an engine error becomes; says nothing of its own.
#include "bridge.hpp"

namespace penstock {

namespace {

struct Owned {
	explicit Owned(ps_error *error) : handle(error) {
	}
	std::unique_ptr<ps_error, Freed<ps_error, ps_error_free>> handle;
};

} // namespace

void Raise(ps_error *error) {
	Owned owned(error);
	auto kind = ErrorKind(ps_error_kind(error));
	auto message = Text(ps_error_message(error));
	auto status = ps_error_http_status(error);
	if (ps_error_is_http(error)) {
		throw HTTPException(status, string(), HTTPHeaders(), Text(ps_error_http_reason(error)), "%s", message);
	}
	switch (kind) {
	case ErrorKind::DENIED:
		throw PermissionException("%s", message);
	case ErrorKind::INVALID:
		throw InvalidInputException("%s", message);
	case ErrorKind::UNSUPPORTED:
		throw NotImplementedException("%s", message);
	case ErrorKind::CANCELLED:
		throw InterruptException();
	case ErrorKind::INTERNAL:
		// Not InternalException: that would shut the whole database down for a defect in its I/O.
		throw IOException("defect in Penstock, please report it: %s", message);
	default:
		throw IOException("%s", message);
	}
}

ErrorData Caught(ps_error *error) {
	try {
		Raise(error);
	} catch (std::exception &ex) {
		return ErrorData(ex);
	}
}

string WithoutSecrets(const string &url) {
	ps_rows *rows = nullptr;
	ps_error *error = nullptr;
	Check(ps_shown_url(Borrow(url), &rows, &error), error);
	return Rows(rows).Cell(0, idx_t(0));
}

bool IsKind(ps_error *error, ErrorKind kind) {
	if (ErrorKind(ps_error_kind(error)) == kind) {
		ps_error_free(error);
		return true;
	}
	Raise(error);
}

string Rows::Cell(idx_t row, const char *column_name) const {
	for (idx_t column = 0; column < ColumnCount(); column++) {
		if (ColumnName(column) == column_name) {
			return Cell(row, column);
		}
	}
	return string();
}

} // namespace penstock
