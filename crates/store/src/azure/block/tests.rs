use super::*;
use proptest::prelude::*;

#[test]
fn block_list_tells_of_our_parts_only() {
    let upload = Upload::begin("c/k", &PutOptions::default());
    let other = Upload::begin("c/k", &PutOptions::default());
    let block = |id: String| format!("<Block><Name>{id}</Name><Size>1</Size></Block>");
    let (older, newer) = (Mark(7), Mark(8));
    let answer = format!(
        "<BlockList><CommittedBlocks>{}</CommittedBlocks><UncommittedBlocks>{}{}{}\
         </UncommittedBlocks></BlockList>",
        block(upload.block_id(9, older)),
        block(other.block_id(1, older)),
        [newer, older].map(|mark| block(upload.block_id(2, mark))).concat(),
        block("bm90IG91cnM=".into()),
    );
    let blocks = upload.blocks_in(answer.as_bytes()).unwrap();
    let staged = |mark| Staged { number: 2, mark, size_bytes: 1 };
    assert_eq!(blocks, Blocks { parts: vec![staged(older), staged(newer)], is_given_up: false });
    let found = Upload::found_in("c/k", answer.as_bytes()).unwrap();
    assert_eq!(found.len(), 2, "both uploads, and no foreign block");
    let again = Upload::parse(&found[0].id(), "c/k").unwrap();
    assert_eq!(again, found[0]);
    assert_eq!(again.options().unwrap_err().kind(), Kind::Unsupported);
    let marked = format!(
        "<BlockList><UncommittedBlocks>{}</UncommittedBlocks></BlockList>",
        block(upload.given_up_id()),
    );
    assert!(upload.blocks_in(marked.as_bytes()).unwrap().is_given_up);
    for page in ["<html>", "<html><body/></html>", "<Error><Code>x</Code></Error>"] {
        assert_eq!(upload.blocks_in(page.as_bytes()).unwrap_err().kind(), Kind::Corrupt);
    }
}

/// So that a list of uploads tells it.
#[test]
fn blocks_tell_the_class_that_was_asked_for() {
    let pair = |class: &str| (notes::STORAGE_CLASS.to_string(), class.to_string());
    for class in ["STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "DEEP_ARCHIVE", "GLACIER"] {
        let options = PutOptions { metadata: vec![pair(class)], ..Default::default() };
        let upload = Upload::begin("c/k", &options);
        let block = upload.block_id(7, Mark(3));
        let answer = format!(
            "<BlockList><UncommittedBlocks><Block><Name>{block}</Name><Size>1</Size></Block>\
             </UncommittedBlocks></BlockList>"
        );
        let found = Upload::found_in("c/k", answer.as_bytes()).unwrap();
        assert_eq!(found[0].metadata(), [pair(class)]);
        let again = Upload::parse(&found[0].id(), "c/k").unwrap();
        assert_eq!((again.metadata(), again.block_id(7, Mark(3))), (vec![pair(class)], block));
        assert_eq!(Upload::parse(&upload.id(), "c/k").unwrap(), upload);
    }
}

/// An upload as older versions began it, of layout 1 or 3.
fn begun_before(layout: u8, options: &PutOptions) -> Upload {
    let mut now = Upload::begin("c/k", options);
    now.nonce = crate::random::bytes();
    let mut told = URL_SAFE_NO_PAD.decode(now.id().0).unwrap();
    told.truncate(told.len() - SUM_BYTES);
    assert_eq!(std::mem::replace(&mut told[0], layout), MARKED);
    told.extend(sum("c/k", &told));
    Upload::parse(&UploadId(URL_SAFE_NO_PAD.encode(told)), "c/k").unwrap()
}

/// Older versions staged blocks that tell no mark, at first no class either, and a commit has to
/// name those.
#[test]
fn an_upload_that_an_older_version_began_goes_on_under_its_own_block_ids() {
    let class = (notes::STORAGE_CLASS.to_string(), "STANDARD_IA".to_string());
    let options = PutOptions { metadata: vec![class.clone()], ..Default::default() };
    for (layout, told) in [(LAYOUT, LAYOUT), (CLASSED, LAYOUT | 1 << CLASS_SHIFT)] {
        let old = begun_before(layout, &options);
        assert_eq!(old.options().unwrap().metadata, options.metadata);
        assert_eq!(old.new_mark(), Mark::default());
        let id = STANDARD.decode(old.block_id(1, Mark::default())).unwrap();
        assert_eq!(id[..NONCE_BYTES], old.nonce);
        assert_eq!(id[NONCE_BYTES..], [told, 0, 0, 0, 1]);
        let etag = old.part_tag(1, 5, Mark::default());
        assert_eq!(etag.len(), 26);
        let part = Part { number: 1, etag, size_bytes: 5 };
        assert_eq!(old.mark_of(&part), Some(Mark::default()));
        assert_eq!(Upload::parse(&old.id(), "c/k").unwrap(), old);
        let block = old.block_id(1, Mark::default());
        let answer = format!(
            "<BlockList><UncommittedBlocks><Block><Name>{block}</Name><Size>5</Size></Block>\
             </UncommittedBlocks></BlockList>"
        );
        assert_eq!(old.blocks_in(answer.as_bytes()).unwrap().parts.len(), 1);
        let found = Upload::found_in("c/k", answer.as_bytes()).unwrap();
        assert_eq!((found[0].nonce, found[0].has_marks), (old.nonce, false));
        assert_eq!(found[0].block_id(1, Mark::default()), block);
    }
}

