// What a wrapped system changes is remembered no longer than if Penstock had changed it itself.
#include "wrap_change.hpp"

namespace penstock {

WrapChange::WrapChange(const shared_ptr<Engine> &engine, const string &path_p, optional_ptr<FileOpener> opener) {
	if (!IsOurs(path_p)) {
		return;
	}
	path = path_p;
	options = StoreOptions(*engine, opener, path);
	query = Scope(engine, opener).Current();
	Tell(true);
}

WrapChange::~WrapChange() {
	try {
		Tell(false);
	} catch (std::exception &) { // NOLINT: the statement has its error already
	}
}

void WrapChange::Ended() {
	Tell(true);
	query.reset();
}

void WrapChange::Tell(bool is_heard) {
	if (!query) {
		return;
	}
	ps_error *error = nullptr;
	if (ps_changed_by_others(query->handle, Borrow(path), options.Data(), options.Count(), is_heard, &error)) {
		return;
	}
	switch (ErrorKind(ps_error_kind(error))) {
	case ErrorKind::INVALID:     // what Penstock cannot reach it has not read either
	case ErrorKind::UNSUPPORTED: // nor does it read in a forked child
		ps_error_free(error);
		return;
	default:
		Raise(error);
	}
}

void WrapChangedAny(const shared_ptr<Engine> &engine, optional_ptr<FileOpener> opener) {
	ps_error *error = nullptr;
	if (!ps_query_clear_cache(Scope(engine, opener).Current()->handle, &error)) {
		Raise(error);
	}
}

} // namespace penstock
