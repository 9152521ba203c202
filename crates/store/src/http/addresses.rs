//! Several addresses of one host: which is tried first, and when the next one.
//!
//! Decides no more than that. How long a connection may take in all is the caller's.

use crate::http::socket::Socket;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;

/// How much sooner an address is tried than the next one (RFC 8305 section 5: 250 ms).
const HEAD_START: Duration = Duration::from_millis(250);

/// Keeps the system's order of address families, and rotates inside the first one.
pub(super) fn rotated(mut addresses: Vec<SocketAddr>, turn: usize) -> Vec<SocketAddr> {
    let Some(first) = addresses.first().copied() else { return addresses };
    let same = addresses.iter().take_while(|next| next.is_ipv4() == first.is_ipv4()).count();
    addresses[..same].rotate_left(turn % same);
    addresses
}

/// A connection to the first address that gives one. The next one is tried as soon as one fails,
/// and where one says nothing for [`HEAD_START`] beside it: a dead machine costs that much, not the
/// limit of a connection.
///
/// # Errors
/// What became of each address, when all of them have failed.
pub(super) async fn first_to_answer(
    addresses: &[SocketAddr],
) -> Result<Socket, Vec<(SocketAddr, io::Error)>> {
    let mut left = addresses.iter().copied();
    let mut tried = FuturesUnordered::new();
    let mut failed = Vec::new();
    loop {
        if let Some(address) = left.next() {
            tried.push(async move { (address, Socket::connect(address).await) });
        }
        let next = tried.next();
        let ended = match left.len() {
            0 => next.await,
            _ => match timeout(HEAD_START, next).await {
                Ok(ended) => ended,
                Err(_) => continue,
            },
        };
        match ended {
            Some((_, Ok(socket))) => return Ok(socket),
            Some((address, Err(error))) => failed.push((address, error)),
            None => return Err(failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive;
    use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

    #[test]
    fn rotation_keeps_every_address_and_the_order_of_families() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let all = ["1.1.1.1:1", "2.2.2.2:1", "3.3.3.3:1", "[::1]:1"].map(address).to_vec();
        for turn in 0..7 {
            let turned = rotated(all.clone(), turn);
            assert_eq!(turned[0], all[turn % 3]);
            assert_eq!(turned[3], all[3]);
            assert!(all.iter().all(|address| turned.contains(address)));
        }
        assert!(rotated(Vec::new(), 3).is_empty());
    }

    /// A server on one of the addresses that lead to this machine.
    fn listener(last: u8) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    /// An address where nobody listens: the port was somebody's just now.
    fn nobody() -> SocketAddr {
        listener(77).1
    }

    /// An address that answers nothing, as a machine that is down: its queue of connections is
    /// full, and the kernel drops what asks for one more.
    fn silent() -> (socket2::Socket, Vec<TcpStream>, SocketAddr) {
        let socket =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let any: SocketAddr = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, 78), 0).into();
        socket.bind(&any.into()).unwrap();
        socket.listen(0).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let mut queue = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(100)) {
            queue.push(stream);
        }
        (socket, queue, address)
    }

    /// Both ways to wait for a socket: in a task of the runtime, and on a thread that blocks.
    fn both_ways(addresses: &[SocketAddr], check: impl Fn(Result<Socket, Vec<SocketAddr>>)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connect = async || {
            let connected = first_to_answer(addresses).await;
            connected.map_err(|failed| failed.into_iter().map(|(address, _)| address).collect())
        };
        check(runtime.block_on(connect()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let _context = runtime.enter();
        let blocking = async { Ok::<_, penstock_base::Error>(connect().await) };
        let ended = drive::block_on(blocking, Duration::from_secs(20), || true).unwrap();
        check(ended.expect("within 20 s").unwrap());
    }

    #[test]
    fn where_one_address_is_dead_another_is_used() {
        let (_listener, alive) = listener(1);
        let (_socket, _queue, silent) = silent();
        for addresses in [[nobody(), alive], [alive, nobody()], [silent, alive], [alive, silent]] {
            both_ways(&addresses, |connected| {
                assert!(connected.is_ok(), "{addresses:?}: {connected:?}");
            });
        }
    }

    #[test]
    fn where_all_are_dead_each_is_told() {
        let addresses = [nobody(), nobody()];
        both_ways(&addresses, |connected| {
            assert_eq!(connected.expect_err("nobody listens"), addresses);
        });
        both_ways(&[], |connected| assert!(connected.expect_err("no address").is_empty()));
    }

    #[test]
    fn connections_spread_over_the_addresses() {
        let servers = [listener(1), listener(2), listener(3)];
        let addresses: Vec<SocketAddr> = servers.iter().map(|(_, address)| *address).collect();
        for turn in 0..6 {
            both_ways(&rotated(addresses.clone(), turn), |connected| assert!(connected.is_ok()));
        }
        for (server, address) in &servers {
            server.set_nonblocking(true).unwrap();
            let came = server.incoming().take_while(Result::is_ok).count();
            assert_eq!(came, 4, "two turns, both ways, at {address}");
        }
    }
}
