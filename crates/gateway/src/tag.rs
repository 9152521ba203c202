//! ETags as clients see them. Pure.
//!
//! A client takes a tag of 32 hexadecimal digits for an MD5 and compares it with what it sent; some
//! do so with any tag that has no dash. The tags of a back end that are neither get `-1` behind
//! them, as an upload of one part has it, and lose it on the way back.

use penstock_store::ETag;

/// How a back end's tags look to clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TagForm {
    /// As they are: S3's own, and those with a dash.
    Same,
    /// With `-1` behind them.
    Dashed,
}

const DASH: &str = "-1";

impl TagForm {
    /// The form for the stores of this root.
    pub fn of(root: &str) -> Self {
        match root.split_once("://").map_or("", |(scheme, _)| scheme) {
            "az" | "azure" | "abfss" | "abfs" | "mem" => TagForm::Dashed,
            _ => TagForm::Same,
        }
    }

    /// The client's form of a store's tag.
    pub fn shown(self, etag: &ETag) -> ETag {
        match self {
            TagForm::Same => etag.clone(),
            TagForm::Dashed => ETag(format!("{}{DASH}", etag.0)),
        }
    }

    /// The store's tag that clients see as this one, if any can be.
    pub fn behind(self, shown: &ETag) -> Option<ETag> {
        match self {
            TagForm::Same => Some(shown.clone()),
            TagForm::Dashed => shown.0.strip_suffix(DASH).map(|tag| ETag(tag.to_string())),
        }
    }

    /// The store's form of a client's tag; the back end's own form is understood too.
    pub fn kept(self, etag: &ETag) -> ETag {
        match self {
            TagForm::Same => etag.clone(),
            TagForm::Dashed => ETag(etag.0.strip_suffix(DASH).unwrap_or(&etag.0).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn schemes_have_their_form() {
        assert_eq!(TagForm::of("az://c/"), TagForm::Dashed);
        assert_eq!(TagForm::of("s3://b/"), TagForm::Same);
        assert_eq!(TagForm::of("file:///d/"), TagForm::Same);
    }

    proptest! {
        #[test]
        fn tags_come_back(tag in "[0-9a-fx\\-]{1,20}") {
            for form in [TagForm::Same, TagForm::Dashed] {
                let etag = ETag(tag.clone());
                prop_assert_eq!(form.kept(&form.shown(&etag)), etag.clone());
                let shown = form.behind(&etag).map(|behind| form.shown(&behind));
                prop_assert!(shown.is_none_or(|shown| shown == etag));
                prop_assert_eq!(form.behind(&form.shown(&etag)), Some(etag));
            }
        }
    }
}
