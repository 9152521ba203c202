//! What the doctor finds in configurations that are well and in those that are not.

use crate::common::{Dir, Request, Server, azure, google, google_by_token, options, options_over};
use penstock_base::{Kind, Secret};
use penstock_gateway::{
    BackendOptions, BucketOptions, Finding, Grant, Level, Options, Pattern, examine,
};
use penstock_testkit::fake::vault::Bucket;
use penstock_testkit::fake::{FakeAzure, FakeHandle, FakeOptions, FakeS3};
use std::time::{Duration, SystemTime};

fn named(name: &str, backend: &str) -> BucketOptions {
    BucketOptions { name: name.into(), backend: backend.into(), ..Default::default() }
}

fn problems(findings: &[Finding]) -> Vec<&Finding> {
    findings.iter().filter(|finding| finding.level == Level::Problem).collect()
}

fn has(findings: &[Finding], level: Level, words: &str) -> bool {
    findings.iter().any(|finding| finding.level == level && finding.what.contains(words))
}

/// A server with a bucket that keeps versions, and one that retains them by a rule.
async fn with_versions() -> Server {
    let server = Server::start().await;
    let lock = [("x-amz-bucket-object-lock-enabled", "true")];
    let versions =
        "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>".to_string();
    let rule = "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled><Rule>\
        <DefaultRetention><Mode>COMPLIANCE</Mode><Days>1</Days></DefaultRetention></Rule>\
        </ObjectLockConfiguration>";
    for (path, headers, body) in [
        ("/kept", &[][..], String::new()),
        ("/kept?versioning", &[], versions),
        ("/safe", &lock, String::new()),
        ("/safe?object-lock", &[], rule.to_string()),
    ] {
        let body = body.as_bytes();
        let put = Request { method: "PUT", path, headers, body, ..Default::default() };
        assert_eq!(server.send(put).await.status, 200, "{path}");
    }
    server
}

/// The server itself as a back end.
fn over(server: &Server) -> BackendOptions {
    let pairs = [
        ("endpoint", format!("http://{}", server.address)),
        ("key_id", crate::common::ACCESS_KEY.to_string()),
        ("secret", crate::common::SECRET_KEY.to_string()),
        ("region", "us-east-1".to_string()),
        ("url_style", "path".to_string()),
    ];
    let options = pairs.map(|(name, value)| (name.to_string(), Secret::new(value))).to_vec();
    let (name, url) = ("s3".to_string(), "s3://".to_string());
    BackendOptions { name, url, options, ..Default::default() }
}

#[tokio::test]
async fn what_is_well_is_tried_and_nothing_is_left_behind() {
    let (server, fake) = (with_versions().await, FakeAzure::start(FakeOptions::azure()).unwrap());
    let mut told = options(&server.dir);
    // The server keeps its own to itself.
    told.serve.notes_bucket = "other-notes".to_string();
    told.backends[0].is_dynamic = false;
    told.backends.push(BackendOptions { is_dynamic: false, ..azure(&fake) });
    told.backends.push(over(&server));
    let within = |name: &str, container: &str, backend: &str| BucketOptions {
        container: Some(container.to_string()),
        ..named(name, backend)
    };
    told.buckets = vec![
        named("lake", "dir"),
        named("kept", "dir"),
        named("safe", "dir"),
        named("raw", "back"),
        within("far-lake", "lake", "s3"),
        within("far-kept", "kept", "s3"),
        within("far-safe", "safe", "s3"),
    ];
    let before = server.dir.files();
    let findings = examine(&told, SystemTime::now).await;
    assert!(problems(&findings).is_empty(), "{findings:#?}");
    let says = |name: &str, words: &str| {
        let subject = format!("bucket `{name}`");
        findings.iter().any(|it| it.subject == subject && it.what.contains(words))
    };
    for bucket in &told.buckets {
        let is_tried = bucket.name != "far-safe";
        assert!(says(&bucket.name, "may be listed"), "{findings:#?}");
        assert_eq!(says(&bucket.name, "written, read and removed"), is_tried, "{findings:#?}");
    }
    assert!(says("far-safe", "default retention"), "{findings:#?}");
    assert_eq!(server.dir.files(), before);
    for bucket in ["lake", "kept", "safe"] {
        let versions = server.get(&format!("/{bucket}?versions")).await;
        assert_eq!(versions.status, 200);
        for entry in ["<Version>", "<DeleteMarker>"] {
            assert!(!versions.text().contains(entry), "{bucket}: {}", versions.text());
        }
    }
}

