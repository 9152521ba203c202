// Tells the engine of objects that wrapped systems write and remove: once unwrapped, Penstock reads them again.
#pragma once

#include "options.hpp"

namespace penstock {

//! Objects that a wrapped system changes. What Penstock remembers of them ends before and behind the change.
class WrapChange {
public:
	//! The change begins now. Throws where the disk cache cannot note that, and nothing may be sent.
	WrapChange(const shared_ptr<Engine> &engine, vector<string> paths, optional_ptr<FileOpener> opener);
	//! Unless it has ended, nobody knows what becomes of it.
	~WrapChange();

	//! It was carried out.
	void Ended();

private:
	void Tell(bool is_heard);
	//! Where it is too late for an error: what is remembered in memory has ended before anything can fail.
	void TellEnd(bool is_heard);

	//! Those that Penstock serves.
	vector<string> paths;
	vector<StoreGroup> groups;
	//! Until it has ended.
	shared_ptr<Query> query;
};

//! A wrapped system removes what nobody names: nothing that is remembered counts any more.
void WrapRemovesDirectory(const shared_ptr<Engine> &engine, const string &path, optional_ptr<FileOpener> opener);

} // namespace penstock
