//! Idle connections, and the limit of connections per host.

use crate::http::connection::Connection;
use crate::http::proxy::Proxy;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Hosts that are remembered before those without a connection are forgotten.
const HOSTS_MAX: usize = 256;

/// What a connection is for; connections of equal origins are interchangeable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    /// Set for https.
    pub trust: Option<Trust>,
    /// Lower case, IPv6 without brackets.
    pub host: String,
    pub port: u16,
    pub proxy: Option<Proxy>,
}

/// Whose certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trust {
    pub verify: bool,
    /// PEM file of authorities besides the system's.
    pub ca_file: Option<Arc<Path>>,
}

impl Origin {
    pub(crate) fn is_https(&self) -> bool {
        self.trust.is_some()
    }

    /// The host as it stands in a Host header, without port.
    pub(crate) fn host_for_header(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    until: Instant,
}

#[derive(Debug)]
struct Host {
    slots: Arc<Semaphore>,
    idle: Vec<Idle>,
    /// It has answered in HTTP before.
    has_answered: bool,
}

/// Connections that wait for a request, last in first out: the warmest window is used first, and
/// surplus connections age out.
#[derive(Debug)]
pub(crate) struct Pool {
    hosts: Mutex<HashMap<Arc<Origin>, Host>>,
    connections_per_host: usize,
}

/// The right to hold one connection to an origin.
#[derive(Debug)]
pub(crate) struct Slot {
    pub origin: Arc<Origin>,
    _permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(connections_per_host: usize) -> Self {
        Pool { hosts: Mutex::default(), connections_per_host: connections_per_host.max(1) }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<Origin>, Host>> {
        // The map is whole between any two statements here, so a panic elsewhere cannot spoil it.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, in order of arrival, for the right to hold a connection.
    pub(crate) async fn slot(&self, origin: Origin) -> Slot {
        let (origin, slots) = {
            let mut hosts = self.lock();
            match hosts.get_key_value(&origin) {
                Some((key, host)) => (key.clone(), host.slots.clone()),
                None => {
                    if hosts.len() >= HOSTS_MAX {
                        hosts.retain(|_, host| {
                            !host.idle.is_empty() || Arc::strong_count(&host.slots) > 1
                        });
                    }
                    let origin = Arc::new(origin);
                    let slots = Arc::new(Semaphore::new(self.connections_per_host));
                    let host = Host { slots: slots.clone(), idle: Vec::new(), has_answered: false };
                    hosts.insert(origin.clone(), host);
                    (origin, slots)
                }
            }
        };
        let permit = slots.acquire_owned().await.expect("the semaphore is never closed");
        Slot { origin, _permit: permit }
    }

    /// An idle connection that still stands; dead ones on the way are closed.
    pub(crate) fn take(&self, slot: &Slot) -> Option<Connection> {
        loop {
            let mut idle = self.lock().get_mut(&slot.origin)?.idle.pop()?;
            if idle.until > Instant::now() && idle.connection.is_idle() {
                return Some(idle.connection);
            }
        }
    }

    /// Takes note that the origin answered in HTTP.
    pub(crate) fn note_answer(&self, slot: &Slot) {
        if let Some(host) = self.lock().get_mut(&slot.origin) {
            host.has_answered = true;
        }
    }

    /// Whether the origin has ever answered in HTTP, as far as is remembered.
    pub(crate) fn has_answered(&self, slot: &Slot) -> bool {
        self.lock().get(&slot.origin).is_some_and(|host| host.has_answered)
    }

    /// Gives a connection back; `idle_limit` is how long the server is sure to keep it.
    pub(crate) fn give(&self, slot: Slot, connection: Connection, idle_limit: Duration) {
        let now = Instant::now();
        let mut closed = Vec::new();
        {
            let mut hosts = self.lock();
            for host in hosts.values_mut() {
                // The oldest stand first; those of one host are few.
                let stale = host.idle.iter().take_while(|idle| idle.until <= now).count();
                closed.extend(host.idle.drain(..stale));
            }
            if let Some(host) = hosts.get_mut(&slot.origin) {
                host.idle.push(Idle { connection, until: now + idle_limit });
            }
        }
        // Sockets close and the slot frees itself outside of the lock.
        drop(closed);
        drop(slot);
    }
}