#[tokio::test]
async fn a_bucket_that_is_named_in_memory_is_there() {
    let memory =
        BackendOptions { name: "mem".into(), url: "mem://".into(), ..BackendOptions::default() };
    let told = Options { buckets: vec![named("lake", "mem")], ..options_over(memory) };
    let findings = examine(&told, SystemTime::now).await;
    assert!(problems(&findings).is_empty(), "{findings:#?}");
    assert!(has(&findings, Level::Good, "written, read and removed"), "{findings:#?}");
}

#[tokio::test]
async fn a_read_only_bucket_is_not_written_to() {
    let dir = Dir::new();
    std::fs::create_dir_all(dir.served().join("lake")).unwrap();
    let bucket = BucketOptions { is_read_only: true, ..named("lake", "dir") };
    let told = Options { buckets: vec![bucket], ..options(&dir) };
    let findings = examine(&told, SystemTime::now).await;
    assert!(has(&findings, Level::Good, "may be listed"), "{findings:#?}");
    assert!(!has(&findings, Level::Good, "written"), "{findings:#?}");
}

#[tokio::test]
async fn directories_that_no_bucket_can_be_are_named() {
    let dir = Dir::new();
    for name in ["lake", "Sales", "under_score", "known_one"] {
        std::fs::create_dir_all(dir.served().join(name)).unwrap();
    }
    let known = BucketOptions { container: Some("known_one".into()), ..named("known", "dir") };
    let told = Options { buckets: vec![known], ..options(&dir) };
    let findings = examine(&told, SystemTime::now).await;
    assert!(problems(&findings).is_empty(), "{findings:#?}");
    assert!(has(&findings, Level::Warning, "the name of `Sales`, `under_score`, so"));
}

/// Nothing is known of a back end that was never asked.
#[tokio::test]
async fn a_back_end_without_credentials_does_not_answer() {
    let process = ("provider", "credential_chain");
    let pairs = [process, ("chain", "process"), ("endpoint", "http://127.0.0.1:1")];
    let pairs = pairs.map(|(name, value)| (name.to_string(), Secret::new(value))).to_vec();
    let (name, url) = ("bare".to_string(), "s3://".to_string());
    let bare = BackendOptions { name, url, options: pairs, ..Default::default() };
    let told = Options { buckets: vec![named("lake", "bare")], ..options_over(bare) };
    let findings = examine(&told, SystemTime::now).await;
    let [problem] = problems(&findings)[..] else { panic!("{findings:#?}") };
    assert!(problem.what.contains("no usable"), "{problem:?}");
    assert_eq!(problem.kind, Some(Kind::Denied));
    assert!(!has(&findings, Level::Good, "answers"), "{findings:#?}");
    let server = Server::start_with(Dir::new(), told).await;
    let answer = server.get("/readyz").await;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (503, "no back end answers\nbare: no credentials\n")
    );
}

