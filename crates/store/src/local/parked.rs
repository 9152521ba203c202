//! Walks that wait for the next page of their listing: whose they are, how many, and for how long.
//!
//! What waits holds names and no descriptor. All stores of the process share the memory, since
//! whoever may list may leave a walk behind with each request and never come back. A thread of its
//! own ends what nobody has asked for: it is there only while something waits, without a runtime.

use super::walk::Rest;
use crate::ListRequest;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Walks of one store.
const OF_ONE_MAX: usize = 8;
/// Memory of all: two million short names. One walk that takes more waits alone; the page that
/// ended there has taken that memory anyway.
const BYTES_MAX: usize = 64 << 20;
/// How long a client may take to ask for the next page.
const LIFE: Duration = Duration::from_secs(10);

/// The walks of this process.
static ALL: LazyLock<Parking> = LazyLock::new(|| Parking::new(LIFE));

/// The walks of one store.
#[derive(Debug)]
pub(super) struct Parked {
    owner: u64,
}

impl Default for Parked {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Parked { owner: NEXT.fetch_add(1, Ordering::Relaxed) }
    }
}

impl Parked {
    /// What waits for this page.
    pub fn take(&self, request: &ListRequest) -> Option<Rest> {
        let page = Page::of(self.owner, request, request.token.as_ref()?);
        ALL.lock().take(&page, Instant::now())
    }

    /// Lets a walk wait for the page behind `request` that `token` asks for.
    pub fn put(&self, request: &ListRequest, token: &str, rest: Rest) {
        ALL.put(Page::of(self.owner, request, token), rest);
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        ALL.lock().forget(self.owner);
        ALL.shared.closed.notify_all();
    }
}

/// The page that a walk waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page {
    owner: u64,
    token: String,
    prefix: String,
    delimiter: Option<String>,
}

impl Page {
    fn of(owner: u64, request: &ListRequest, token: &str) -> Self {
        let (prefix, delimiter) = (request.prefix.clone(), request.delimiter.clone());
        Page { owner, token: token.to_string(), prefix, delimiter }
    }
}

#[derive(Debug)]
struct Waiting<T> {
    until: Instant,
    page: Page,
    bytes: usize,
    rest: T,
}

/// What waits, the eldest first. Pure.
#[derive(Debug)]
struct Lot<T> {
    waiting: VecDeque<Waiting<T>>,
    /// The process whose thread ends what is over: a child that was forked has none.
    watched_by: Option<u32>,
}

impl<T> Lot<T> {
    fn new() -> Self {
        Lot { waiting: VecDeque::new(), watched_by: None }
    }

    fn take(&mut self, page: &Page, now: Instant) -> Option<T> {
        self.end(now);
        let found = self.waiting.iter().position(|waiting| waiting.page == *page)?;
        self.waiting.remove(found).map(|waiting| waiting.rest)
    }

    /// Lets the eldest go until there is room for the new one.
    fn put(&mut self, new: Waiting<T>) {
        let owner = new.page.owner;
        let of_owner = |lot: &Self| lot.waiting.iter().filter(|it| it.page.owner == owner).count();
        if of_owner(self) >= OF_ONE_MAX
            && let Some(eldest) = self.waiting.iter().position(|it| it.page.owner == owner)
        {
            self.waiting.remove(eldest);
        }
        while !self.waiting.is_empty() && self.bytes() + new.bytes > BYTES_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(new);
    }

    fn bytes(&self) -> usize {
        self.waiting.iter().map(|waiting| waiting.bytes).sum()
    }

    /// Ends what is over; tells when the next one is.
    fn end(&mut self, now: Instant) -> Option<Instant> {
        self.waiting.retain(|waiting| now < waiting.until);
        self.waiting.iter().map(|waiting| waiting.until).min()
    }

    fn forget(&mut self, owner: u64) {
        self.waiting.retain(|waiting| waiting.page.owner != owner);
    }
}

#[derive(Debug)]
struct Parking {
    shared: Arc<Shared>,
    life: Duration,
}

