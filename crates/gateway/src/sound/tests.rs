//! What is let through of a listing, and what is told of one that is not what it was asked for.

use super::*;
use penstock_store::progress::PAGES_MAX;
use penstock_store::{ListEntry, ObjectMeta, UploadId, VersionEntry};

const ROOT: &str = "s3://container/";

fn asked<'a>(prefix: &'a str, after: Option<&'a str>) -> Asked<'a> {
    Asked { root: ROOT, prefix, after }
}

fn objects(keys: &[&str], prefixes: &[&str]) -> ListPage {
    let entry = |key: &&str| ListEntry { key: key.to_string(), meta: ObjectMeta::default() };
    ListPage {
        objects: keys.iter().map(entry).collect(),
        prefixes: prefixes.iter().map(|prefix| prefix.to_string()).collect(),
        next: None,
    }
}

fn uploads(rows: &[(&str, &str)]) -> Vec<UploadEntry> {
    let entry = |(key, id): &(&str, &str)| UploadEntry {
        key: key.to_string(),
        id: UploadId(id.to_string()),
        begun: None,
        metadata: Vec::new(),
    };
    rows.iter().map(entry).collect()
}

fn versions(keys: &[&str], prefixes: &[&str], next: Option<(&str, Option<&str>)>) -> VersionsPage {
    let entry = |key: &&str| VersionEntry {
        key: key.to_string(),
        id: "v".to_string(),
        is_latest: false,
        is_marker: false,
        meta: ObjectMeta::default(),
    };
    VersionsPage {
        versions: keys.iter().map(entry).collect(),
        prefixes: prefixes.iter().map(|prefix| prefix.to_string()).collect(),
        next: next.map(|(key, version)| (key.to_string(), version.map(str::to_string))),
    }
}

/// What an error says that has what it should.
fn told(result: Result<()>) -> String {
    let Err(error) = result else { return "nothing".to_string() };
    assert_eq!(error.kind(), Kind::Corrupt);
    assert!(error.hint().is_some_and(|hint| hint.contains("without the gateway")));
    assert!(error.to_string().contains(ROOT), "{error}");
    error.message().to_string()
}

#[test]
fn what_was_asked_for_passes() {
    asked("", None).objects(&objects(&["a", "a!", "a/b", "\u{e9}"], &["b/", "c/"])).unwrap();
    asked("a/", Some("a/b")).objects(&objects(&["a/c"], &["a/d/"])).unwrap();
    // More may follow below the prefix in which the name lies.
    asked("", Some("a/b")).objects(&objects(&["b"], &["a/", "c/"])).unwrap();
    asked("k", None).uploads(&uploads(&[("k", "2"), ("k", "1"), ("k/a", "9")]), "").unwrap();
    asked("", Some("k")).uploads(&uploads(&[("k", "2"), ("l", "1")]), "1").unwrap();
    let page = versions(&["b", "a", "a"], &["a/"], Some(("b", Some("v"))));
    asked("", Some("a")).versions(&page, Some("v")).unwrap();
}

#[test]
fn each_thing_a_back_end_may_do_is_told_without_the_name() {
    let secret = "another-bucket/secret";
    for (words, result) in [
        ("does not begin with the prefix", asked("a/", None).objects(&objects(&[secret], &[]))),
        ("does not begin with the prefix", asked("a/", None).objects(&objects(&[], &[secret]))),
        ("does not begin with the prefix", asked("a/", None).objects(&objects(&["a"], &[]))),
        ("out of order", asked("", None).objects(&objects(&["b", secret], &[]))),
        ("twice", asked("", None).objects(&objects(&[secret, secret], &[]))),
        ("out of order", asked("", None).objects(&objects(&[], &["b/", secret]))),
        ("before the name", asked("", Some(secret)).objects(&objects(&[secret], &[]))),
        ("before the name", asked("", Some("b")).objects(&objects(&[secret], &[]))),
        ("before the name", asked("", Some("b/c")).objects(&objects(&[], &["a/"]))),
        ("does not begin", asked("a/", None).uploads(&uploads(&[(secret, "1")]), "")),
        ("out of order", asked("", None).uploads(&uploads(&[("b", "1"), (secret, "1")]), "")),
        ("before the name", asked("", Some(secret)).uploads(&uploads(&[(secret, "2")]), "")),
        ("before the name", asked("", Some(secret)).uploads(&uploads(&[(secret, "1")]), "1")),
        ("before the name", asked("", Some("b")).uploads(&uploads(&[(secret, "2")]), "1")),
        ("does not begin", asked("a/", None).versions(&versions(&[secret], &[], None), None)),
        ("does not begin", asked("a/", None).versions(&versions(&[], &[secret], None), None)),
        (
            "does not begin",
            asked("a/", None).versions(&versions(&[], &[], Some((secret, None))), None),
        ),
        ("before the name", asked("", Some("b")).versions(&versions(&[secret], &[], None), None)),
        (
            "no end",
            asked("", Some("b"))
                .versions(&versions(&["c"], &[], Some(("b", Some("v")))), Some("v")),
        ),
    ] {
        let told = told(result);
        assert!(told.contains(words), "{words}: {told}");
        assert!(!told.contains(secret), "{told}");
    }
}