/// An id that somebody made up, with a sum that fits.
fn made_up(metadata: &str) -> Result<Upload> {
    let mut told = vec![MARKED];
    told.extend([7; MARKED_NONCE_BYTES]);
    told.extend([0; NONCE_BYTES - MARKED_NONCE_BYTES]);
    told.extend(format!("{{\"m\":{metadata}}}").bytes());
    told.extend(sum("c/k", &told));
    Upload::parse(&UploadId(URL_SAFE_NO_PAD.encode(told)), "c/k")
}

/// The service tells names in lower case, and joins values of one name.
#[test]
fn an_id_that_names_metadata_as_no_upload_does_is_none() {
    let pairs = |names: &[&str]| names.iter().map(|it| (it.to_string(), "v".to_string())).collect();
    let plain = made_up(r#"[["@acl","v"],["colour","v"]]"#).unwrap();
    assert_eq!(plain.metadata(), pairs(&["@acl", "colour"]) as Vec<_>);
    for odd in [
        r#"[["_X40_acl","v"]]"#,
        r#"[["@Acl","v"]]"#,
        r#"[["@acl","v"],["@acl","w"]]"#,
        r#"[["colour","v"],["@acl","v"],["colour","w"]]"#,
    ] {
        assert_eq!(made_up(odd).unwrap_err().kind(), Kind::NotFound, "{odd}");
    }
    let metadata: Vec<_> = pairs(&["Colour", "colour", "Size"]);
    let begun = Upload::begin("c/k", &PutOptions { metadata, ..Default::default() });
    assert_eq!(begun.metadata(), pairs(&["colour", "size"]) as Vec<_>);
}

#[test]
fn marks_grow_with_time_and_differ() {
    let marks: Vec<Mark> = (0..20).map(|_| Mark::new()).collect();
    let ms = |mark: &Mark| mark.0 >> MARK_RANDOM_BITS;
    assert!(marks.windows(2).all(|pair| ms(&pair[0]) <= ms(&pair[1])), "{marks:?}");
    assert!(marks.iter().collect::<BTreeSet<_>>().len() > 15, "{marks:?}");
    assert!(ms(&marks[0]) > 1_700_000_000_000);
}

proptest! {
    #[test]
    fn ids_have_one_length_and_never_meet(
        a in 1u32..50_001,
        b in 1u32..50_001,
        mark: u64,
        size in 1u64..1 << 40,
    ) {
        let mark = Mark(mark);
        let begin = || Upload::begin("c/k", &PutOptions::default());
        let (one, two) = (begin(), begin());
        let id = one.block_id(a, mark);
        prop_assert_eq!(id.len(), 28);
        prop_assert!(!id.contains('='));
        prop_assert_eq!(one.own(&id).map(|id| (id.number, id.mark)), Some((a, mark)));
        prop_assert!(two.own(&id).is_none());
        prop_assert_eq!(id == one.block_id(b, mark), a == b);
        prop_assert_ne!(&id, &one.block_id(a, Mark(mark.0 ^ 1)));
        prop_assert_ne!(id, two.block_id(a, mark));
        let old = begun_before(LAYOUT, &PutOptions::default());
        prop_assert_eq!(old.block_id(a, mark).len(), 28);
        let part = |etag: String| Part { number: a, etag, size_bytes: size };
        let etag = one.part_tag(a, size, mark);
        prop_assert_eq!(etag.split_once('-').unwrap().0.len(), 32);
        prop_assert_eq!(one.mark_of(&part(etag.clone())), Some(mark));
        prop_assert_eq!(one.mark_of(&part(format!("{etag}-crc32-0d4a1185"))), Some(mark));
        prop_assert_eq!(two.mark_of(&part(etag.clone())), None);
        let other = Part { size_bytes: size + 1, ..part(etag) };
        prop_assert_eq!(one.mark_of(&other), None);
    }

    #[test]
    fn no_tag_of_anothers_names_a_block(etag in ".{0,40}|[0-9a-f]{32}-1") {
        let upload = Upload::begin("c/k", &PutOptions::default());
        prop_assert_eq!(upload.mark_of(&Part { number: 1, etag, size_bytes: 1 }), None);
    }

    #[test]
    fn an_upload_comes_back_from_its_id(
        content_type in prop::option::of(".{0,20}"),
        metadata in prop::collection::vec((".{0,5}", ".{0,5}"), 0..3),
    ) {
        let options = PutOptions { content_type, metadata, ..Default::default() };
        let upload = Upload::begin("c/k", &options);
        let elsewhere = Upload::parse(&upload.id(), "c/other");
        prop_assert_eq!(elsewhere.unwrap_err().kind(), Kind::NotFound);
        prop_assert_eq!(Upload::parse(&upload.id(), "c/k").unwrap(), upload);
    }

    #[test]
    fn foreign_ids_are_not_found(id: String) {
        if let Err(error) = Upload::parse(&UploadId(id), "c/k") {
            prop_assert_eq!(error.kind(), Kind::NotFound);
        }
    }
}
