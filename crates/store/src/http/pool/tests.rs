//! The pool with requests and warm-ups that come, end and fail in any order.

use super::*;
use crate::http::connection::Stream;
use crate::http::socket::Socket;
use futures_util::FutureExt;
use proptest::prelude::*;
use std::net::TcpListener;
use tokio::io::AsyncReadExt;
use tokio::runtime::Builder;

const LIFE: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request comes.
    Ask,
    /// A request ends, and gives its connection back or does not.
    End(usize, bool),
    /// Connections are opened early.
    Warm(usize),
    Comes(usize),
    Fails(usize),
    /// A request waits no longer.
    Leave(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Ask),
        2 => (0usize..9, any::<bool>()).prop_map(|(at, back)| Step::End(at, back)),
        2 => (0usize..9).prop_map(Step::Warm),
        3 => (0usize..9).prop_map(Step::Comes),
        1 => (0usize..9).prop_map(Step::Fails),
        1 => (0usize..9).prop_map(Step::Leave),
    ]
}

fn origin() -> Origin {
    Origin { trust: None, host: "h".into(), port: 1, proxy: None }
}

struct World {
    pool: Arc<Pool>,
    listener: TcpListener,
    /// Requests that have a connection.
    served: Vec<(Slot, Connection)>,
    waiting: Vec<(Slot, Coming<Connection>)>,
    places: Vec<Place>,
}

impl World {
    async fn connection(&self) -> Connection {
        let socket = Socket::connect(self.listener.local_addr().unwrap()).await.unwrap();
        // The other end stays open in the listener's queue.
        Connection::new(Stream::Plain(socket), LIFE)
    }

    async fn act(&mut self, step: Step) {
        match step {
            Step::Ask => {
                let Some(slot) = self.pool.slot(origin(), || ()).now_or_never() else { return };
                match self.pool.take(&slot) {
                    Taken::Kept(kept) => self.served.push((slot, kept.connection)),
                    Taken::Coming(coming) => self.waiting.push((slot, coming)),
                    Taken::Nothing => {
                        let own = self.connection().await;
                        self.served.push((slot, own));
                    }
                }
            }
            Step::End(at, gives) if !self.served.is_empty() => {
                let (slot, connection) = self.served.swap_remove(at % self.served.len());
                if gives {
                    self.pool.give(slot, connection, LIFE);
                }
            }
            Step::Warm(count) => self.places.extend(self.pool.begin(origin(), count)),
            Step::Comes(at) if !self.places.is_empty() => {
                let place = self.places.swap_remove(at % self.places.len());
                place.ready(self.connection().await, LIFE);
            }
            Step::Fails(at) if !self.places.is_empty() => {
                drop(self.places.swap_remove(at % self.places.len()));
            }
            Step::Leave(at) if !self.waiting.is_empty() => {
                let (slot, coming) = self.waiting.swap_remove(at % self.waiting.len());
                drop(coming);
                self.pool.make_room(&slot);
                let own = self.connection().await;
                self.served.push((slot, own));
            }
            _ => {}
        }
    }

    /// Stopped attempts end, and those who waited go on, as they do at once.
    async fn settle(&mut self) {
        let mut places = std::mem::take(&mut self.places);
        places.retain_mut(|place| place.stopped().now_or_never().is_none());
        self.places = places;
        for (slot, mut coming) in std::mem::take(&mut self.waiting) {
            match coming.arrival.try_recv() {
                Ok(connection) => self.served.push((slot, connection)),
                Err(oneshot::error::TryRecvError::Empty) => self.waiting.push((slot, coming)),
                Err(oneshot::error::TryRecvError::Closed) => {
                    self.pool.make_room(&slot);
                    let own = self.connection().await;
                    self.served.push((slot, own));
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// There are never more connections than there may be, and whoever waits will be served.
    #[test]
    fn the_limit_holds_whatever_happens(
        most in 1usize..5, steps in prop::collection::vec(step(), 0..60)
    ) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.set_nonblocking(true).unwrap();
            let pool = Arc::new(Pool::new(most));
            let (served, waiting, places) = (Vec::new(), Vec::new(), Vec::new());
            let mut world = World { pool, listener, served, waiting, places };
            let mut ends = Vec::new();
            for step in steps {
                world.act(step).await;
                world.settle().await;
                ends.extend(world.listener.accept());
                let known = world.pool.connections(&origin());
                let sockets = world.served.len() + known.idle + world.places.len();
                prop_assert!(sockets <= most, "{step:?}: {sockets} of {most}");
                prop_assert!(world.waiting.len() <= world.places.len(), "{step:?}");
                prop_assert_eq!(known.opening, world.places.len() - world.waiting.len());
            }
            // Everything ends, and all of the limit is there for requests.
            drop((world.places, world.waiting, world.served));
            let asked = (0..=most).map(|_| world.pool.slot(origin(), || ()).now_or_never());
            let slots: Vec<_> = asked.flatten().collect();
            prop_assert_eq!(slots.len(), most);
            Ok(())
        })?;
    }
}

#[test]
fn hosts_that_are_in_use_are_not_forgotten() {
    let pool = Arc::new(Pool::new(2));
    let other = |port: u16| Origin { port, ..origin() };
    let places: Vec<Place> = (0..300).flat_map(|port| pool.begin(other(port), 1)).collect();
    assert_eq!(pool.lock().len(), 300);
    drop(places);
    let _slot = pool.slot(other(1000), || ()).now_or_never();
    assert_eq!(pool.lock().len(), 1);
}

/// One that the server keeps for a shorter time than others, or that was given back early, is not
/// looked at only when the time of those is over.
#[tokio::test]
async fn what_is_idle_is_closed_when_its_own_time_is_over() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let socket = Socket::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut accepted, _) = listener.accept().await.unwrap();
    let pool = Arc::new(Pool::new(2));
    let slot = pool.slot(origin(), || ()).await;
    pool.give(slot, Connection::new(Stream::Plain(socket), LIFE), Duration::from_millis(50));
    let place = pool.begin(origin(), 2);
    pool.sweep(LIFE);
    let mut byte = [0];
    let end = tokio::time::timeout(Duration::from_secs(30), accepted.read(&mut byte));
    assert_eq!(end.await.unwrap().unwrap(), 0);
    drop(place);
    // The next one finds that nobody sweeps, once nothing was left.
    assert_eq!(pool.close_expired(LIFE), None);
    assert!(!pool.is_swept.load(Ordering::Acquire));
}

/// Servers tell each connection how long they keep it.
#[tokio::test]
async fn what_is_idle_is_closed_whatever_stands_before_it() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pool = Arc::new(Pool::new(3));
    let mut accepted = Vec::new();
    for time in [LIFE, Duration::from_millis(50), LIFE] {
        let slot = pool.slot(origin(), || ()).await;
        let socket = Socket::connect(listener.local_addr().unwrap()).await.unwrap();
        accepted.push((slot, Connection::new(Stream::Plain(socket), LIFE), time));
    }
    accepted.into_iter().for_each(|(slot, connection, time)| pool.give(slot, connection, time));
    let closed = async {
        while pool.connections(&origin()).idle > 2 {
            assert!(pool.close_expired(LIFE).is_some());
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), closed).await.unwrap();
    assert_eq!(pool.connections(&origin()).idle, 2);
}
