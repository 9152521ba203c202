//! A socket that changes sides keeps its bytes, and tells why it could not connect.

use super::*;
use crate::drive::block_on;
use std::net::TcpListener;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const TICK: Duration = Duration::from_secs(60);
const BYTES: usize = 3 << 20;

/// More than the socket's buffers hold, out and back.
async fn exchange(mut socket: Socket) -> Socket {
    let sent: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
    socket.write_all(&sent).await.unwrap();
    let mut received = vec![0; BYTES];
    socket.read_exact(&mut received).await.unwrap();
    assert_eq!(sent, received);
    socket
}

#[test]
fn a_connection_serves_blocked_callers_and_tasks_in_turn() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let echo = std::thread::spawn(move || {
        let (mut far, _) = listener.accept().unwrap();
        let mut buf = vec![0; BYTES];
        while far.read_exact(&mut buf).is_ok() {
            far.write_all(&buf).unwrap();
        }
    });
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let blocked = |socket| {
        let _context = runtime.enter();
        block_on(exchange(socket), TICK, || false).unwrap().unwrap()
    };
    let task = |socket| runtime.block_on(runtime.spawn(exchange(socket))).unwrap();
    let mut socket = block_on(Socket::connect(address), TICK, || false).unwrap().unwrap().unwrap();
    for _ in 0..3 {
        socket = blocked(blocked(socket));
        assert!(matches!(socket.0, Side::Caller(_)));
        assert!(would_block(&socket.peek()));
        socket = task(task(socket));
        assert!(matches!(socket.0, Side::Runtime(_)));
        assert!(would_block(&socket.peek()));
    }
    drop(socket);
    echo.join().unwrap();
}

#[test]
fn a_closed_port_is_refused_on_either_side() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let caller = block_on(Socket::connect(address), TICK, || false).unwrap().unwrap();
    for refused in [caller, runtime.block_on(Socket::connect(address))] {
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
    }
}
