//! What is due is sent in order, and nothing is where stand-ins and pieces disagree.

use super::*;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncReadExt as _;

async fn pair() -> (TcpStream, TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

fn file(content: &[u8]) -> Arc<rustix::fd::OwnedFd> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("handover-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut file = std::fs::File::options();
    let mut file = file.create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.write_all(content).unwrap();
    Arc::new(file.into())
}

/// One write of `parts`, as the connection makes it.
async fn write(handover: &Handover, stream: &TcpStream, parts: &[&[u8]]) -> Result<usize> {
    let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    assert!(handover.is_in(&slices)?, "nothing is due");
    std::future::poll_fn(|context| handover.poll_send(stream, context, &slices)).await
}

/// Sends `parts` to their end, as an HTTP layer would.
async fn send(handover: &Handover, stream: &TcpStream, parts: &[Bytes]) -> Result<()> {
    let mut left: VecDeque<Bytes> = parts.iter().cloned().collect();
    while let Some(front) = left.front() {
        if front.is_empty() {
            left.pop_front();
            continue;
        }
        let slices: Vec<&[u8]> = left.iter().map(|part| &part[..]).collect();
        let sent = write(handover, stream, &slices).await?;
        left.front_mut().map(|front| front.split_to(sent)).unwrap();
    }
    Ok(())
}

#[tokio::test]
async fn heads_and_pieces_come_in_order() {
    let content: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    let (file, handover) = (file(&content), Handover::default());
    let piece = |range: std::ops::Range<u64>| FilePiece { file: file.clone(), range };
    let parts = [
        Bytes::from_static(b"head"),
        handover.stand_in(piece(7..1_000_000)),
        handover.stand_in(piece(1_000_000..2_000_000)),
        Bytes::from_static(b"next"),
        handover.stand_in(piece(2_999_999..3_000_000)),
    ];
    let (server, mut client) = pair().await;
    let expected = [b"head", &content[7..2_000_000], b"next", &content[2_999_999..]].concat();
    let received = tokio::spawn(async move {
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        received
    });
    send(&handover, &server, &parts).await.unwrap();
    assert!(!handover.is_in(&[IoSlice::new(b"the next head")]).unwrap());
    drop(server);
    assert!(received.await.unwrap() == expected);
}

#[tokio::test]
async fn a_fast_client_lets_others_have_their_turn() {
    let content = vec![1; PIECE_BYTES_MAX];
    let (file, handover) = (file(&content), Handover::default());
    handover.due().sent_bytes = TURN_BYTES;
    let part = handover.stand_in(FilePiece { file, range: 0..9 });
    let (server, _client) = pair().await;
    let mut asked = 0;
    let slices = [IoSlice::new(&part)];
    let sent = std::future::poll_fn(|context| {
        asked += 1;
        handover.poll_send(&server, context, &slices)
    });
    assert_eq!(sent.await.unwrap(), 9);
    assert_eq!(asked, 2);
}

#[tokio::test]
async fn a_file_that_was_cut_ends_the_connection() {
    let handover = Handover::default();
    let parts = [handover.stand_in(FilePiece { file: file(b"short"), range: 0..9 })];
    let (server, _client) = pair().await;
    let error = send(&handover, &server, &parts).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

/// Nothing of a write is sent, and of no later one, where a layer between did not pass the
/// stand-ins on as they were.
#[tokio::test]
async fn stand_ins_that_are_not_as_they_were_end_the_connection() {
    let ten = file(b"0123456789");
    let piece = || FilePiece { file: ten.clone(), range: 0..10 };
    let handover = Handover::default();
    let (a, b) = (handover.stand_in(piece()), handover.stand_in(piece()));
    let copy = a.to_vec();
    let wrong: [&[&[u8]]; 8] = [
        &[b"head"],
        &[b"head", &copy, &copy],
        &[b"head", &a],
        &[b"head", &a, &copy],
        &[&a[1..], &b],
        &[&a, &b[..9]],
        &[&a[..5], &a[5..], &b],
        &[&a, &b, &a],
    ];
    let (server, mut client) = pair().await;
    for parts in wrong {
        let error = write(&handover, &server, parts).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{parts:?}");
    }
    drop(server);
    let mut received = Vec::new();
    client.read_to_end(&mut received).await.unwrap();
    assert!(received.is_empty());
    // One of another connection.
    let other = Handover::default();
    assert!(other.is_in(&[IoSlice::new(&a)]).is_err());
}
