//! Idle connections, those that are opened before a request needs them, and the limit of
//! connections per host: no warm-up passes it, and a request's own connection goes before one.

use crate::http::connection::Connection;
use crate::http::proxy::Proxy;
use crate::http::warming::{Begun, Coming, Connections, Times, Warming};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Hosts that are remembered before those without a connection are forgotten.
const HOSTS_MAX: usize = 256;

/// So often at most a look is taken at what nobody uses.
const SWEEP_MIN: Duration = Duration::from_millis(20);

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

/// A PEM file of certificate authorities, and who has named it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CaFile {
    pub path: Arc<Path>,
    /// By the option `ca_cert_file`; else by the setting `ca_file`.
    pub is_option: bool,
}

impl CaFile {
    /// The file of the setting `ca_file`.
    pub fn of_setting(path: &Path) -> Self {
        CaFile { path: Arc::from(path), is_option: false }
    }
}

/// Whose certificates are accepted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Trust {
    pub verify: bool,
    /// Authorities besides the system's.
    pub ca_file: Option<CaFile>,
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
    /// Idle connections that no request has used, the oldest first, which is used first: it has the
    /// least time left. What others have used has wider windows, and goes before them.
    fresh: VecDeque<Idle>,
    warming: Warming<Connection>,
    times: Times,
    /// It has answered in HTTP before.
    has_answered: bool,
}

impl Host {
    fn new(connections: usize) -> Self {
        Host {
            slots: Arc::new(Semaphore::new(connections)),
            idle: Vec::new(),
            fresh: VecDeque::new(),
            warming: Warming::default(),
            times: Times::default(),
            has_answered: false,
        }
    }

    fn is_unused(&self) -> bool {
        self.idle.is_empty()
            && self.fresh.is_empty()
            && self.warming.opening() == 0
            && Arc::strong_count(&self.slots) == 1
    }

    /// Most sockets that there can be, of those who hold a slot, and of those who have not come to
    /// open one.
    fn sockets(&mut self, connections_max: usize) -> usize {
        let in_use = connections_max.saturating_sub(self.slots.available_permits());
        // Who waits for one that is being opened has none.
        let opened = in_use.saturating_sub(self.warming.waiting());
        opened + self.warming.opening() + self.idle.len() + self.fresh.len()
    }

    /// When the first of its connections will have been idle for too long; `None` if it has none.
    /// What is being opened is not before `opened_now`.
    fn next_expiry(&self, opened_now: Instant) -> Option<Instant> {
        let idle = self.idle.iter().chain(&self.fresh).map(|idle| idle.until);
        idle.chain((self.warming.opening() > 0).then_some(opened_now)).min()
    }

    /// Takes out what has been idle for too long.
    fn expired(&mut self, now: Instant, closed: &mut Vec<Idle>) {
        // The times of two can be in another order than they: servers tell how long they wait.
        let is_stale = |idle: &mut Idle| idle.until <= now;
        closed.extend(self.idle.extract_if(.., is_stale));
        let all = self.fresh.drain(..);
        let (stale, fresh): (VecDeque<_>, _) = all.partition(|idle| idle.until <= now);
        self.fresh = fresh;
        closed.extend(stale);
    }
}

/// A connection out of the pool.
#[derive(Debug)]
pub(crate) struct Kept {
    pub connection: Connection,
    /// No request has used it.
    pub is_fresh: bool,
}

/// What the pool has for a request.
#[derive(Debug)]
pub(crate) enum Taken {
    Kept(Kept),
    /// One is being opened already.
    Coming(Coming<Connection>),
    Nothing,
}

/// What an answer came on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    New,
    Fresh,
    Used,
}

/// Connections that wait for a request, last in first out: the warmest window is used first, and
/// surplus connections age out.
#[derive(Debug)]
pub(crate) struct Pool {
    hosts: Mutex<HashMap<Arc<Origin>, Host>>,
    connections_per_host: usize,
    /// Somebody closes what nobody uses.
    is_swept: AtomicBool,
}

/// The right to hold one connection to an origin.
#[derive(Debug)]
pub(crate) struct Slot {
    pub origin: Arc<Origin>,
    _permit: OwnedSemaphorePermit,
}

