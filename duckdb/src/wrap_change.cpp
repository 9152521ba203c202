// What a wrapped system changes is remembered no longer than if Penstock had changed it itself.
#include "wrap_change.hpp"

#include <algorithm>

namespace penstock {

namespace {

//! What is no reason to refuse what the wrapped system can do.
bool Concerns(ps_error *error) {
	switch (ErrorKind(ps_error_kind(error))) {
	case ErrorKind::INVALID:     // what Penstock cannot reach it has not read either
	case ErrorKind::UNSUPPORTED: // nor does it read in a forked child
	case ErrorKind::CANCELLED:   // cleaning up goes on, and what is in memory is forgotten
		ps_error_free(error);
		return false;
	default:
		return true;
	}
}

} // namespace

WrapChange::WrapChange(const shared_ptr<Engine> &engine, vector<string> paths_p, optional_ptr<FileOpener> opener)
    : paths(std::move(paths_p)) {
	paths.erase(std::remove_if(paths.begin(), paths.end(), [](const string &path) { return !IsOurs(path); }),
	            paths.end());
	if (paths.empty()) {
		return;
	}
	groups = GroupByStore(*engine, opener, paths);
	query = Scope(engine, opener).Current();
	Tell(true);
}

WrapChange::~WrapChange() {
	TellEnd(false);
}

void WrapChange::Ended() {
	TellEnd(true);
	query.reset();
}

void WrapChange::TellEnd(bool is_heard) {
	try {
		Tell(is_heard);
	} catch (std::exception &) { // NOLINT: it is done, or has its own error
	}
}

void WrapChange::Tell(bool is_heard) {
	if (!query) {
		return;
	}
	for (auto &group : groups) {
		ps_error *error = nullptr;
		if (!ps_changed_by_others(query->handle, group.paths.data(), group.paths.size(), group.options.Data(),
		                          group.options.Count(), is_heard, &error) &&
		    Concerns(error)) {
			Raise(error);
		}
	}
}

void WrapRemovesDirectory(const shared_ptr<Engine> &engine, const string &path, optional_ptr<FileOpener> opener) {
	ps_error *error = nullptr;
	if (IsOurs(path) && !ps_query_clear_cache(Scope(engine, opener).Current()->handle, &error) && Concerns(error)) {
		Raise(error);
	}
}

} // namespace penstock