#[test]
fn circles_of_any_length_are_met_and_ways_of_any_length_are_gone() {
    for (before, circle) in [(0, 1), (1, 1), (0, 2), (3, 5), (40, 17), (7, 300)] {
        let mut progress = Progress::default();
        let token = |step: usize| match step < before {
            true => step,
            false => before + (step - before) % circle,
        };
        let end = (0..).map(|step| asked("", None).next(&mut progress, token(step).to_string()));
        let steps = end.take_while(Result::is_ok).count();
        assert!(steps <= 3 * (before + circle) + 1, "{before} {circle}: {steps}");
    }
    // Back to where it began, at once or round: each request would go round again.
    for between in [0, 1, 2, 5] {
        let mut progress = Progress::from(Some("t"));
        for page in 0..between {
            asked("", None).next(&mut progress, page.to_string()).unwrap();
        }
        let back = asked("", None).next(&mut progress, "t".into());
        assert!(told(back.map(drop)).contains("no end"), "{between}");
    }
    let mut progress = Progress::default();
    for page in 0..PAGES_MAX {
        asked("", None).next(&mut progress, page.to_string()).unwrap();
    }
    let over = asked("", None).next(&mut progress, "one more".into());
    assert!(told(over.map(drop)).contains("100,000"));
}

/// A directory bucket of S3 lists in no order: what is whole is put in order, the rest refused by
/// name; other back ends are held to theirs.
#[test]
fn a_directory_bucket_is_put_in_order_or_refused_by_name() {
    let root = "s3://lake--usw2-az1--x-s3/";
    let unordered = |after| Asked { root, prefix: "", after };
    assert!(unordered(None).is_unordered() && !asked("", None).is_unordered());
    let mut page = objects(&["c", "a", "b/x"], &["z/", "d/"]);
    unordered(None).put_in_order(&mut page).unwrap();
    unordered(None).objects(&page).unwrap();
    assert_eq!(page.objects.len() + page.prefixes.len(), 5);
    let mut page = objects(&["c", "a", "b/x"], &["z/", "d/"]);
    unordered(Some("b/x")).put_in_order(&mut page).unwrap();
    unordered(Some("b/x")).objects(&page).unwrap();
    let names: Vec<_> = page.objects.iter().map(|entry| entry.key.as_str()).collect();
    assert_eq!((names, page.prefixes.len()), (vec!["c"], 2));
    let found = uploads(&[("b", "1"), ("a", "2"), ("a", "3"), ("a", "1")]);
    let mut page = UploadsPage { uploads: found, next: None };
    unordered(None).put_uploads_in_order(&mut page, "").unwrap();
    let told = |page: &UploadsPage| {
        let each = page.uploads.iter().map(|upload| format!("{}{}", upload.key, upload.id.0));
        each.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(told(&page), "a1 a2 a3 b1");
    for (marker, left) in [("1", "a2 a3 b1"), ("", "b1")] {
        let mut page = page.clone();
        unordered(Some("a")).put_uploads_in_order(&mut page, marker).unwrap();
        unordered(Some("a")).uploads(&page.uploads, marker).unwrap();
        assert_eq!(told(&page), left);
    }
    // In order by chance.
    page.next = Some("a marker of the service's".to_string());
    let more = ListPage { next: Some("token".to_string()), ..objects(&["b", "a"], &[]) };
    for refused in [
        unordered(None).put_in_order(&mut more.clone()),
        unordered(None).put_uploads_in_order(&mut page, ""),
    ] {
        let error = refused.unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.message().contains("directory bucket"), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("general purpose bucket")));
    }
}
