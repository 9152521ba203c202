//! Connections that stay on this machine are not paced.
//!
//! BBR sends in bursts, each begun by a timer. Between two processes of one machine there is no
//! link whose rate it could find, and the timers are two fifths of what a large answer costs. So
//! where the host's congestion control paces, such connections have Reno, which every Linux lets
//! everybody choose. All others stay as the host has them. Once BBR has begun, its timers stay with
//! the connection whatever is chosen then, so it must be chosen before the connection stands: for a
//! server by its listener, and the host's again for each connection that came from elsewhere.

use rustix::fd::AsFd;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};

/// Never paces, and needs no rights.
const UNPACED: &str = "reno";

/// Whether both ends are on this machine.
fn is_near(local: IpAddr, peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback() || peer.to_canonical() == local.to_canonical()
}

/// Whether a congestion control has timers for its bursts.
fn paces(algorithm: &str) -> bool {
    algorithm.starts_with("bbr")
}

/// The congestion control of a listener's connections.
#[derive(Clone, Debug, Default)]
pub struct Pacing {
    /// What connections from elsewhere get back. `None`: all have it still.
    host: Option<String>,
}

impl Pacing {
    /// Has the connections of `listener` begin without pacing, where the host would have them
    /// paced. A system that does not let it leaves all as they are.
    pub fn of_listener(listener: impl AsFd) -> Self {
        Self::where_it(paces, listener)
    }

    fn where_it(paces: impl Fn(&str) -> bool, listener: impl AsFd) -> Self {
        let host = tcp_congestion(&listener).ok().filter(|algorithm| paces(algorithm));
        // Only what can be given back may be taken away.
        let host = host.filter(|algorithm| set_tcp_congestion(&listener, algorithm).is_ok());
        Pacing { host: host.filter(|_| set_tcp_congestion(&listener, UNPACED).is_ok()) }
    }

    /// Gives a connection from elsewhere what the host has for it. `local` is asked only where it
    /// matters.
    ///
    /// # Errors
    /// The system's; the connection is of no use then.
    pub fn accepted(
        &self,
        stream: impl AsFd,
        peer: SocketAddr,
        local: impl FnOnce() -> Result<SocketAddr>,
    ) -> Result<()> {
        let Some(host) = self.host.as_ref().filter(|_| !peer.ip().to_canonical().is_loopback())
        else {
            return Ok(());
        };
        // A route may have its own, which the listener's does not replace.
        if is_near(local()?.ip(), peer.ip()) || tcp_congestion(&stream)? != UNPACED {
            return Ok(());
        }
        Ok(set_tcp_congestion(&stream, host)?)
    }
}

/// Keeps a socket that is about to connect to this machine from being paced; one to elsewhere is
/// left alone.
pub(crate) fn before_connecting(socket: impl AsFd, peer: IpAddr) {
    let is_paced = || tcp_congestion(&socket).is_ok_and(|algorithm| paces(&algorithm));
    if peer.to_canonical().is_loopback() && is_paced() {
        // A system that does not let it leaves it paced, which only costs time.
        let _ = set_tcp_congestion(&socket, UNPACED);
    }
}

/// Connects a blocking thread, as the stores' own connections are.
///
/// # Errors
/// The system's, of the last address that `peer` has.
pub fn connect(peer: impl ToSocketAddrs) -> Result<TcpStream> {
    let mut last = Error::new(ErrorKind::NotFound, "the name has no address");
    for address in peer.to_socket_addrs()? {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        before_connecting(&socket, address.ip());
        match socket.connect(&address.into()) {
            Ok(()) => return Ok(socket.into()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn near_is_the_loopback_and_the_machines_own_address() {
        assert!(is_near(ip("127.0.0.1"), ip("127.0.0.6")));
        assert!(is_near(ip("::1"), ip("::1")));
        assert!(is_near(ip("::ffff:127.0.0.1"), ip("::ffff:127.0.0.1")));
        assert!(is_near(ip("10.0.0.7"), ip("::ffff:10.0.0.7")));
        assert!(!is_near(ip("10.0.0.7"), ip("10.0.0.8")));
        assert!(!is_near(ip("0.0.0.0"), ip("10.0.0.8")));
    }

    #[test]
    fn only_what_paces_by_itself_is_replaced() {
        assert!(paces("bbr") && paces("bbr2"));
        assert!(!paces("cubic") && !paces("reno") && !paces("dctcp"));
    }

    /// A connection and the other end of it.
    fn accepted(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let other = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (listener.accept().unwrap().0, other)
    }

    #[test]
    fn connections_from_elsewhere_get_the_hosts_back() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = tcp_congestion(&listener).unwrap();
        let pacing = Pacing::where_it(|algorithm| algorithm == host, &listener);
        let (stream, _other) = accepted(&listener);
        assert_eq!(tcp_congestion(&stream).unwrap(), UNPACED);

        let near = || Ok("10.0.0.7:1".parse().unwrap());
        for peer in ["127.0.0.1:2", "10.0.0.7:2"] {
            pacing.accepted(&stream, peer.parse().unwrap(), near).unwrap();
            assert_eq!(tcp_congestion(&stream).unwrap(), UNPACED, "{peer}");
        }
        pacing.accepted(&stream, "10.0.0.8:2".parse().unwrap(), near).unwrap();
        assert_eq!(tcp_congestion(&stream).unwrap(), host);
    }

    #[test]
    fn a_host_that_does_not_pace_keeps_what_it_has() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = tcp_congestion(&listener).unwrap();
        let pacing = Pacing::where_it(|_| false, &listener);
        let (stream, _other) = accepted(&listener);
        assert_eq!(tcp_congestion(&stream).unwrap(), host);
        let peer = "10.0.0.8:2".parse().unwrap();
        pacing.accepted(&stream, peer, || panic!("nobody has to know")).unwrap();
        assert_eq!(tcp_congestion(&stream).unwrap(), host);
    }

    #[test]
    fn a_socket_to_this_machine_is_not_paced_and_one_to_elsewhere_is_as_the_host_has_it() {
        let host = tcp_congestion(TcpListener::bind("127.0.0.1:0").unwrap()).unwrap();
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None);
        let (near, far) = (socket().unwrap(), socket().unwrap());
        before_connecting(&near, ip("127.0.0.1"));
        before_connecting(&far, ip("10.0.0.8"));
        assert!(!paces(&tcp_congestion(&near).unwrap()));
        assert_eq!(tcp_congestion(&far).unwrap(), host);
    }
}
