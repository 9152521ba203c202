//! Connections that are opened before a request needs them, and requests that wait for one.
//!
//! Decides who gets what: a connection that comes goes to whoever waits longest, and a request
//! waits only for one that nobody else waits for. Opens nothing, and knows of no limits.

use futures_util::future::BoxFuture;
use std::collections::VecDeque;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// One that is longer under way than this, and than twice what the fastest took, has lost a packet,
/// or leads to a machine that is down: the request that needs it opens its own.
const OPENING_MAX: Duration = Duration::from_secs(1);

/// Connections on their way; they come while it is polled.
pub type WarmUp = BoxFuture<'static, ()>;

/// What is known of the connections to a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Those that wait for a request.
    pub idle: usize,
    /// Those that are being opened before a request needs them.
    pub opening: usize,
    /// The shortest time in which one was opened, TLS included.
    pub connect: Option<Duration>,
    /// By how much answers on new connections were later than answers on kept ones, connecting
    /// included; at the shortest of both. A tunnel in between opens its own way at the first byte.
    pub beyond_kept: Option<Duration>,
}

/// The shortest times seen.
#[derive(Debug, Default)]
pub(crate) struct Times {
    pub connect: Option<Duration>,
    pub first_on_new: Option<Duration>,
    pub first_on_kept: Option<Duration>,
}

impl Times {
    pub fn note(shortest: &mut Option<Duration>, time: Duration) {
        *shortest = Some(shortest.map_or(time, |known| known.min(time)));
    }

    pub fn beyond_kept(&self) -> Option<Duration> {
        Some(self.first_on_new?.saturating_sub(self.first_on_kept?))
    }
}

/// What is under way to one server; `C` is a connection.
#[derive(Debug)]
pub(crate) struct Warming<C> {
    /// The oldest first.
    opening: VecDeque<Opening>,
    /// Those that wait longest first.
    waiting: VecDeque<oneshot::Sender<C>>,
    begun: u64,
}

#[derive(Debug)]
struct Opening {
    id: u64,
    since: Instant,
    /// Dropping it ends the attempt.
    _stop: oneshot::Sender<()>,
}

/// A connection that is being opened.
#[derive(Debug)]
pub(crate) struct Begun {
    pub id: u64,
    /// Answers, with an error, when its place is needed.
    pub stop: oneshot::Receiver<()>,
}

/// A connection that will come, until it is better not waited for.
#[derive(Debug)]
pub(crate) struct Coming<C> {
    pub arrival: oneshot::Receiver<C>,
    pub until: Instant,
}

impl<C> Default for Warming<C> {
    fn default() -> Self {
        Warming { opening: VecDeque::new(), waiting: VecDeque::new(), begun: 0 }
    }
}

impl<C> Warming<C> {
    /// How many are being opened.
    pub fn opening(&self) -> usize {
        self.opening.len()
    }

    /// How many requests wait for one.
    pub fn waiting(&mut self) -> usize {
        self.waiting.retain(|waiting| !waiting.is_closed());
        self.waiting.len()
    }

    /// One more is opened.
    pub fn begin(&mut self, now: Instant) -> Begun {
        self.begun += 1;
        let (sender, stop) = oneshot::channel();
        self.opening.push_back(Opening { id: self.begun, since: now, _stop: sender });
        Begun { id: self.begun, stop }
    }

    /// Has a request wait for one that nobody waits for, if there is any that may come soon.
    /// `connect` is the shortest time that opening one took.
    pub fn wait(&mut self, now: Instant, connect: Option<Duration>) -> Option<Coming<C>> {
        let longest = OPENING_MAX.max(connect.unwrap_or_default() * 2);
        let waiting = self.waiting();
        let young = self.opening.iter().map(|opening| opening.since + longest);
        let until = young.filter(|until| *until > now).nth(waiting)?;
        let (sender, arrival) = oneshot::channel();
        self.waiting.push_back(sender);
        Some(Coming { arrival, until })
    }

