//! Turning the pages of a listing, alone or together with others who want the same one.
//!
//! Who wants a page that has not come fetches it, and the others wait for it. One who is cancelled
//! leaves the next page to whoever waits. Where a page fails, or the listing is longer than may be
//! kept, everyone goes on alone behind the pages that came, and tells errors of its own.

use crate::location::Location;
use crate::metadata::Validity;
use crate::names::Listed;
use crate::names::kept::ListingKey;
use crate::names::list::{Turns, page};
use crate::query::QueryCore;
use penstock_base::settings::Validation;
use penstock_base::{Metric, Result};
use penstock_store::{ListEntry, ListPage, ListRequest};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// One page, and when it was told.
#[derive(Debug)]
pub(crate) struct Page {
    pub listed: Listed,
    pub objects: Vec<ListEntry>,
    pub prefixes: Vec<String>,
}

impl Page {
    fn new(answer: ListPage) -> (Arc<Self>, Option<String>) {
        let listed = Listed(Instant::now());
        let page = Page { listed, objects: answer.objects, prefixes: answer.prefixes };
        (Arc::new(page), answer.next)
    }

    /// Bytes that it takes, roughly.
    fn weight(&self) -> u64 {
        let text = |text: &String| text.len() + size_of::<String>();
        let objects = self.objects.iter().map(|object| {
            let etag = object.meta.etag.as_ref().map_or(0, |etag| etag.0.len());
            size_of::<ListEntry>() + object.key.len() + etag
        });
        (objects.sum::<usize>() + self.prefixes.iter().map(text).sum::<usize>()) as u64
    }
}

/// One listing, as far as it has come.
#[derive(Debug)]
pub(crate) struct Turned {
    pub key: ListingKey,
    /// When its first page was about to be asked for.
    pub begun: Instant,
    state: Mutex<State>,
    /// Held by who fetches the next page.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct State {
    pages: Vec<Arc<Page>>,
    weight_bytes: u64,
    rest: Rest,
}

/// What is behind the pages that came.
#[derive(Clone, Debug)]
enum Rest {
    /// To be asked for by whoever wants it first.
    Open(Asked),
    /// To be asked for by each alone.
    Left(Asked),
    Nothing,
}

/// What is asked for next.
#[derive(Clone, Debug)]
struct Asked {
    request: ListRequest,
    turns: Turns,
}

impl Asked {
    /// Fetches the page; gives it and what is asked for behind it.
    async fn fetch(mut self, query: &QueryCore, at: &Location) -> Result<(Arc<Page>, Rest)> {
        let answer = as_asked(page(query, at, &self.request).await?, &self.request);
        let (page, next) = Page::new(answer);
        let Some(token) = next else { return Ok((page, Rest::Nothing)) };
        self.turns.next(at, &mut self.request, token)?;
        Ok((page, Rest::Open(self)))
    }
}

/// A page without names that were not asked for. Some servers and proxies ignore `prefix`, and to
/// remove a directory would remove the bucket. Some ignore `delimiter`, and a walk from level to
/// level would find no directories.
pub(crate) fn as_asked(mut page: ListPage, request: &ListRequest) -> ListPage {
    let prefix = request.prefix.as_str();
    page.objects.retain(|object| object.key.starts_with(prefix));
    page.prefixes.retain(|folded| folded.starts_with(prefix));
    let Some(delimiter) = request.delimiter.as_deref().filter(|text| !text.is_empty()) else {
        return page;
    };
    page.objects.retain(|object| {
        let Some(at) = object.key[prefix.len()..].find(delimiter) else { return true };
        let folded = &object.key[..prefix.len() + at + delimiter.len()];
        if page.prefixes.last().is_none_or(|last| last != folded) {
            page.prefixes.push(folded.to_string());
        }
        false
    });
    page.prefixes.sort_unstable();
    page.prefixes.dedup();
    page
}

