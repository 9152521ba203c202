//! Back ends that answer what no store would: nothing of it is passed on as an object, and nothing
//! is said to be done that is not.
//!
//! One thing cannot be told: a whole object whose length and bytes are others than what was stored,
//! in an answer that is sound in itself. Checksums tell it to clients that ask for them.

use crate::common::raw::{Seen, ask, at_rest};
use crate::common::{Answer, Lane, Request, Server};
use futures_util::future::join_all;
use penstock_gateway::Options;

on_lane!(azure, Azure: what_takes_the_place_of_an_answer_is_never_taken_for_one,
    bytes_of_a_read_are_right_or_the_answer_breaks_off,
    an_answer_that_breaks_after_a_write_leaves_it_whole,
    pages_without_names_are_passed_over);
on_lane!(s3, S3: what_takes_the_place_of_an_answer_is_never_taken_for_one,
    bytes_of_a_read_are_right_or_the_answer_breaks_off,
    an_answer_that_breaks_after_a_write_leaves_it_whole,
    pages_without_names_are_passed_over);

/// Gives up soon, but not so soon that a busy machine fails what is sound.
fn impatient(options: &mut Options) {
    options.serve.backend_deadline_ms = 800;
    options.settings.stall_timeout_ms = 500;
}

const KEPT: &[u8] = b"what was there before";
/// Larger than what is taken whole.
const LARGE: usize = 300_000;