#[tokio::test]
async fn each_trouble_is_named_with_its_kind_and_a_cure_and_no_secret() {
    let (dir, fake) = (Dir::new(), FakeAzure::start(FakeOptions::azure()).unwrap());
    let wrong = fake.connection_string().replace("AccountKey=", "AccountKey=QUJD");
    let wrong_key = vec![("connection_string".to_string(), Secret::new(wrong))];
    let nobody = [
        ("account_name", "acc"),
        ("account_key", "c2VjcmV0LWtleQ=="),
        ("endpoint", "http://127.0.0.1:1/acc"),
    ];
    let nobody = nobody.map(|(name, value)| (name.to_string(), Secret::new(value))).to_vec();
    let missing = Options { buckets: vec![named("gone", "dir")], ..options(&dir) };
    let denied = options_over(BackendOptions { options: wrong_key, ..azure(&fake) });
    let unreachable = options_over(BackendOptions { options: nobody, ..azure(&fake) });
    let scheme = options_over(BackendOptions { url: "azz://".into(), ..azure(&fake) });
    let nowhere = Options { buckets: vec![named("lake", "nowhere")], ..options(&dir) };
    let no_keys = Options { keys: Vec::new(), ..options(&dir) };
    let mut tls = options(&dir);
    tls.serve.tls_cert_file = "/nowhere/cert.pem".to_string();
    tls.serve.tls_key_file = "/nowhere/key.pem".to_string();
    let with = |change: &dyn Fn(&mut Options)| {
        let mut told = options(&dir);
        change(&mut told);
        told
    };
    let acl = with(&|told| told.serve.acl = "publik".to_string());
    let domains = with(&|told| told.serve.domains = "no host".to_string());
    let proxies = with(&|told| told.serve.trusted_proxies = "10.0.0.0/8, balancer".to_string());
    let log = with(&|told| told.serve.access_log = "/nowhere/log".to_string());
    let backend_log = with(&|told| told.serve.backend_log = "/nowhere/log".to_string());
    let cache = with(&|told| told.settings.cache_dir = "/dev/null/cache".to_string());
    let ahead = with(&|told| told.serve.read_ahead_max_bytes = 32 << 20);
    for (told, kind, subject) in [
        (acl, Kind::Invalid, "acl"),
        (ahead, Kind::Invalid, "read_ahead_max_bytes"),
        (domains, Kind::Invalid, "domains"),
        (log, Kind::Invalid, "access_log"),
        (backend_log, Kind::Invalid, "backend_log"),
        (cache, Kind::Invalid, "cache_dir"),
        (missing, Kind::NotFound, "bucket `gone`"),
        (denied, Kind::Denied, "back end `back`"),
        (unreachable, Kind::Unavailable, "back end `back`"),
        (scheme, Kind::Unsupported, "back end `back`"),
        (nowhere, Kind::Invalid, "buckets"),
        (no_keys, Kind::Invalid, "keys"),
        (tls, Kind::NotFound, "TLS"),
        (proxies, Kind::Invalid, "trusted_proxies"),
    ] {
        let findings = examine(&told, SystemTime::now).await;
        let found = problems(&findings);
        assert_eq!(found.len(), 1, "{subject}: {findings:#?}");
        assert_eq!((found[0].kind, found[0].subject.as_str()), (Some(kind), subject));
        assert!(!found[0].cure.is_empty(), "{:?}", found[0]);
        for secret in ["QUJD", "c2VjcmV0LWtleQ==", crate::common::SECRET_KEY] {
            assert!(!format!("{findings:?}").contains(secret), "{subject}");
        }
    }
}

#[tokio::test]
async fn names_that_the_gateway_keeps_are_told() {
    let dir = Dir::new();
    let inside =
        BucketOptions { container: Some("penstock-notes".into()), ..named("inner", "dir") };
    for (bucket, words) in
        [(inside, "notes_bucket"), (named("readyz", "dir"), "healthz, readyz, metrics")]
    {
        let told = Options { buckets: vec![bucket], ..options(&dir) };
        let findings = examine(&told, SystemTime::now).await;
        let [problem] = problems(&findings)[..] else { panic!("{findings:#?}") };
        assert!(format!("{} {}", problem.what, problem.cure).contains(words), "{problem:?}");
    }
}

#[tokio::test]
async fn an_option_that_nothing_looks_at_is_told() {
    let (dir, fake) = (Dir::new(), FakeAzure::start(FakeOptions::azure()).unwrap());
    let with = |mut backend: BackendOptions, name: &str| {
        backend.options.push((name.to_string(), Secret::new("hidden-value")));
        options_over(backend)
    };
    let directory = || BackendOptions::directory(&dir.served());
    for (told, name) in
        [(with(azure(&fake), "key_id"), "key_id"), (with(directory(), "endpoint"), "endpoint")]
    {
        let findings = examine(&told, SystemTime::now).await;
        assert!(problems(&findings).is_empty(), "{findings:#?}");
        assert!(has(&findings, Level::Warning, &format!("takes no `{name}`")), "{findings:#?}");
        assert!(!format!("{findings:?}").contains("hidden-value"));
    }
    let findings = examine(&with(azure(&fake), "chain"), SystemTime::now).await;
    assert!(!has(&findings, Level::Warning, "takes no"), "{findings:#?}");
}

