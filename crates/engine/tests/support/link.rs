//! Bodies that take their time: on a connection of their own, or over a link that they share.

use bytes::Bytes;
use penstock_base::Result;
use penstock_store::BodySource;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

/// A body that has a connection to itself.
#[derive(Debug)]
pub struct OnConnection(Bytes, Option<OwnedSemaphorePermit>);

impl OnConnection {
    pub fn new(bytes: Bytes, connection: OwnedSemaphorePermit) -> Self {
        OnConnection(bytes, Some(connection))
    }
}

impl BodySource for OnConnection {
    fn remaining(&self) -> u64 {
        self.0.len() as u64
    }

    fn poll_read(&mut self, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        let count = buf.len().min(self.0.len());
        buf[..count].copy_from_slice(&self.0.split_to(count));
        if self.0.is_empty() {
            self.1 = None;
        }
        Poll::Ready(Ok(count))
    }
}

/// A link, on the test's clock; requests take turns on it, a little each.
#[derive(Debug)]
pub struct Link {
    bytes_per_s: f64,
    /// When it has brought all that was asked of it.
    free: Mutex<Option<Instant>>,
}

impl Link {
    pub fn new(bytes_per_s: f64) -> Arc<Self> {
        Arc::new(Link { bytes_per_s, free: Mutex::default() })
    }

    /// When so many bytes more have come.
    fn take(&self, bytes: usize) -> Instant {
        let mut free = self.free.lock().unwrap();
        let begin = free.unwrap_or_else(Instant::now).max(Instant::now());
        let end = begin + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        *free = Some(end);
        end
    }
}

/// A body that comes over a link.
#[derive(Debug)]
pub struct OnLink {
    bytes: Bytes,
    link: Arc<Link>,
    /// What is on its way.
    wait: Option<(usize, Pin<Box<Sleep>>)>,
}

impl OnLink {
    pub fn new(bytes: Bytes, link: Arc<Link>) -> Self {
        OnLink { bytes, link, wait: None }
    }
}

impl BodySource for OnLink {
    fn remaining(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn poll_read(&mut self, context: &mut Context<'_>, buf: &mut [u8]) -> Poll<Result<usize>> {
        const TURN_BYTES: usize = 64 << 10;
        let most = self.bytes.len().min(TURN_BYTES);
        let link = &self.link;
        let (turn, wait) =
            self.wait.get_or_insert_with(|| (most, Box::pin(sleep_until(link.take(most)))));
        std::task::ready!(wait.as_mut().poll(context));
        let count = buf.len().min(*turn);
        buf[..count].copy_from_slice(&self.bytes.split_to(count));
        *turn -= count;
        if *turn == 0 {
            self.wait = None;
        }
        Poll::Ready(Ok(count))
    }
}
