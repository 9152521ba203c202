//! A TCP socket that is waited for by whoever polls it: a blocked thread itself, or the runtime.
//!
//! It changes hands with its connection: out of the pool it may serve a blocked caller now and a
//! background task next. It stands in the runtime's list of sockets only while tasks use it.

use crate::drive::{Direction, Watched, is_driving, wait_here};
use crate::near;
use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpSocket, TcpStream};

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket(Side);

/// Who waits for it.
#[derive(Debug)]
enum Side {
    /// The thread that polls.
    Caller(Arc<Watched>),
    Runtime(TcpStream),
    /// A change of sides failed.
    Lost,
}

impl Socket {
    /// Connects, and sends what is written at once: requests are written whole, so waiting for
    /// more to send only adds latency.
    ///
    /// # Errors
    /// The system's.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Self> {
        if !is_driving() {
            let tcp = match address {
                SocketAddr::V4(_) => TcpSocket::new_v4()?,
                SocketAddr::V6(_) => TcpSocket::new_v6()?,
            };
            near::before_connecting(&tcp, address.ip());
            let tcp = tcp.connect(address).await?;
            tcp.set_nodelay(true)?;
            return Ok(Socket(Side::Runtime(tcp)));
        }
        let domain = socket2::Domain::for_address(address);
        let tcp =
            socket2::Socket::new(domain, socket2::Type::STREAM, Some(socket2::Protocol::TCP))?;
        tcp.set_nonblocking(true)?;
        tcp.set_tcp_nodelay(true)?;
        near::before_connecting(&tcp, address.ip());
        let begun = tcp.connect(&address.into());
        let watched = Arc::new(Watched::new(tcp.into()));
        match begun {
            Err(error) if is_in_progress(&error) => {}
            done => return done.map(|()| Socket(Side::Caller(watched))),
        }
        watched.clear_ready(Direction::Write);
        poll_fn(|context| poll_caller(&watched, context, Direction::Write, 0, connected)).await?;
        Ok(Socket(Side::Caller(watched)))
    }

    /// Looks whether anything has arrived, without waiting and without taking it.
    pub(crate) fn peek(&self) -> io::Result<usize> {
        match &self.0 {
            Side::Caller(watched) => {
                let seen = watched.tcp.peek(&mut [0; 1]);
                if would_block(&seen) {
                    watched.clear_ready(Direction::Read);
                }
                seen
            }
            Side::Runtime(tcp) => socket2::SockRef::from(tcp).peek(&mut [MaybeUninit::uninit()]),
            Side::Lost => Err(lost()),
        }
    }

    /// Moves it to the side that polls now.
    fn side(&mut self) -> io::Result<&mut Side> {
        let is_moving = match &self.0 {
            Side::Caller(_) => !is_driving() && tokio::runtime::Handle::try_current().is_ok(),
            Side::Runtime(_) => is_driving(),
            Side::Lost => return Err(lost()),
        };
        if is_moving {
            self.0 = match std::mem::replace(&mut self.0, Side::Lost) {
                Side::Caller(watched) => {
                    // The thread that waited for it last may be looking at it still.
                    let tcp = match Arc::try_unwrap(watched) {
                        Ok(watched) => watched.tcp,
                        Err(watched) => watched.tcp.try_clone()?,
                    };
                    Side::Runtime(TcpStream::from_std(tcp)?)
                }
                Side::Runtime(tcp) => Side::Caller(Arc::new(Watched::new(tcp.into_std()?))),
                Side::Lost => Side::Lost,
            };
        }
        Ok(&mut self.0)
    }
}

/// Tries `call` if that is worth it, and has the thread wait if not. A call that did a part of what
/// was `wanted` did all it could for now; to ask the kernel once too often is harmless, since it
/// tells of a state, not of a change.
fn poll_caller(
    watched: &Arc<Watched>,
    context: &mut Context<'_>,
    direction: Direction,
    wanted: usize,
    call: impl FnOnce(&std::net::TcpStream) -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    if watched.is_ready(direction) {
        let done = call(&watched.tcp);
        if would_block(&done) || matches!(done, Ok(count) if (1..wanted).contains(&count)) {
            watched.clear_ready(direction);
        }
        if !would_block(&done) {
            return Poll::Ready(done);
        }
    }
    wait_here(watched, direction, context.waker());
    Poll::Pending
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut().side()? {
            Side::Runtime(tcp) => Pin::new(tcp).poll_read(context, space),
            Side::Lost => Poll::Ready(Err(lost())),
            Side::Caller(watched) => {
                let buf = space.initialize_unfilled();
                let wanted = buf.len();
                let read = |mut tcp: &std::net::TcpStream| tcp.read(buf);
                let count = ready!(poll_caller(watched, context, Direction::Read, wanted, read))?;
                space.advance(count);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut().side()? {
            Side::Runtime(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Side::Lost => Poll::Ready(Err(lost())),
            Side::Caller(watched) => {
                let write = |mut tcp: &std::net::TcpStream| tcp.write_vectored(slices);
                let wanted = slices.iter().map(|slice| slice.len()).sum();
                poll_caller(watched, context, Direction::Write, wanted, write)
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP socket keeps nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Side::Runtime(tcp) => Pin::new(tcp).poll_shutdown(context),
            Side::Caller(watched) => Poll::Ready(watched.tcp.shutdown(std::net::Shutdown::Write)),
            Side::Lost => Poll::Ready(Err(lost())),
        }
    }
}

/// Whether a connection that was begun stands.
fn connected(tcp: &std::net::TcpStream) -> io::Result<usize> {
    if let Some(error) = tcp.take_error()? {
        return Err(error);
    }
    match tcp.peer_addr() {
        // It was asked too early.
        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        peer => peer.map(|_| 0),
    }
}

fn is_in_progress(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::INPROGRESS)
}

fn would_block(done: &io::Result<usize>) -> bool {
    done.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn lost() -> io::Error {
    io::Error::other("the socket could not be handed to another thread")
}

#[cfg(test)]
mod tests;
