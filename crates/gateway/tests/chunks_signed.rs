//! Bodies in chunks of which each is signed after the one before: what one of those signatures does
//! not cover is not kept.

use crate::common::raw::until;
use crate::common::sign::{self, Chunks};
use crate::common::{ACCESS_KEY, Answer, Lane, SECRET_KEY, Server};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest;

/// The pieces of a body that is taken whole, and of one that flows. What follows the second one is
/// so little that the gateway reads it though it refuses it, and its answer arrives.
const SIZES: [[usize; 3]; 2] = [[8 << 10, 8 << 10, 1000], [2 << 20, (1 << 20) - 10_000, 10_000]];
const SHA256: &str = "x-amz-checksum-sha256";

on_every_lane!(
    signed_chunks_are_taken_and_forged_ones_leave_nothing,
    a_signed_trailer_that_does_not_come_is_missed,
);

async fn put(server: &Server, path: &str, chunks: Chunks<'_>) -> Answer {
    let host = server.address.to_string();
    server.send_raw(&sign::signed_chunks(path, &chunks, &host, SECRET_KEY, ACCESS_KEY)).await
}

async fn signed_chunks_are_taken_and_forged_ones_leave_nothing(lane: Lane) {
    let server = Server::on(lane).await;
    for [first, second, third] in SIZES {
        let body: Vec<u8> = (0..first + second + third).map(|at| (at % 251) as u8).collect();
        let (head, tail) = body.split_at(first);
        let pieces = [head, &tail[..second], &tail[second..]];
        let sum = STANDARD.encode(digest::digest(&digest::SHA256, &body));
        for trailer in [None, Some((SHA256, sum.as_str()))] {
            let path = format!("/lake/{}-{}", body.len(), trailer.is_some());
            let right = Chunks { pieces: &pieces, trailer, forged: None, is_cut: false };
            for before in [None, Some("before")] {
                if let Some(before) = before {
                    server.put(&path, before.as_bytes()).await;
                }
                let files = server.dir.files();
                // That of the second piece, of the empty chunk, and of the trailer.
                for forged in [1, 3, 4].into_iter().filter(|it| *it < 4 || trailer.is_some()) {
                    let what = format!("{path}: {forged}, over {before:?}");
                    let refused =
                        put(&server, &path, Chunks { forged: Some(forged), ..right }).await;
                    let told = (refused.status, refused.code());
                    assert_eq!(told, (403, "SignatureDoesNotMatch".to_string()), "{what}");
                    let left = server.get(&path).await;
                    let left = (left.status == 200).then(|| left.text());
                    assert_eq!(left.as_deref(), before, "{what}");
                }
                // A write that was under way when it was refused removes its file behind it.
                until(&path, async || server.dir.files() == files).await;
            }
            let taken = put(&server, &path, right).await;
            assert_eq!(taken.status, 200, "{path}: {}", taken.text());
            assert_eq!(taken.header(SHA256), trailer.map_or("", |it| it.1), "{path}");
            assert!(server.get(&path).await.body == body, "{path}: the bytes differ");
        }
    }
}

/// By the chain of signatures, before anybody misses the checksum in it (BadDigest).
async fn a_signed_trailer_that_does_not_come_is_missed(lane: Lane) {
    let server = Server::on(lane).await;
    let large = vec![7; 200 << 10];
    for body in [&b"small"[..], &large] {
        let pieces = [body];
        let sum = STANDARD.encode(digest::digest(&digest::SHA256, body));
        let trailer = Some((SHA256, sum.as_str()));
        let whole = Chunks { pieces: &pieces, trailer, forged: None, is_cut: false };
        let cut = put(&server, "/lake/k", Chunks { is_cut: true, ..whole }).await;
        let told = (cut.status, cut.code());
        assert_eq!(told, (400, "InvalidRequest".to_string()), "{}", cut.text());
        assert!(cut.text().contains("trailer"), "{}", cut.text());
        assert_eq!(server.get("/lake/k").await.status, 404);
        let taken = put(&server, "/lake/k", whole).await;
        assert_eq!(taken.status, 200, "{}", taken.text());
        assert!(server.get("/lake/k").await.body == body, "other bytes");
        let gone =
            crate::common::Request { method: "DELETE", path: "/lake/k", ..Default::default() };
        assert_eq!(server.send(gone).await.status, 204);
    }
}