    /// Gives a connection to whoever waits longest, or back.
    pub fn hand(&mut self, mut connection: C) -> Option<C> {
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.send(connection) {
                Ok(()) => return None,
                Err(refused) => connection = refused,
            }
        }
        Some(connection)
    }

    /// An attempt has ended; false if it was stopped before. Whoever waits for more than are still
    /// under way is sent away by [`Warming::settle`].
    pub fn ended(&mut self, id: u64) -> bool {
        let place = self.opening.iter().position(|opening| opening.id == id);
        place.and_then(|place| self.opening.remove(place)).is_some()
    }

    /// Ends the attempt that is longest under way; false where there is none.
    pub fn stop_oldest(&mut self) -> bool {
        self.opening.pop_front().is_some()
    }

    /// Sends those away, the last first, for whom nothing is under way any more.
    pub fn settle(&mut self) {
        let waiting = self.waiting();
        self.waiting.truncate(waiting.min(self.opening.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin,
        Ask,
        /// An attempt succeeds, fails, or is stopped.
        Comes(usize),
        Fails(usize),
        StopOldest,
        /// A request gives its connection back.
        Back,
        Leave(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => Just(Step::Begin),
            3 => Just(Step::Ask),
            2 => (0usize..9).prop_map(Step::Comes),
            1 => (0usize..9).prop_map(Step::Fails),
            1 => Just(Step::StopOldest),
            1 => Just(Step::Back),
            1 => (0usize..9).prop_map(Step::Leave),
        ]
    }

    #[test]
    fn one_that_takes_long_is_not_waited_for() {
        let begun = Instant::now();
        let mut warming = Warming::<u8>::default();
        let _first = warming.begin(begun);
        assert!(warming.wait(begun + OPENING_MAX, None).is_none());
        let coming = warming.wait(begun + OPENING_MAX / 2, None).unwrap();
        assert_eq!(coming.until, begun + OPENING_MAX);
    }

    #[test]
    fn where_all_take_long_one_is_waited_for() {
        let begun = Instant::now();
        let mut warming = Warming::<u8>::default();
        let _first = warming.begin(begun);
        let coming = warming.wait(begun + OPENING_MAX, Some(OPENING_MAX)).unwrap();
        assert_eq!(coming.until, begun + 2 * OPENING_MAX);
    }

    #[test]
    fn one_that_takes_long_hides_no_other() {
        let begun = Instant::now();
        let mut warming = Warming::<u8>::default();
        let _lost = warming.begin(begun);
        let _young = warming.begin(begun + OPENING_MAX);
        let coming = warming.wait(begun + OPENING_MAX, None).unwrap();
        assert_eq!(coming.until, begun + 2 * OPENING_MAX);
        assert!(warming.wait(begun + OPENING_MAX, None).is_none(), "the other one is lost");
    }

    #[test]
    fn a_new_connection_costs_what_its_answers_are_later() {
        let ms = Duration::from_millis;
        let mut times = Times::default();
        Times::note(&mut times.first_on_new, ms(200));
        assert_eq!(times.beyond_kept(), None);
        for time in [120, 90, 110] {
            Times::note(&mut times.first_on_kept, ms(time));
        }
        assert_eq!(times.beyond_kept(), Some(ms(110)));
        Times::note(&mut times.first_on_new, ms(80));
        assert_eq!(times.beyond_kept(), Some(Duration::ZERO));
    }

    proptest! {
        /// No request waits for nothing, none is served twice, and no connection is lost while
        /// somebody waits for one.
        #[test]
        fn nobody_waits_for_what_does_not_come(steps in prop::collection::vec(step(), 0..80)) {
            let now = Instant::now();
            let mut warming = Warming::<u32>::default();
            let (mut begun, mut waiting, mut made) = (Vec::<Begun>::new(), Vec::new(), 0);
            for step in steps {
                let before = warming.waiting();
                let ends = |begun: &mut Vec<Begun>, at: usize| {
                    (!begun.is_empty()).then(|| begun.remove(at % begun.len()))
                };
                match step {
                    Step::Begin => begun.push(warming.begin(now)),
                    Step::Ask => {
                        let coming = warming.wait(now, None);
                        prop_assert_eq!(coming.is_some(), warming.opening() > before);
                        waiting.extend(coming);
                    }
                    Step::Comes(at) => {
                        if let Some(one) = ends(&mut begun, at)
                            && warming.ended(one.id)
                        {
                            made += 1;
                            prop_assert_eq!(warming.hand(made).is_none(), before > 0);
                        }
                    }
                    Step::Fails(at) => {
                        if let Some(one) = ends(&mut begun, at) {
                            warming.ended(one.id);
                        }
                    }
                    Step::StopOldest => {
                        warming.stop_oldest();
                        begun.retain_mut(|one| {
                            one.stop.try_recv() != Err(oneshot::error::TryRecvError::Closed)
                        });
                    }
                    Step::Back => {
                        made += 1;
                        prop_assert_eq!(warming.hand(made).is_none(), before > 0);
                    }
                    Step::Leave(at) if !waiting.is_empty() => {
                        drop(waiting.swap_remove(at % waiting.len()));
                    }
                    Step::Leave(_) => {}
                }
                warming.settle();
                prop_assert_eq!(begun.len(), warming.opening());
                prop_assert!(warming.waiting() <= warming.opening());
                waiting.retain_mut(|coming| {
                    coming.arrival.try_recv() == Err(oneshot::error::TryRecvError::Empty)
                });
                prop_assert_eq!(waiting.len(), warming.waiting());
            }
        }
    }
}
