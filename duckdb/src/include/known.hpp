// What a listing, a catalog or a table format tells of a file, in the treaty's form.
#pragma once

#include "bridge.hpp"

namespace penstock {

//! Of a file that a glob found: when, so that a prepared statement does not trust it for ever.
static constexpr const char *LISTED_OPTION = "penstock_listed";

class Known {
public:
	explicit Known(const OpenFileInfo &file) {
		if (!file.extended_info) {
			return;
		}
		for (auto &option : file.extended_info->options) {
			if (!option.second.IsNull()) {
				Take(NameText(option.first), option.second);
			}
		}
	}
	//! Valid as long as this is.
	ps_known Get() const {
		auto told = known;
		told.etag = Borrow(etag);
		return told;
	}

private:
	void Take(const string &name, const Value &value) {
		if (name == "file_size") {
			known.has_size = true;
			known.size_bytes = value.GetValue<uint64_t>();
		} else if (name == "last_modified") {
			auto modified = value.GetValue<timestamp_t>();
			known.has_modified = Value::IsFinite(modified);
			known.modified_us = modified.value;
		} else if (name == "etag") {
			etag = StringValue::Get(value);
		} else if (name == LISTED_OPTION) {
			known.listed_us = value.GetValue<uint64_t>();
		} else if (name == "footer_size") {
			known.footer_size_bytes = value.GetValue<uint64_t>();
		} else if (name == "validate_external_file_cache") {
			known.immutable = !BooleanValue::Get(value.DefaultCastAs(LogicalType::BOOLEAN));
		}
	}

	string etag;
	ps_known known = {};
};

} // namespace penstock
