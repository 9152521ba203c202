// Tells the engine of objects that wrapped systems write and remove: once unwrapped, Penstock reads them again.
#pragma once

#include "options.hpp"

namespace penstock {

//! An object that a wrapped system changes. What Penstock remembers of it ends before and behind the change.
class WrapChange {
public:
	//! The change begins now.
	WrapChange(const shared_ptr<Engine> &engine, const string &path, optional_ptr<FileOpener> opener);
	//! Unless it has ended, nobody knows what becomes of it.
	~WrapChange();

	//! It was carried out.
	void Ended();

private:
	void Tell(bool is_heard);

	//! Empty for what Penstock does not serve.
	string path;
	Pairs options;
	shared_ptr<Query> query;
};

//! A wrapped system has removed what nobody names: nothing that is remembered counts any more.
void WrapChangedAny(const shared_ptr<Engine> &engine, optional_ptr<FileOpener> opener);

} // namespace penstock