fn large() -> Vec<u8> {
    (0..LARGE as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn field(text: &str, name: &str) -> String {
    let behind = text.split_once(&format!("<{name}>")).unwrap_or_else(|| panic!("{text}")).1;
    behind.split_once("</").unwrap().0.to_string()
}

/// Method, path, headers and body.
type Asked = (&'static str, String, Vec<(&'static str, &'static str)>, Vec<u8>);

/// A bucket with an object that has tags, an upload with one part, and an empty bucket beside it.
struct World {
    server: Server,
    lane: Lane,
    upload: String,
    tag: String,
}

impl World {
    async fn new(lane: Lane) -> Self {
        let server = Server::on_with(lane, impatient).await;
        assert_eq!(server.put("/empty", b"").await.status, 200);
        let headers = [("x-amz-tagging", "colour=blue")];
        let put = Request {
            method: "PUT",
            path: "/lake/k",
            headers: &headers,
            body: KEPT,
            ..Default::default()
        };
        assert_eq!(server.send(put).await.status, 200);
        let begin = Request { method: "POST", path: "/lake/whole?uploads", ..Default::default() };
        let upload = field(&server.send(begin).await.text(), "UploadId");
        let part = format!("/lake/whole?partNumber=1&uploadId={upload}");
        let tag = server.put(&part, b"part").await.header("etag").to_string();
        World { server, lane, upload, tag }
    }

    fn completion(&self) -> Vec<u8> {
        let tag = &self.tag;
        format!(
            "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>\
             </CompleteMultipartUpload>"
        )
        .into_bytes()
    }

    /// All that would be seen if it were done, or read.
    fn asks(&self) -> Vec<Asked> {
        let path = |path: &str| path.to_string();
        let part =
            |number: u32| format!("/lake/whole?partNumber={number}&uploadId={}", self.upload);
        let whole = format!("/lake/whole?uploadId={}", self.upload);
        let source = vec![("x-amz-copy-source", "/lake/k")];
        let batch = b"<Delete><Object><Key>k</Key></Object></Delete>".to_vec();
        let tags = b"<Tagging><TagSet><Tag><Key>colour</Key><Value>red</Value></Tag></TagSet>\
            </Tagging>"
            .to_vec();
        let mut asks = vec![
            ("GET", path("/lake/k"), vec![], vec![]),
            ("GET", path("/lake/k"), vec![("range", "bytes=1-3")], vec![]),
            ("GET", path("/lake/k"), vec![("range", "bytes=-3")], vec![]),
            ("GET", path("/lake/k?partNumber=1"), vec![], vec![]),
            ("HEAD", path("/lake/k"), vec![], vec![]),
            ("GET", path("/lake/k?tagging"), vec![], vec![]),
            ("GET", path("/lake"), vec![], vec![]),
            ("GET", path("/lake?list-type=2"), vec![], vec![]),
            ("GET", path("/lake?versions"), vec![], vec![]),
            ("GET", path("/lake?uploads"), vec![], vec![]),
            ("GET", whole.clone(), vec![], vec![]),
            ("GET", path("/"), vec![], vec![]),
            ("PUT", path("/lake/new"), vec![], b"small".to_vec()),
            ("PUT", path("/lake/flows"), vec![], large()),
            ("PUT", part(2), vec![], b"small".to_vec()),
            ("PUT", part(3), vec![], large()),
            ("PUT", part(4), source.clone(), vec![]),
            ("POST", whole.clone(), vec![], self.completion()),
            ("DELETE", whole, vec![], vec![]),
            ("PUT", path("/lake/copied"), source, vec![]),
            ("DELETE", path("/lake/k"), vec![], vec![]),
            ("POST", path("/lake?delete"), vec![], batch),
            ("PUT", path("/lake/k?tagging"), vec![], tags),
            ("DELETE", path("/lake/k?tagging"), vec![], vec![]),
            ("PUT", path("/missing-made"), vec![], vec![]),
            ("DELETE", path("/empty"), vec![], vec![]),
        ];
        match self.lane {
            // Its headers are bare on other services.
            Lane::Azure => asks.push(("HEAD", path("/lake"), vec![], vec![])),
            // Azure begins an upload without a request.
            _ => asks.push(("POST", path("/lake/begun?uploads"), vec![], vec![])),
        }
        asks
    }

    /// Everything is as it was.
    async fn is_untouched(&self, fault: &str) {
        let server = &self.server;
        assert_eq!(server.get("/lake/k").await.body, KEPT, "{fault}");
        let tags = server.get("/lake/k?tagging").await.text();
        assert!(tags.contains("<Value>blue</Value>"), "{fault}: {tags}");
        for absent in ["/lake/new", "/lake/flows", "/lake/copied", "/lake/whole"] {
            assert_eq!(server.get(absent).await.status, 404, "{fault} {absent}");
        }
        let parts = server.get(&format!("/lake/whole?uploadId={}", self.upload)).await.text();
        assert_eq!(parts.matches("<PartNumber>").count(), 1, "{fault}: {parts}");
        for (bucket, status) in [("/missing-made", 404), ("/empty", 200)] {
            let head = Request { method: "HEAD", path: bucket, ..Default::default() };
            assert_eq!(server.send(head).await.status, status, "{fault} {bucket}");
        }
        let listed = server.get("/lake?list-type=2").await.text();
        assert_eq!(listed.matches("<Key>").count(), 1, "{fault}: {listed}");
    }
}

async fn what_takes_the_place_of_an_answer_is_never_taken_for_one(lane: Lane) {
    let world = World::new(lane).await;
    let fake = world.server.fake.as_ref().unwrap();
    // A page that finds nothing is no object that is not there: only reads may tell it so.
    for (fault, least) in [("html", 500), ("error-200", 500), ("html=404", 400)] {
        fake.fault(fault);
        let asks = world.asks();
        let answers = asks.iter().map(async |(method, path, headers, body)| {
            let request = Request { method, path, headers, body, ..Default::default() };
            let answer = world.server.send(request).await;
            let told = format!("{fault}: {method} {path}: {} {}", answer.status, answer.text());
            if path == "/lake?delete" && answer.status == 200 {
                assert!(answer.text().contains("<Error>"), "{told}");
                assert!(!answer.text().contains("<Deleted>"), "{told}");
                return;
            }
            assert!(answer.status >= least, "{told}");
            assert!(*method == "HEAD" || !answer.code().is_empty(), "{told}");
            // Whose web page it is, is no business of clients.
            assert!(!answer.text().contains("sign in"), "{told}");
        });
        join_all(answers).await;
        fake.faults().clear();
        world.is_untouched(fault).await;
    }
    // What was refused can be asked for again.
    let path = format!("/lake/whole?uploadId={}", world.upload);
    let body = world.completion();
    let done = Request { method: "POST", path: &path, body: &body, ..Default::default() };
    assert_eq!(world.server.send(done).await.status, 200);
    assert_eq!(world.server.get("/lake/whole").await.body, b"part");
    at_rest(&world.server).await;
}

/// Right, or seen to be none: an error, or a body without its end.
fn is_no_lie(seen: &Option<Seen>, expected: &[u8], told: &str) {
    let Some(seen) = seen else { return };
    if seen.status >= 500 {
        return;
    }
    let text = String::from_utf8_lossy(&seen.body[..seen.body.len().min(200)]).into_owned();
    assert!(matches!(seen.status, 200 | 206), "{told}: {} {text}", seen.status);
    assert!(!seen.is_whole || seen.body == expected, "{told}: {} bytes", seen.body.len());
    assert!(expected.starts_with(&seen.body), "{told}: {} wrong bytes", seen.body.len());
}

async fn bytes_of_a_read_are_right_or_the_answer_breaks_off(lane: Lane) {
    const OF_ANY: [&str; 5] = ["html", "error-200", "cut=100000", "cut=0", "lie-length=+5"];
    const OF_RANGES: [&str; 6] = [
        "wrong-range=+1",
        "wrong-range=-1",
        "truncate=1000",
        "truncate=0",
        "lie-length=-5",
        "ignore-range",
    ];
    let reads = OF_ANY.iter().chain(&OF_RANGES).map(async |fault| {
        let server = Server::on_with(lane, impatient).await;
        let (fake, bytes) = (server.fake.as_ref().unwrap(), large());
        assert_eq!(server.put("/lake/k", &bytes).await.status, 200);
        let op = if lane == Lane::Azure { "GetBlob" } else { "GetObject" };
        let mut asked = vec![
            ("bytes=1000-250999", &bytes[1000..251_000]),
            ("bytes=100000-", &bytes[100_000..]),
            ("bytes=-200000", &bytes[LARGE - 200_000..]),
        ];
        if OF_ANY.contains(fault) {
            asked.push(("", &bytes[..]));
        }
        let count = asked.len();
        // For good, and once for each.
        for times in [String::new(), format!(",times={count}")] {
            fake.fault(&format!("{fault},op={op}{times}"));
            let all = asked.iter().map(async |(range, expected)| {
                let headers = [("range", *range)];
                let headers = if range.is_empty() { &[][..] } else { &headers[..] };
                let request = Request { path: "/lake/k", headers, ..Default::default() };
                let seen = ask(&server, &request).await;
                is_no_lie(&seen, expected, &format!("{fault}{times} {range}"));
            });
            join_all(all).await;
            assert!(fake.faults().fired()[0] >= count as u64, "{fault}{times}");
            fake.faults().clear();
        }
        // Nothing that came behind such an answer is taken for the next one.
        fake.fault(&format!("lie-length=-5,op={op},times=1"));
        ask(&server, &Request { path: "/lake/k", ..Default::default() }).await;
        for _ in 0..3 {
            let got = server.get("/lake/k").await;
            assert!(got.status == 200 && got.body == bytes, "after {fault}: {}", got.status);
        }
        at_rest(&server).await;
    });
    join_all(reads).await;
}

/// What was asked for is there, or nothing is.
async fn is_whole_or_absent(server: &Server, path: &str, expected: &[u8], told: &str) -> Answer {
    let got = server.get(path).await;
    let is_right = got.status == 200 && got.body == expected;
    assert!(is_right || got.status == 404, "{told}: {} of {path}", got.status);
    got
}

async fn an_answer_that_breaks_after_a_write_leaves_it_whole(lane: Lane) {
    // Of an answer without a body nothing can be cut, and its head is all there is to tell.
    let faults = ["lost-answer", "cut=0", "cut=5", "truncate=5", "lie-length=+7"];
    let writes = faults.iter().map(async |fault| {
        let world = World::new(lane).await;
        let (server, fake) = (&world.server, world.server.fake.as_ref().unwrap());
        assert_eq!(server.put("/lake/gone", KEPT).await.status, 200);
        let (large, completion) = (large(), world.completion());
        let whole = format!("/lake/whole?uploadId={}", world.upload);
        let source = [("x-amz-copy-source", "/lake/k")];
        let put = |path, body| Request { method: "PUT", path, body, ..Default::default() };
        let asked = [
            (put("/lake/new", b"small"), &b"small"[..]),
            (put("/lake/flows", &large), &large[..]),
            (Request { headers: &source, ..put("/lake/copied", b"") }, KEPT),
            (Request { method: "POST", ..put(&whole, &completion) }, &b"part"[..]),
            (Request { method: "DELETE", ..put("/lake/gone", b"") }, KEPT),
        ];
        for op in written_by(lane) {
            fake.fault(&format!("{fault},op={op}"));
        }
        let sent = asked.iter().map(async |(request, _)| server.send(request.clone()).await);
        let answers = join_all(sent).await;
        fake.faults().clear();
        for ((request, expected), answer) in asked.into_iter().zip(answers) {
            let told = format!("{fault}: {} {}", request.method, request.path);
            let is_done = answer.status < 300 && answer.code().is_empty();
            assert!(is_done || answer.status >= 500, "{told}: {}", answer.text());
            let path = request.path.split('?').next().unwrap();
            let got = is_whole_or_absent(server, path, expected, &told).await;
            let end = if request.method == "DELETE" { 404 } else { 200 };
            assert!(!is_done || got.status == end, "{told}: it was said to be done");
            let again = server.send(request.clone()).await;
            assert!(again.status < 300 && again.code().is_empty(), "{told}: {}", again.text());
            let got = is_whole_or_absent(server, path, expected, &told).await;
            assert_eq!(got.status, end, "{told}, again");
        }
        at_rest(server).await;
    });
    join_all(writes).await;
}

/// The operations of the back end that those writes are.
fn written_by(lane: Lane) -> &'static [&'static str] {
    match lane {
        Lane::Azure => &["PutBlob", "PutBlockList", "CopyBlob", "PutBlobFromURL", "DeleteBlob"],
        _ => &["PutObject", "CompleteMultipartUpload", "CopyObject", "DeleteObject"],
    }
}

async fn pages_without_names_are_passed_over(lane: Lane) {
    let server = Server::on_with(lane, impatient).await;
    for key in ["a", "b", "c"] {
        assert_eq!(server.put(&format!("/lake/{key}"), b"x").await.status, 200);
    }
    let fake = server.fake.as_ref().unwrap();
    fake.fault("empty-page,times=1");
    let (mut names, mut token) = (Vec::new(), String::new());
    for _ in 0..10 {
        let page = server.get(&format!("/lake?list-type=2&max-keys=2{token}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let text = page.text();
        names.extend(text.split("<Key>").skip(1).map(|it| it[..1].to_string()));
        if text.contains("<IsTruncated>false") {
            break;
        }
        let next = field(&text, "NextContinuationToken");
        let next = next.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
        token = format!("&continuation-token={next}");
    }
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(fake.faults().fired(), [1]);
    // One that comes to no end is told, and not followed for ever.
    fake.faults().clear();
    fake.fault("empty-page");
    let endless = server.get("/lake?list-type=2").await;
    assert_eq!((endless.status, endless.code().as_str()), (500, "InternalError"));
}