impl Turned {
    fn new(key: ListingKey, rest: Rest) -> Self {
        let state = State { pages: Vec::new(), weight_bytes: 0, rest };
        Turned { key, begun: Instant::now(), state: Mutex::new(state), turn: Default::default() }
    }

    /// Pages and bytes that are kept of it.
    pub fn held(&self) -> (u64, u64) {
        let state = self.lock();
        (state.pages.len() as u64, state.weight_bytes)
    }

    fn push(&self, page: &Arc<Page>, rest: Rest, listing_bytes_max: u64) -> Pushed {
        let mut state = self.lock();
        state.weight_bytes += page.weight();
        state.pages.push(Arc::clone(page));
        let is_too_large = state.weight_bytes > listing_bytes_max;
        state.rest = match rest {
            Rest::Open(asked) if is_too_large => Rest::Left(asked),
            rest => rest,
        };
        match state.rest {
            // That nothing is there is never remembered.
            Rest::Nothing if !is_too_large && state.weight_bytes > 0 => {
                Pushed::Last(state.weight_bytes)
            }
            Rest::Left(_) => Pushed::TooLarge,
            _ => Pushed::OneOfMany,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Pushed {
    OneOfMany,
    /// Of a listing of so many bytes.
    Last(u64),
    TooLarge,
}

impl QueryCore {
    /// Whether a listing that was begun then counts in this query.
    pub(crate) fn counts_listing(&self, begun: Instant) -> bool {
        if self.settings.cache_validation == Validation::Always {
            return false;
        }
        let age = Instant::now().saturating_duration_since(begun);
        let validity = match self.validity(Validation::Time) {
            // What is listed is not asked for again when it is opened, so it counts less long.
            Validity::For(_) => match self.settings.listing_validity_ms {
                0 => Validity::Asked,
                time_ms => Validity::For(Duration::from_millis(time_ms)),
            },
            validity => validity,
        };
        begun >= self.began || validity.holds(age)
    }
}

/// A place in a listing.
#[derive(Debug)]
pub(crate) struct Pages {
    at: Location,
    from: From,
}

#[derive(Debug)]
enum From {
    Shared(Arc<Turned>, usize),
    Alone(Option<Asked>),
}

impl Pages {
    /// The listing of `at`'s store that this request begins; one that is known, if that counts.
    pub fn of(query: &QueryCore, at: &Location, request: ListRequest) -> Self {
        let key = ListingKey::new(at, &request.prefix, request.delimiter.as_deref());
        let asked = Asked { request, turns: Turns::default() };
        let new = Turned::new(key, Rest::Open(asked));
        let counts = |begun| query.counts_listing(begun);
        let listing = query.engine.kept_listings.find_or(new, counts);
        Pages { at: at.clone(), from: From::Shared(listing, 0) }
    }

    /// The listing as it is now, whatever is known: for what will be changed.
    pub fn anew(at: &Location, request: ListRequest) -> Self {
        let asked = Asked { request, turns: Turns::default() };
        Pages { at: at.clone(), from: From::Alone(Some(asked)) }
    }

    /// What was found before by a pattern, if that is known and counts.
    pub fn found(query: &QueryCore, at: &Location, key: &ListingKey) -> Option<Self> {
        let counts = |begun| query.counts_listing(begun);
        let listing = query.engine.kept_listings.find(key, counts)?;
        Some(Pages { at: at.clone(), from: From::Shared(listing, 0) })
    }

    /// Whether all pages were given.
    pub fn is_over(&self) -> bool {
        match &self.from {
            From::Alone(asked) => asked.is_none(),
            From::Shared(listing, index) => {
                let state = listing.lock();
                matches!(state.rest, Rest::Nothing) && *index == state.pages.len()
            }
        }
    }

    /// Whether no more requests are needed.
    pub fn is_here(&self) -> bool {
        match &self.from {
            From::Alone(asked) => asked.is_none(),
            From::Shared(listing, _) => matches!(listing.lock().rest, Rest::Nothing),
        }
    }

    /// The next page; `None` behind the last.
    pub async fn next(&mut self, query: &QueryCore) -> Result<Option<Arc<Page>>> {
        loop {
            match &mut self.from {
                From::Alone(asked) => {
                    let Some(next) = asked.clone() else { return Ok(None) };
                    // Where that fails, it is asked for again.
                    let (page, rest) = next.fetch(query, &self.at).await?;
                    *asked = match rest {
                        Rest::Open(rest) | Rest::Left(rest) => Some(rest),
                        Rest::Nothing => None,
                    };
                    return Ok(Some(page));
                }
                From::Shared(listing, index) => {
                    match shared(query, &self.at, listing, *index).await? {
                        Turn::Page(page) => {
                            *index += 1;
                            return Ok(Some(page));
                        }
                        Turn::Over => return Ok(None),
                        Turn::Alone(asked) => self.from = From::Alone(Some(asked)),
                    }
                }
            }
        }
    }
}

enum Turn {
    Page(Arc<Page>),
    Over,
    Alone(Asked),
}

/// What stands at this place of a listing that others may share: it is here, or fetched.
async fn shared(
    query: &QueryCore,
    at: &Location,
    listing: &Arc<Turned>,
    index: usize,
) -> Result<Turn> {
    let here = || {
        let state = listing.lock();
        match (state.pages.get(index), &state.rest) {
            (Some(page), _) => Ok(Turn::Page(Arc::clone(page))),
            (None, Rest::Nothing) => Ok(Turn::Over),
            (None, Rest::Left(asked)) => Ok(Turn::Alone(asked.clone())),
            (None, Rest::Open(asked)) => Err(asked.clone()),
        }
    };
    let known = |turn: Turn| {
        query.scope.count(Metric::ListingHits, u64::from(matches!(turn, Turn::Page(_))));
        Ok(turn)
    };
    if let Ok(turn) = here() {
        return known(turn);
    }
    let _turn = listing.turn.lock().await;
    let asked = match here() {
        Ok(turn) => return known(turn),
        Err(asked) => asked,
    };
    let kept = &query.engine.kept_listings;
    match asked.clone().fetch(query, at).await {
        Ok((page, rest)) => {
            match listing.push(&page, rest, kept.listing_bytes_max()) {
                Pushed::Last(weight_bytes) => kept.keep(listing, weight_bytes),
                Pushed::TooLarge => kept.leave(listing),
                Pushed::OneOfMany => {}
            }
            Ok(Turn::Page(page))
        }
        Err(error) => {
            listing.lock().rest = Rest::Left(asked);
            kept.leave(listing);
            Err(error)
        }
    }
}

/// What was found level by level.
#[derive(Debug)]
pub(crate) struct Found {
    /// Of the last level.
    pub pages: Vec<Arc<Page>>,
    /// When the oldest page of all levels was told: it may have been kept.
    pub oldest: Option<Listed>,
}

/// Names that are being found level by level, to be kept as one listing.
#[derive(Debug)]
pub(crate) struct Finding(Arc<Turned>);

impl Finding {
    /// To be called before the first request.
    pub fn begin(query: &QueryCore, key: ListingKey) -> Self {
        // Nobody shares it before it is whole: its requests are shared one by one.
        Finding(query.engine.kept_listings.find_or(Turned::new(key, Rest::Nothing), |_| false))
    }

    /// This is all. It is not kept where it is older than it would look.
    pub fn ends(self, query: &QueryCore, found: &Found) -> Arc<Page> {
        let objects = found.pages.iter().flat_map(|page| &page.objects).cloned().collect();
        let listed = found.oldest.unwrap_or(Listed(self.0.begun));
        let page = Arc::new(Page { listed, objects, prefixes: Vec::new() });
        let kept = &query.engine.kept_listings;
        let pushed = self.0.push(&page, Rest::Nothing, kept.listing_bytes_max());
        match pushed {
            Pushed::Last(weight) if listed.0 >= self.0.begun => kept.keep(&self.0, weight),
            _ => kept.leave(&self.0),
        }
        page
    }
}
