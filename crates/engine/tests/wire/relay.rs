//! Stands between the engine and the store, and counts the connections that the engine closed.

#![allow(clippy::unwrap_used)]

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What stands there.
pub struct Relay {
    pub address: SocketAddr,
    closed: Arc<AtomicUsize>,
}

impl Relay {
    pub fn before(store: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let closed = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&closed);
        std::thread::spawn(move || {
            for engine in listener.incoming() {
                let (Ok(engine), Ok(store)) = (engine, TcpStream::connect(store)) else { return };
                relay(&engine, &store, &count);
            }
        });
        Relay { address, closed }
    }

    pub fn closed(&self) -> usize {
        self.closed.load(Ordering::Relaxed)
    }
}

/// Both ways, on threads that end with the connection.
fn relay(engine: &TcpStream, store: &TcpStream, closed: &Arc<AtomicUsize>) {
    for stream in [engine, store] {
        stream.set_nodelay(true).unwrap();
    }
    let copy = |mut from: TcpStream, mut to: TcpStream, ended: Option<Arc<AtomicUsize>>| {
        std::thread::spawn(move || {
            // However it ends, it is over.
            let _ = io::copy(&mut from, &mut to);
            if let Some(ended) = ended {
                ended.fetch_add(1, Ordering::Relaxed);
            }
            let _ = to.shutdown(Shutdown::Write);
        });
    };
    let again = |stream: &TcpStream| stream.try_clone().unwrap();
    copy(again(engine), again(store), Some(Arc::clone(closed)));
    copy(again(store), again(engine), None);
}
