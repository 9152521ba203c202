// Reaches members of DuckDB's classes that have no accessor.
#pragma once

namespace penstock {

namespace {

// Reaches members that have no accessor: an explicit instantiation may name a private member, which the
// standard allows ([temp.spec]/6). The extension is built for exactly one DuckDB version, so a change
// of these members is a compile error, never a surprise at run time.
template <class TAG, typename TAG::type MEMBER>
struct Reach {
	friend typename TAG::type Member(TAG) {
		return MEMBER;
	}
};

} // namespace

} // namespace penstock
