//! Ranges that clients read one after the other: what follows is fetched ahead where that is asked
//! for, and every byte and every refusal is as without.

use crate::common::{Answer, Dir, Lane, Request, Server, options};
use penstock_base::{Kind, Secret};
use penstock_gateway::{Gateway, Grant, KeyPair, Options, Pattern, Rights};
use std::time::Duration;

const MIB: usize = 1 << 20;

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// A cache in memory, of objects that are not asked for again.
fn cached(options: &mut Options) {
    options.settings.set("cache_memory_bytes", "256MiB").unwrap();
    options.settings.set("cache_validation", "never").unwrap();
}

fn reading_ahead(options: &mut Options) {
    cached(options);
    options.serve.set("read_ahead_max_bytes", "32MiB").unwrap();
}

async fn range_as(server: &Server, key: &str, start: usize, end: usize) -> Answer {
    let range = format!("bytes={start}-{}", end - 1);
    let headers = [("range", range.as_str())];
    let request = Request { path: "/lake/k", headers: &headers, ..Default::default() };
    server.send_as(key, request).await
}

async fn range(server: &Server, start: usize, end: usize) -> Vec<u8> {
    let answer = range_as(server, crate::common::ACCESS_KEY, start, end).await;
    assert_eq!(answer.status, 206, "{}", answer.text());
    answer.body
}

/// A server with an object, and how many of its requests were looked at.
struct Watched {
    server: Server,
    looked_at: usize,
}

impl Watched {
    async fn new(lane: Lane, change: impl FnOnce(&mut Options), body: &[u8]) -> Self {
        let server = Server::on_with(lane, change).await;
        assert_eq!(server.put("/lake/k", body).await.status, 200);
        let looked_at = server.fake.as_ref().unwrap().requests().len();
        Watched { server, looked_at }
    }

    /// The spans that the back end was asked for since the last look, once they are so many bytes.
    async fn spans(&mut self, bytes: usize) -> Vec<(usize, usize)> {
        let fake = self.server.fake.as_ref().unwrap();
        let asked = async {
            loop {
                let requests = &fake.requests()[self.looked_at..];
                let of_gets = requests.iter().filter(|request| request.method == "GET");
                let spans: Vec<_> = of_gets.map(|request| span(&request.range)).collect();
                if spans.iter().map(|span| span.1 - span.0).sum::<usize>() >= bytes {
                    break (spans, requests.len());
                }
                tokio::task::yield_now().await;
            }
        };
        let asked = tokio::time::timeout(Duration::from_secs(20), asked).await;
        let (mut spans, count) = asked.expect("the spans");
        self.looked_at += count;
        spans.sort_unstable();
        spans
    }

    async fn counted(&self, name: &str) -> u64 {
        let page = self.server.admin_page("/metrics").await.text();
        let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.expect(name).parse().unwrap()
    }
}

fn span(range: &str) -> (usize, usize) {
    let (first, last) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    (first.parse().unwrap(), last.parse::<usize>().unwrap() + 1)
}

async fn without_the_option_each_range_is_one_request(lane: Lane) {
    let body = bytes(8 * MIB);
    for change in [cached as fn(&mut Options), |_| {}] {
        let mut watched = Watched::new(lane, change, &body).await;
        for start in (0..body.len()).step_by(MIB) {
            assert!(range(&watched.server, start, start + MIB).await == body[start..start + MIB]);
            assert_eq!(watched.spans(MIB).await, [(start, start + MIB)]);
        }
        assert_eq!(watched.counted("penstock_read_ahead_bytes_total").await, 0);
    }
}

async fn what_follows_is_here_when_it_is_asked_for(lane: Lane) {
    let body = bytes(40 * MIB + 11);
    let mut watched = Watched::new(lane, reading_ahead, &body).await;
    let step = 4 * MIB;
    let mut all: Vec<(usize, usize)> = Vec::new();
    for (index, start) in (0..body.len()).step_by(step).enumerate() {
        let end = (start + step).min(body.len());
        assert!(range(&watched.server, start, end).await == body[start..end], "{start}");
        let known: usize = all.iter().map(|span| span.1 - span.0).sum();
        // Behind the second one the next is here before it is asked for.
        let wanted = if index == 0 { end } else { (end + step).min(body.len()) };
        let seen = watched.spans(wanted.saturating_sub(known)).await;
        assert!(index < 2 || seen.iter().all(|span| span.0 >= end), "{start}: {seen:?}");
        all.extend(seen);
    }
    all.sort_unstable();
    let mut next = 0;
    for (start, end) in &all {
        assert_eq!(*start, next, "{all:?}");
        next = *end;
    }
    assert_eq!(next, body.len(), "{all:?}");
    let ahead = (body.len() - 2 * step) as u64;
    assert_eq!(watched.counted("penstock_read_ahead_bytes_total").await, ahead);
    assert_eq!(watched.counted("penstock_read_ahead_wasted_bytes_total").await, 0);
    assert_eq!(watched.counted("penstock_read_ahead_hits_total").await, 9);
}

