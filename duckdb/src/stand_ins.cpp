// Knows which extensions are loading, so that nothing of ours stands in their way.
#include "stand_ins.hpp"

#include "extension.hpp"

#include <algorithm>

namespace penstock {

namespace {

//! cache_httpfs has httpfs in it.
string OwnerOf(const string &extension) {
	return extension == "cache_httpfs" ? "httpfs" : extension;
}

} // namespace

void StandIns::Fill(DatabaseInstance &db) {
	lock_guard<mutex> guard(lock);
	Put(db);
}

void StandIns::OnBeginExtensionLoad(DatabaseInstance &db, const string &name) {
	if (extension_load_is_pretended) {
		return;
	}
	lock_guard<mutex> guard(lock);
	loading.emplace_back(std::this_thread::get_id(), OwnerOf(name));
	Withdraw(db, OwnerOf(name));
}

void StandIns::OnExtensionLoaded(DatabaseInstance &db, const string &name) {
	End(db, name);
}

void StandIns::OnExtensionLoadFail(DatabaseInstance &db, const string &name, const ErrorData &) {
	End(db, name);
}

void StandIns::End(DatabaseInstance &db, const string &name) {
	lock_guard<mutex> guard(lock);
	auto here = std::this_thread::get_id();
	auto is_it = [&](const std::pair<std::thread::id, string> &load) {
		return load.first == here && load.second == OwnerOf(name);
	};
	auto ended = std::find_if(loading.rbegin(), loading.rend(), is_it);
	if (ended == loading.rend()) {
		// DuckDB 2.0 ends a load under another name than it began, where the extension got one.
		ended = std::find_if(loading.rbegin(), loading.rend(),
		                     [&](const std::pair<std::thread::id, string> &load) { return load.first == here; });
	}
	if (ended != loading.rend()) {
		loading.erase(std::next(ended).base());
	}
	Put(db);
}

bool StandIns::IsLoading(const string &extension) const {
	return std::any_of(loading.begin(), loading.end(), [&](const std::pair<std::thread::id, string> &load) {
		return load.second == extension;
	});
}

} // namespace penstock
