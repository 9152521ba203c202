//! Lists in byte order, of whatever namespace: which requests those are. How a list of a
//! hierarchical namespace is put in order is decided in `hierarchy`.
//!
//! Nothing tells the kind of an account but the names that it lists, so that a list begins as that
//! of a flat one, which costs nothing besides. The first name of a hierarchical account that comes
//! tells, and the list begins anew where it had to start behind a name.

use super::hierarchy::fork::{Looked, Sight, component, is_cut_off};
use super::hierarchy::{Frame, Turn, Walk};
use super::list::{self, Listing, Name, Token};
use super::wire::{Ask, START_FROM_VERSION};
use super::{AzureStore, LIST_BYTES_MAX, LIST_PAGE_MAX};
use crate::answer::Failure;
use crate::{HttpResponse, ListPage, ListRequest, Progress, Store as _};
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::Method;
use penstock_base::{Error, Result};
use std::sync::atomic::{AtomicU8, Ordering};

/// What is listed, and what a list of it is called in errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub include: &'static str,
    pub operation: &'static str,
}

/// Blobs.
pub(super) const BLOBS: What = What { include: "metadata", operation: "list" };
/// The same, and those that have blocks only.
pub(super) const UNCOMMITTED: What =
    What { include: "metadata,uncommittedblobs", operation: "list uploads" };
/// Where all names fold that a look at a fork must not wade through.
const SLASH: &str = "/";
/// Enough to see what is at a fork: a blob of its name, the directory, and the first sibling.
const LOOK_NAMES: u32 = 3;
/// Looks at once, for one page.
const LOOKS_AT_ONCE: usize = 8;

const FLAT: u8 = 1;
const HIERARCHICAL: u8 = 2;

/// What is known of an account's namespace. Accounts become hierarchical, and never flat again.
#[derive(Debug, Default)]
pub(super) struct Namespace(AtomicU8);

impl Namespace {
    pub fn is_hierarchical(&self) -> bool {
        self.0.load(Ordering::Relaxed) == HIERARCHICAL
    }

    pub fn is_unknown(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Takes notice of what a page tells.
    pub fn notice(&self, told: Option<bool>) {
        if let Some(is_hierarchical) = told {
            let kind = if is_hierarchical { HIERARCHICAL } else { FLAT };
            self.0.fetch_max(kind, Ordering::Relaxed);
        }
    }
}

impl AzureStore {
    /// A page of a list.
    pub(super) async fn list_in_order(&self, request: &ListRequest) -> Result<ListPage> {
        let prefix = request.prefix.as_str();
        let named = |error: Error| self.wire.named(error, "list", prefix);
        if let Some(token) = &request.token
            && let Some(walk) = Walk::parse(token, prefix).map_err(named)?
        {
            return self.walk_on(request, walk, BLOBS).await;
        }
        let from = match &request.token {
            Some(token) => Token::parse(token).map_err(named)?,
            None => Token { start_after: request.start_after.clone(), ..Token::default() },
        };
        let after = from.start_after.as_deref();
        if self.namespace.is_hierarchical() {
            return self.walk_from(request, &from, BLOBS).await;
        }
        let listing = self.listing(request, &from, BLOBS).await?;
        if after.is_some() && self.namespace.is_unknown() {
            self.ask_namespace(prefix, BLOBS).await?;
        }
        if !self.namespace.is_hierarchical() {
            let mut page = listing.flat(after);
            self.drop_passed_prefix(&mut page, after).await?;
            return Ok(page);
        }
        // What the service folded elsewhere than at directories is not what a walk goes by.
        if after.is_some() || fold(request).1.is_some() {
            return self.walk_from(request, &from, BLOBS).await;
        }
        let walk = Walk::resumed(prefix, &from.marker);
        self.take(request, walk, (Vec::new(), listing, BLOBS)).await
    }

    /// Lets the first name below a prefix tell the kind of the namespace; where there is none,
    /// nothing is known, and no name can be missed.
    pub(super) async fn ask_namespace(&self, prefix: &str, what: What) -> Result<()> {
        let request =
            ListRequest { prefix: prefix.into(), max_keys: Some(1), ..ListRequest::default() };
        let mut from = Token::default();
        let mut progress = Progress::default();
        loop {
            let listing = self.listing(&request, &from, what).await?;
            if !self.namespace.is_unknown() || listing.marker.is_empty() {
                return Ok(());
            }
            self.go_on(&mut progress, prefix, &listing.marker)?;
            from.marker = listing.marker;
        }
    }

    fn go_on(&self, progress: &mut Progress, prefix: &str, marker: &str) -> Result<()> {
        let endless = |did| list::corrupt(&format!("it {did}"));
        let went = progress.go_on(marker).map_err(endless);
        went.map_err(|error| self.wire.named(error, "list", prefix))
    }

