//! Bodies that are many pieces: what comes back is what was sent, on every lane and however the
//! pieces are moved (read and written, or sent by the kernel).

use crate::common::{ACCESS_KEY, Lane, Request, SECRET_KEY, Server, read_answer, sign};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

on_every_lane!(large_bodies_come_back_whole, connections_serve_large_and_small_in_turn);

const SIZE: usize = (9 << 20) + 12_345;

fn body() -> Vec<u8> {
    // No two blocks are alike, and no block is zeros.
    (0..SIZE as u64).map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8 | 1).collect()
}

async fn large_bodies_come_back_whole(lane: Lane) {
    let (server, body) = (Server::on(lane).await, body());
    assert_eq!(server.put("/lake/large", &body).await.status, 200);
    let whole = server.get("/lake/large").await;
    assert!(whole.status == 200 && whole.body == body);
    for (range, expected) in [
        ("bytes=1-8388609", &body[1..8_388_610]),
        ("bytes=4000000-", &body[4_000_000..]),
        ("bytes=-5000001", &body[SIZE - 5_000_001..]),
        ("bytes=1048575-1048577", &body[1_048_575..1_048_578]),
    ] {
        let headers = [("range", range)];
        let part = Request { path: "/lake/large", headers: &headers, ..Default::default() };
        let part = server.send(part).await;
        assert!(part.status == 206 && part.body == expected, "{range}");
    }
}

async fn connections_serve_large_and_small_in_turn(lane: Lane) {
    let (server, body) = (Server::on(lane).await, body());
    assert_eq!(server.put("/lake/large", &body).await.status, 200);
    assert_eq!(server.put("/lake/small", b"small").await.status, 200);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    for _ in 0..3 {
        for (path, expected) in [("/lake/large", &body[..]), ("/lake/small", b"small")] {
            let request = Request { path, ..Default::default() };
            let host = server.address.to_string();
            let request = sign::signed(&request, &host, SECRET_KEY, ACCESS_KEY);
            stream.write_all(&request).await.unwrap();
            let answer = read_answer(&mut stream, false).await;
            assert!(answer.status == 200 && answer.body == expected, "{path}");
        }
    }
}