/// The right to open one connection before a request needs it. Dropping it tells that it failed.
#[derive(Debug)]
pub(crate) struct Place {
    pub origin: Arc<Origin>,
    pool: Arc<Pool>,
    begun: Begun,
}

impl Place {
    /// Waits until the place is needed by a request.
    pub(crate) async fn stopped(&mut self) {
        // Nothing is ever sent.
        let _: Result<(), oneshot::error::RecvError> = (&mut self.begun.stop).await;
    }

    /// The connection stands, and is kept so long.
    pub(crate) fn ready(self, connection: Connection, idle_limit: Duration) {
        let mut hosts = self.pool.lock();
        let Some(host) = hosts.get_mut(&self.origin) else { return };
        if host.warming.ended(self.begun.id)
            && let Some(connection) = host.warming.hand(connection)
        {
            host.fresh.push_back(Idle { connection, until: Instant::now() + idle_limit });
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(host) = self.pool.lock().get_mut(&self.origin) {
            host.warming.ended(self.begun.id);
            host.warming.settle();
        }
    }
}

impl Pool {
    pub(crate) fn new(connections_per_host: usize) -> Self {
        Pool {
            hosts: Mutex::default(),
            connections_per_host: connections_per_host.max(1),
            is_swept: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<Origin>, Host>> {
        // The map is whole between any two statements here, so a panic elsewhere cannot spoil it.
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, in order of arrival, for the right to hold a connection. Where others hold them all,
    /// what `waiting` makes lives as long as that takes.
    pub(crate) async fn slot<W>(&self, origin: Origin, waiting: impl FnOnce() -> W) -> Slot {
        let (origin, slots) = {
            let mut hosts = self.lock();
            let (origin, host) = self.host(&mut hosts, origin);
            (origin, host.slots.clone())
        };
        // Nobody who waits is passed: what is given back is theirs before it is anybody's.
        let permit = match slots.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let _waiting = waiting();
                slots.acquire_owned().await.expect("the semaphore is never closed")
            }
        };
        Slot { origin, _permit: permit }
    }

    fn host<'a>(
        &self,
        hosts: &'a mut HashMap<Arc<Origin>, Host>,
        origin: Origin,
    ) -> (Arc<Origin>, &'a mut Host) {
        let known = hosts.get_key_value(&origin).map(|(key, _)| key.clone());
        if known.is_none() && hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, host| !host.is_unused());
        }
        let origin = known.unwrap_or_else(|| Arc::new(origin));
        let host = hosts.entry(origin.clone());
        (origin, host.or_insert_with(|| Host::new(self.connections_per_host)))
    }

    /// An idle connection that still stands, dead ones on the way are closed; or one that is being
    /// opened and that nobody waits for.
    pub(crate) fn take(&self, slot: &Slot) -> Taken {
        loop {
            let mut hosts = self.lock();
            let Some(host) = hosts.get_mut(&slot.origin) else { return Taken::Nothing };
            let used = host.idle.pop().map(|idle| (idle, false));
            let found = used.or_else(|| Some((host.fresh.pop_front()?, true)));
            let Some((mut idle, is_fresh)) = found else {
                let coming = host.warming.wait(Instant::now(), host.times.connect);
                return coming.map_or(Taken::Nothing, Taken::Coming);
            };
            drop(hosts);
            if idle.until > Instant::now() && idle.connection.is_idle() {
                return Taken::Kept(Kept { connection: idle.connection, is_fresh });
            }
        }
    }

    /// A request opens its own connection after it has waited for another: what is opened for
    /// nobody gives way where there is no room for both.
    pub(crate) fn make_room(&self, slot: &Slot) {
        let most = self.connections_per_host;
        if let Some(host) = self.lock().get_mut(&slot.origin) {
            while host.sockets(most) > most && host.warming.stop_oldest() {}
            host.warming.settle();
        }
    }

    /// Places for as many connections as are missing until `count` are idle or being opened, as far
    /// as the limit has room for them.
    pub(crate) fn begin(self: &Arc<Self>, origin: Origin, count: usize) -> Vec<Place> {
        let (now, most) = (Instant::now(), self.connections_per_host);
        let mut closed = Vec::new();
        let mut hosts = self.lock();
        let (origin, host) = self.host(&mut hosts, origin);
        host.expired(now, &mut closed);
        let here = host.idle.len() + host.fresh.len() + host.warming.opening();
        let missing = count.saturating_sub(here.saturating_sub(host.warming.waiting()));
        let room = most.saturating_sub(host.sockets(most));
        let begun: Vec<Begun> = (0..missing.min(room)).map(|_| host.warming.begin(now)).collect();
        drop(hosts);
        drop(closed);
        let place = |begun| Place { origin: origin.clone(), pool: self.clone(), begun };
        begun.into_iter().map(place).collect()
    }

    /// Closes what is idle for too long, also where no request comes any more, until nothing is
    /// idle. Requests do that themselves, as long as there are any; connections that were opened
    /// before a request needed them may have none. What is being opened will be idle so long.
    pub(crate) fn sweep(self: &Arc<Self>, idle_limit: Duration) {
        if self.is_swept.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                let Some(wait) = pool.upgrade().and_then(|pool| pool.close_expired(idle_limit))
                else {
                    return;
                };
                tokio::time::sleep(wait).await;
            }
        });
    }

    /// How long nothing that is left can expire; `None` where nothing is, and nobody sweeps then.
    fn close_expired(&self, idle_limit: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut closed = Vec::new();
        let mut hosts = self.lock();
        hosts.values_mut().for_each(|host| host.expired(now, &mut closed));
        let next = hosts.values().filter_map(|host| host.next_expiry(now + idle_limit)).min();
        if next.is_none() {
            // Under the lock: who adds one behind it finds that nobody sweeps.
            self.is_swept.store(false, Ordering::Release);
        }
        drop(hosts);
        drop(closed);
        next.map(|next| next.saturating_duration_since(now).max(SWEEP_MIN))
    }

    /// What is known of an origin's connections.
    pub(crate) fn connections(&self, origin: &Origin) -> Connections {
        let mut hosts = self.lock();
        let Some(host) = hosts.get_mut(origin) else { return Connections::default() };
        let now = Instant::now();
        let idle = host.idle.iter().chain(&host.fresh).filter(|idle| idle.until > now).count();
        Connections {
            idle,
            opening: host.warming.opening().saturating_sub(host.warming.waiting()),
            connect: host.times.connect,
            beyond_kept: host.times.beyond_kept(),
        }
    }

    /// Takes note of how long opening a connection took.
    pub(crate) fn note_connect(&self, origin: &Origin, time: Duration) {
        if let Some(host) = self.lock().get_mut(origin) {
            Times::note(&mut host.times.connect, time);
        }
    }

    /// Takes note that the origin answered in HTTP; after which time, where that was the server's.
    pub(crate) fn note_answer(&self, slot: &Slot, on: On, after: Option<Duration>) {
        if let Some(host) = self.lock().get_mut(&slot.origin) {
            host.has_answered = true;
            match (on, after) {
                (On::New, Some(after)) => Times::note(&mut host.times.first_on_new, after),
                (On::Used, Some(after)) => Times::note(&mut host.times.first_on_kept, after),
                (On::Fresh, _) | (_, None) => {}
            }
        }
    }

    /// Whether the origin has ever answered in HTTP, as far as is remembered.
    pub(crate) fn has_answered(&self, origin: &Origin) -> bool {
        self.lock().get(origin).is_some_and(|host| host.has_answered)
    }

    /// Gives a connection back; `idle_limit` is how long the server is sure to keep it.
    pub(crate) fn give(&self, slot: Slot, connection: Connection, idle_limit: Duration) {
        let now = Instant::now();
        let mut closed = Vec::new();
        {
            let mut hosts = self.lock();
            hosts.values_mut().for_each(|host| host.expired(now, &mut closed));
            if let Some(host) = hosts.get_mut(&slot.origin)
                && let Some(connection) = host.warming.hand(connection)
            {
                host.idle.push(Idle { connection, until: now + idle_limit });
            }
        }
        // Sockets close and the slot frees itself outside of the lock.
        drop(closed);
        drop(slot);
    }
}

#[cfg(test)]
mod tests;