    /// One request.
    pub(super) async fn listing(
        &self,
        request: &ListRequest,
        from: &Token,
        what: What,
    ) -> Result<Listing> {
        let prefix = request.prefix.as_str();
        let named = |error: Error| self.wire.named(error, what.operation, prefix);
        let mut response = self.list_page(request, from, what.include).await?;
        if response.status != 200 {
            return Err(self.wire.refused(response, what.operation, prefix).await);
        }
        let body = response.body.read_to_bytes(LIST_BYTES_MAX).await.map_err(named)?;
        let listing = list::parse(&body).map_err(named)?;
        self.namespace.notice(listing.is_hierarchical);
        Ok(listing)
    }

    /// A page of a hierarchical account from the place on that a token of a flat one names.
    pub(super) async fn walk_from(
        &self,
        request: &ListRequest,
        from: &Token,
        what: What,
    ) -> Result<ListPage> {
        let walk = match &from.start_after {
            Some(after) => self.walk_behind(request, after, what).await?,
            None => Walk::resumed(&request.prefix, &from.marker),
        };
        self.walk_on(request, walk, what).await
    }

    /// A walk over the names behind one. What byte order has there may be at another place of the
    /// account's order: about each of those a small question is asked, all at once.
    async fn walk_behind(&self, request: &ListRequest, after: &str, what: What) -> Result<Walk> {
        let prefix = request.prefix.as_str();
        let Some(rest) = after.strip_prefix(prefix) else {
            let is_before = after < prefix;
            return Ok(if is_before { Walk::all(prefix, None) } else { Walk::default() });
        };
        let folds = folds(request);
        if rest.is_empty() {
            return Ok(Walk::all(prefix, Some(after)));
        }
        let looked = self.look_above(Walk::unknown(prefix, after, folds), what).await?;
        if !folds {
            return Ok(Walk::behind(prefix, after, &looked));
        }
        let is_straddled = match Walk::directory(prefix, after, &looked) {
            Some(directory) => self.has_behind(&directory, after).await?,
            None => false,
        };
        Ok(Walk::behind_folded(prefix, after, &looked, is_straddled))
    }

    /// Whether there are names behind one in the directory that it lies in.
    async fn has_behind(&self, directory: &str, after: &str) -> Result<bool> {
        // With the greatest character behind it a prefix means all that it folds.
        if after[directory.len()..].starts_with(char::MAX) {
            return Ok(false);
        }
        let mut request = ListRequest {
            prefix: directory.to_string(),
            start_after: Some(after.to_string()),
            max_keys: Some(LOOK_NAMES),
            ..ListRequest::default()
        };
        let mut progress = Progress::default();
        loop {
            let page = self.list(request.clone()).await?;
            match page.next {
                _ if !page.objects.is_empty() => return Ok(true),
                None => return Ok(false),
                Some(token) => {
                    self.go_on(&mut progress, directory, &token)?;
                    request.token = Some(token);
                }
            }
        }
    }

    /// A page of a walk: one request, and a small one for each directory that the page ends in and
    /// that was not looked at before.
    pub(super) async fn walk_on(
        &self,
        request: &ListRequest,
        mut walk: Walk,
        what: What,
    ) -> Result<ListPage> {
        let most = request.max_keys.unwrap_or(LIST_PAGE_MAX).min(LIST_PAGE_MAX);
        let mut given = Vec::new();
        let mut room = most;
        while room > 0 {
            match walk.turn(folds(request)) {
                Turn::Over => break,
                Turn::Give(prefix) => {
                    given.push(prefix);
                    room -= 1;
                }
                Turn::Ask => {
                    let Some(frame) = walk.frame() else { break };
                    let (asked, from) = page_of(frame, request, room);
                    let listing = self.listing(&asked, &from, what).await?;
                    return self.take(request, walk, (given, listing, what)).await;
                }
            }
        }
        Ok(walk.page(given, Vec::new(), fold(request)))
    }

    async fn take(
        &self,
        request: &ListRequest,
        mut walk: Walk,
        (given, listing, what): (Vec<String>, Listing, What),
    ) -> Result<ListPage> {
        let looked = self.look_at(walk.open(&listing), what).await?;
        let names: Result<Vec<Name>> = walk.take(listing, &looked);
        let names = names.map_err(|error| self.wire.named(error, "list", &request.prefix))?;
        Ok(walk.page(given, names, fold(request)))
    }

    async fn look_at(&self, nodes: Vec<String>, what: What) -> Result<Vec<Looked>> {
        let looks = nodes.into_iter().map(|node| self.look(node, what));
        stream::iter(looks).buffered(LOOKS_AT_ONCE).try_collect().await
    }