#[derive(Debug)]
struct Shared {
    lot: Mutex<Lot<Rest>>,
    /// A store was closed, and its walks are gone.
    closed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Lot<Rest>> {
        self.lot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what is over, until nothing waits.
    fn watch(&self) {
        let mut lot = self.lock();
        while let Some(due) = lot.end(Instant::now()) {
            let left = due.saturating_duration_since(Instant::now());
            lot = self.closed.wait_timeout(lot, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        lot.watched_by = None;
    }
}

impl Parking {
    fn new(life: Duration) -> Self {
        let (lot, closed) = (Mutex::new(Lot::new()), Condvar::new());
        Parking { shared: Arc::new(Shared { lot, closed }), life }
    }

    fn lock(&self) -> MutexGuard<'_, Lot<Rest>> {
        self.shared.lock()
    }

    fn put(&self, page: Page, rest: Rest) {
        let mut lot = self.lock();
        // Without a thread that ends it, it would be there for ever.
        if !self.watch(&mut lot) {
            return;
        }
        let (until, bytes) = (Instant::now() + self.life, rest.bytes());
        lot.put(Waiting { until, page, bytes, rest });
    }

    /// Whether a thread of this process looks after what waits.
    fn watch(&self, lot: &mut Lot<Rest>) -> bool {
        let own = std::process::id();
        if lot.watched_by == Some(own) {
            return true;
        }
        // It waits for the lock, and finds what comes now.
        let shared = self.shared.clone();
        let watch = move || shared.watch();
        let thread = std::thread::Builder::new().name("penstock-listed".into()).spawn(watch);
        if thread.is_ok() {
            lot.watched_by = Some(own);
        }
        thread.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn waiting(owner: u64, token: &str, bytes: usize, until: Instant) -> Waiting<String> {
        let page = Page::of(owner, &ListRequest::default(), token);
        Waiting { until, page, bytes, rest: token.to_string() }
    }

    proptest! {
        #[test]
        fn what_waits_is_bounded_and_the_last_one_is_there(
            came in proptest::collection::vec((0..3_u64, 0..BYTES_MAX * 2), 1..60),
        ) {
            let now = Instant::now();
            let mut lot = Lot::new();
            for (number, (owner, bytes)) in came.into_iter().enumerate() {
                let token = number.to_string();
                lot.put(waiting(owner, &token, bytes, now + LIFE));
                let alone = lot.waiting.len() == 1;
                prop_assert!(alone || lot.bytes() <= BYTES_MAX);
                let own = lot.waiting.iter().filter(|it| it.page.owner == owner).count();
                prop_assert!(own <= OF_ONE_MAX);
                prop_assert_eq!(&lot.waiting.back().unwrap().rest, &token);
            }
        }
    }

    #[test]
    fn a_page_is_waited_for_once_by_its_own_store_and_not_for_ever() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut lot = Lot::new();
        let page = |owner, token| Page::of(owner, &ListRequest::default(), token);
        lot.put(waiting(1, "k", 1, now + second));
        lot.put(waiting(2, "k", 1, now + 2 * second));
        assert_eq!(lot.take(&page(1, "j"), now), None);
        assert_eq!(lot.take(&page(3, "k"), now), None);
        assert_eq!(lot.end(now), Some(now + second));
        assert_eq!(lot.end(now + second), Some(now + 2 * second));
        assert_eq!(lot.take(&page(1, "k"), now), None, "it was over");
        assert_eq!(lot.take(&page(2, "k"), now).as_deref(), Some("k"));
        assert_eq!(lot.take(&page(2, "k"), now), None);
        lot.put(waiting(1, "k", 1, now + second));
        lot.forget(1);
        assert_eq!(lot.end(now), None);
    }

    #[test]
    fn what_nobody_asks_for_ends_by_itself() {
        let parking = Parking::new(Duration::from_millis(1));
        for token in ["a", "b"] {
            parking.put(Page::of(1, &ListRequest::default(), token), Rest::default());
            assert!(parking.lock().watched_by.is_some() || parking.lock().waiting.is_empty());
            let since = Instant::now();
            while parking.lock().watched_by.is_some() {
                assert!(since.elapsed() < Duration::from_secs(60), "it waits for ever");
                std::thread::yield_now();
            }
            assert!(parking.lock().waiting.is_empty());
        }
    }
}