async fn ranges_here_and_there_bring_nothing_else(lane: Lane) {
    let body = bytes(16 * MIB);
    let mut watched = Watched::new(lane, reading_ahead, &body).await;
    for start in [9, 3, 12, 1, 6, 15, 4].map(|index| index * MIB) {
        let end = start + MIB / 2;
        assert!(range(&watched.server, start, end).await == body[start..end]);
        assert_eq!(watched.spans(MIB / 2).await, [(start, end)]);
    }
    assert_eq!(watched.counted("penstock_read_ahead_bytes_total").await, 0);
}

async fn a_replaced_object_is_served_as_it_is_now(lane: Lane) {
    let body = bytes(16 * MIB);
    let change = |options: &mut Options| {
        reading_ahead(options);
        options.settings.set("cache_validation", "auto").unwrap();
    };
    let mut watched = Watched::new(lane, change, &body).await;
    for start in [0, MIB, 2 * MIB] {
        assert!(range(&watched.server, start, start + MIB).await == body[start..start + MIB]);
    }
    assert!(watched.spans(4 * MIB).await.iter().any(|span| span.0 == 3 * MIB), "it is here");
    // Through another replica, of which this one hears nothing.
    let fake = watched.server.fake.as_ref().unwrap();
    let backend =
        if lane == Lane::Azure { crate::common::azure(fake) } else { crate::common::s3(fake) };
    let other = Server::start_with(Dir::new(), crate::common::options_over(backend)).await;
    let new = vec![7; 16 * MIB];
    assert_eq!(other.put("/lake/k", &new).await.status, 200);
    for start in [3 * MIB, 4 * MIB, 5 * MIB, 6 * MIB] {
        assert!(
            range(&watched.server, start, start + MIB).await == new[start..start + MIB],
            "{start}"
        );
    }
    let gone = Request { method: "DELETE", path: "/lake/k", ..Default::default() };
    assert_eq!(other.send(gone).await.status, 204);
    let answer = range_as(&watched.server, crate::common::ACCESS_KEY, 7 * MIB, 8 * MIB).await;
    assert_eq!((answer.status, answer.code().as_str()), (404, "NoSuchKey"));
}

async fn who_may_not_read_brings_nothing_about(lane: Lane) {
    let body = bytes(8 * MIB);
    let change = |options: &mut Options| {
        reading_ahead(options);
        let mut other = KeyPair::new("OTHER", Secret::new(crate::common::SECRET_KEY));
        let rights = Rights::parse(["write"]).unwrap();
        other.grants = vec![Grant { buckets: vec![Pattern::new("*")], rights }];
        options.keys.push(other);
    };
    let mut watched = Watched::new(lane, change, &body).await;
    range(&watched.server, 0, MIB).await;
    watched.spans(MIB).await;
    for start in [MIB, 2 * MIB, 3 * MIB] {
        let answer = range_as(&watched.server, "OTHER", start, start + MIB).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "AccessDenied"));
    }
    assert_eq!(watched.spans(0).await, []);
    // Nor does one whose condition does not hold.
    let headers = [("range", "bytes=1048576-2097151"), ("if-match", "\"another\"")];
    let request = Request { path: "/lake/k", headers: &headers, ..Default::default() };
    assert_eq!(watched.server.send(request).await.status, 412);
    assert_eq!(watched.counted("penstock_read_ahead_bytes_total").await, 0);
    assert!(range(&watched.server, MIB, 2 * MIB).await == body[MIB..2 * MIB]);
    watched.spans(MIB + 1).await;
    assert!(watched.counted("penstock_read_ahead_bytes_total").await > 0);
}

on_lane!(azure, Azure: without_the_option_each_range_is_one_request,
    what_follows_is_here_when_it_is_asked_for, ranges_here_and_there_bring_nothing_else,
    a_replaced_object_is_served_as_it_is_now, who_may_not_read_brings_nothing_about);
on_lane!(s3, S3: without_the_option_each_range_is_one_request,
    what_follows_is_here_when_it_is_asked_for, ranges_here_and_there_bring_nothing_else,
    a_replaced_object_is_served_as_it_is_now, who_may_not_read_brings_nothing_about);

#[tokio::test]
async fn without_a_cache_it_is_refused_at_the_start() {
    let dir = Dir::new();
    let mut options = options(&dir);
    options.serve.set("read_ahead_max_bytes", "32MiB").unwrap();
    let error = Gateway::bind(options.clone()).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Invalid);
    assert!(error.to_string().contains("read_ahead_max_bytes"), "{error}");
    assert!(error.hint().unwrap().contains("cache_memory_bytes"), "{error}");
    options.settings.set("cache_dir", &dir.0.join("cache").display().to_string()).unwrap();
    assert!(Gateway::bind(options).await.is_ok());
}