    /// The same at the forks of a name that a client told. The service refuses a prefix that a blob
    /// stands in the middle of, as if it were a directory: there is nothing to be seen then.
    async fn look_above(&self, nodes: Vec<String>, what: What) -> Result<Vec<Looked>> {
        let looks = nodes.clone().into_iter().map(|node| self.look(node, what));
        let looks: Vec<_> = stream::iter(looks).buffered(LOOKS_AT_ONCE).collect().await;
        let mut looked = Vec::with_capacity(looks.len());
        for (look, node) in looks.into_iter().zip(&nodes) {
            match look {
                Err(_) if is_cut_off(node, &looked) => break,
                look => looked.push(look?),
            }
        }
        Ok(looked)
    }

    /// Looks at what there is at a fork.
    async fn look(&self, node: String, what: What) -> Result<Looked> {
        let request = ListRequest {
            prefix: node.clone(),
            delimiter: Some(SLASH.to_string()),
            max_keys: Some(LOOK_NAMES),
            ..ListRequest::default()
        };
        let mut from = Token::default();
        let (mut sight, mut progress) = (Sight::default(), Progress::default());
        loop {
            let listing = self.listing(&request, &from, what).await?;
            if sight.see(&node, &listing) {
                return Ok((node, sight));
            }
            self.go_on(&mut progress, &node, &listing.marker)?;
            from.marker = listing.marker;
        }
    }

    /// List Blobs, with what `include` names.
    pub(super) async fn list_page(
        &self,
        request: &ListRequest,
        from: &Token,
        include: &str,
    ) -> Result<HttpResponse> {
        let max = request.max_keys.unwrap_or(LIST_PAGE_MAX).min(LIST_PAGE_MAX).to_string();
        let mut query = vec![
            ("restype", "container"),
            ("comp", "list"),
            ("include", include),
            ("maxresults", max.as_str()),
        ];
        if !request.prefix.is_empty() {
            query.push(("prefix", &request.prefix));
        }
        if let Some(delimiter) = request.delimiter.as_deref().filter(|text| !text.is_empty()) {
            query.push(("delimiter", delimiter));
        }
        if !from.marker.is_empty() {
            query.push(("marker", &from.marker));
        }
        let is_behind = |name: &&str| from.marker.is_empty() && *name > request.prefix.as_str();
        if let Some(name) = from.start_after.as_deref().filter(is_behind)
            && !self.start_from_refused.load(Ordering::Relaxed)
        {
            // A hierarchical namespace that folds starts at names of the directory only.
            let cut = match request.delimiter.is_some() && self.namespace.is_unknown() {
                true => component(&request.prefix, name),
                false => name,
            };
            for name in [name, cut] {
                let mut newer = query.clone();
                newer.push(("startFrom", name));
                let version = Some(START_FROM_VERSION);
                let ask = Ask { query: &newer, version, ..Ask::default() };
                let response = self.wire.send("list", "", Method::GET, ask).await?;
                if response.status != 400 {
                    return Ok(response);
                }
                let failure = Failure::read(response).await;
                if name.len() > cut.len() {
                    continue;
                }
                // An older service: it lists from the start, and what comes before is filtered out.
                if !["InvalidHeaderValue", "InvalidQueryParameterValue"]
                    .contains(&failure.code.as_str())
                {
                    return Err(self.wire.failed(failure, "list", ""));
                }
                self.start_from_refused.store(true, Ordering::Relaxed);
                break;
            }
        }
        self.wire.send("list", "", Method::GET, Ask { query: &query, ..Ask::default() }).await
    }
}

/// Whether names fold at `/`, which is left to the service. Where they fold elsewhere, the names
/// themselves are asked for: a hierarchical namespace knows directories only.
fn folds(request: &ListRequest) -> bool {
    request.delimiter.as_deref() == Some(SLASH)
}

/// The prefix, and the delimiter that is not left to the service.
fn fold(request: &ListRequest) -> (&str, Option<&str>) {
    let delimiter = request.delimiter.as_deref().filter(|it| !it.is_empty() && *it != SLASH);
    (&request.prefix, delimiter)
}

/// What to ask for a page of a frame.
fn page_of(frame: &Frame, request: &ListRequest, room: u32) -> (ListRequest, Token) {
    let delimiter = folds(request).then(|| SLASH.to_string());
    let asked = ListRequest {
        prefix: frame.prefix.clone(),
        delimiter,
        max_keys: Some(room),
        ..ListRequest::default()
    };
    (asked, Token { marker: frame.marker.clone(), start_after: frame.from.clone() })
}