#[tokio::test]
async fn names_and_certificates_that_do_not_fit_are_told() {
    let dir = Dir::new();
    let made = rcgen::generate_simple_self_signed(vec!["other.example".to_string()]).unwrap();
    let (cert, key) = (dir.0.join("cert.pem"), dir.0.join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let shown = BucketOptions {
        container: Some("raw".into()),
        is_read_only: true,
        ..named("shown", "dir")
    };
    std::fs::create_dir_all(dir.served().join("raw")).unwrap();
    let mut told = Options { buckets: vec![shown], ..options(&dir) };
    told.serve.tls_cert_file = cert.display().to_string();
    told.serve.tls_key_file = key.display().to_string();
    told.serve.domains = "s3.example.org".to_string();
    told.backends[0].is_dynamic = true;
    told.keys[0].grants =
        vec![Grant { buckets: vec![Pattern::new("Shown")], ..Grant::everything() }];
    let findings = examine(&told, SystemTime::now).await;
    assert!(problems(&findings).is_empty(), "{findings:#?}");
    for words in [
        "is for none of the `domains`: neither s3.example.org nor *.s3.example.org",
        "`Shown` in `buckets` stands for no bucket",
        "is read-only, and what is in it may be written as bucket `raw`",
    ] {
        assert!(has(&findings, Level::Warning, words), "{words}: {findings:#?}");
    }
    // The certificate is from 1975 on.
    let findings = examine(&told, || SystemTime::UNIX_EPOCH).await;
    assert!(has(&findings, Level::Problem, "does not hold before 1975-01-01"), "{findings:#?}");
}

#[tokio::test]
async fn clocks_that_disagree_are_told() {
    let dir = Dir::new();
    std::fs::create_dir_all(dir.served().join("lake")).unwrap();
    let told = Options { buckets: vec![named("lake", "dir")], ..options(&dir) };
    let fast = || SystemTime::now() + Duration::from_secs(3600);
    let findings = examine(&told, fast).await;
    assert!(has(&findings, Level::Problem, "ahead of the back end's"), "{findings:#?}");
}

#[tokio::test]
async fn containers_that_are_buckets_are_made_tried_and_removed() {
    let (dir, fake) = (Dir::new(), FakeAzure::start(FakeOptions::azure()).unwrap());
    let mut told = options(&dir);
    told.backends[0].is_dynamic = true;
    let mut findings = examine(&told, SystemTime::now).await;
    findings.extend(examine(&options_over(azure(&fake)), SystemTime::now).await);
    assert!(problems(&findings).is_empty(), "{findings:#?}");
    let made =
        findings.iter().filter(|it| it.what.contains("a container was made, and an object placed"));
    assert_eq!(made.count(), 2, "{findings:#?}");
    assert_eq!(std::fs::read_dir(dir.served()).unwrap().count(), 0, "something is left");
    // A look lists what the one before may have left; the fake makes what is asked for first.
    let findings = examine(&options_over(azure(&fake)), SystemTime::now).await;
    let before = findings.iter().find(|it| it.what.ends_with("containers")).unwrap().what.clone();
    let findings = examine(&options_over(azure(&fake)), SystemTime::now).await;
    assert!(has(&findings, Level::Good, &before), "{before}, now {findings:#?}");
    told.backends[0].is_read_only = true;
    let findings = examine(&told, SystemTime::now).await;
    assert!(!has(&findings, Level::Good, "was made"), "{findings:#?}");
}

#[tokio::test]
async fn notes_are_read_and_written_where_there_are_any() {
    let dir = Dir::new();
    let told = options(&dir);
    let findings = examine(&told, SystemTime::now).await;
    assert!(has(&findings, Level::Good, "made with the first"), "{findings:#?}");
    let notes = dir.served().join(&told.serve.notes_bucket);
    for (bucket, text) in [("good", "{\"tags\": [[\"a\", \"b\"]]}"), ("bad", "{\"tags\": [[\"a\"")]
    {
        std::fs::create_dir_all(notes.join(bucket)).unwrap();
        std::fs::write(notes.join(bucket).join("bucket.json"), text).unwrap();
    }
    let findings = examine(&told, SystemTime::now).await;
    assert!(has(&findings, Level::Good, "1 of 2 can be read"), "{findings:#?}");
    assert!(has(&findings, Level::Good, "replaced under a condition"), "{findings:#?}");
    let found = problems(&findings);
    assert_eq!(found.len(), 1, "{findings:#?}");
    assert!(found[0].what.contains("`bad/bucket.json`") && found[0].kind == Some(Kind::Corrupt));
    assert_eq!(std::fs::read_dir(&notes).unwrap().count(), 2, "something is left");
}

/// Objects that a fake has, and generations that are no longer live.
fn left_behind(fake: &FakeHandle) -> (usize, usize) {
    fake.vault().with(|state| {
        let count = |of: fn(&Bucket) -> usize| state.buckets.values().map(of).sum::<usize>();
        (count(|it| it.objects.len()), count(|it| it.generations.all_gone().count()))
    })
}

/// There no write is tied to what is there in Amazon's dialect, and no settings of buckets are kept
/// in either: both are known, and hinder no serving.
#[tokio::test]
async fn google_is_well_with_a_key_and_with_a_token() {
    for token in [None, Some("t0ken")] {
        let bearer_token = token.map(str::to_string);
        let fake = FakeS3::start(FakeOptions { bearer_token, ..FakeOptions::google() }).unwrap();
        let backend = match token {
            Some(token) => google_by_token(&fake, token),
            None => google(&fake),
        };
        // The first appears by itself, and the other is not there.
        for notes_bucket in ["penstock-notes", "missing-notes"] {
            let mut told = options_over(backend.clone());
            told.buckets = vec![named("lake", "back")];
            told.serve.notes_bucket = notes_bucket.to_string();
            let findings = examine(&told, SystemTime::now).await;
            assert!(problems(&findings).is_empty(), "{token:?}: {findings:#?}");
            for words in [
                "may be listed",
                "may be written, read and removed from",
                "a container was made, and an object placed in it and read",
                "none are kept here",
            ] {
                assert!(has(&findings, Level::Good, words), "{token:?} {words}: {findings:#?}");
            }
            assert_eq!(left_behind(&fake), (0, 0), "{token:?}");
        }
    }
}

/// To remove a version of a blob is a right of its own, which the gateway does not need.
#[tokio::test]
async fn on_azure_a_version_is_removed_or_left_where_that_is_denied() {
    for is_denied in [false, true] {
        let fake = FakeAzure::start(FakeOptions::azure_versioned()).unwrap();
        if is_denied {
            fake.fault("status=403,code=AuthorizationPermissionMismatch,op=DeleteBlob,times=1");
        }
        let mut told = options_over(BackendOptions { is_dynamic: false, ..azure(&fake) });
        told.buckets = vec![named("lake", "back")];
        let findings = examine(&told, SystemTime::now).await;
        assert!(problems(&findings).is_empty(), "{findings:?}");
        assert_eq!(left_behind(&fake), (0, usize::from(is_denied)));
    }
}

#[tokio::test]
async fn lists_that_have_no_place_are_told() {
    let dir = Dir::new();
    let mut told = options(&dir);
    told.serve.acl = "owners".to_string();
    assert!(!has(&examine(&told, SystemTime::now).await, Level::Warning, "notes_bucket"));
    told.serve.notes_bucket = String::new();
    let findings = examine(&told, SystemTime::now).await;
    assert!(has(&findings, Level::Warning, "`owners` needs notes_bucket"), "{findings:?}");
}

#[tokio::test]
async fn a_cache_within_what_is_served_is_told() {
    let dir = Dir::new();
    let link = dir.served().with_extension("link");
    std::os::unix::fs::symlink(dir.served(), &link).unwrap();
    let beside = dir.served().with_extension("cache");
    let words = "lies in the directory that back end `dir` serves";
    for (place, is_within) in [
        (dir.served(), true),
        (dir.served().join("cache"), true),
        (link.join("not/yet/there"), true),
        (beside, false),
    ] {
        let mut told = options(&dir);
        told.settings.cache_dir = place.to_str().unwrap().to_string();
        let findings = examine(&told, SystemTime::now).await;
        assert_eq!(has(&findings, Level::Warning, words), is_within, "{place:?} {findings:#?}");
        assert!(problems(&findings).is_empty(), "{findings:#?}");
    }
    std::fs::remove_file(link).unwrap();
}
