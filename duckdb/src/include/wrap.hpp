// Which file systems of other extensions are wrapped: read in parallel, and kept from Penstock itself.
#pragma once

#include "compat.hpp"

namespace penstock {

class Engine;

//! One file system that is, or was, wrapped. Its wrapper stays registered and only sleeps when unwrapped.
struct Wrap {
	Wrap(string name, FileSystem &inner) : name(std::move(name)), inner(inner) {
	}
	const string name;
	//! The registry of DuckDB owns it; it lives as long as the database.
	FileSystem &inner;
	atomic<bool> active {true};
};

//! The wraps of one database instance.
class Wraps {
public:
	//! True for paths whose file system the user asked to wrap: Penstock leaves them to it.
	bool Claims(const string &path);
	//! Wraps the file systems of an extension, or the one of this name. Gives each with what happened.
	vector<std::pair<string, string>> Add(const shared_ptr<Engine> &engine, const string &name);
	//! Lets them go again.
	vector<std::pair<string, string>> Remove(const string &name);

private:
	//! Of all, active or not.
	vector<string> Names();
	//! Null if there is none of this name.
	shared_ptr<Wrap> Find(const string &name);

	//! Held while wraps are added or removed.
	mutex change;
	mutex lock;
	vector<shared_ptr<Wrap>> wraps;
};

//! A file system that would take a path.
struct Handler {
	string name;
	bool is_manually_set;
};
//! All that would, in the order in which they were registered; none where another extension has replaced the registry.
vector<Handler> HandlersOf(DatabaseInstance &db, const string &path);

//! penstock_wrap() and penstock_unwrap().
void RegisterWrapFunctions(ExtensionLoader &loader, const shared_ptr<Engine> &engine);

} // namespace penstock
