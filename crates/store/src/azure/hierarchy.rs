//! Lists of accounts with a hierarchical namespace (ADLS Gen2), put into byte order. Pure.
//!
//! Such an account lists directory by directory: `/` comes before every other character, so that
//! `a/x` precedes `a-b` and `a.txt`. Byte order has those first. Both orders differ only where a
//! directory `a/` has a sibling whose name goes on from `a` with a character before `/`; such an
//! `a` is a *fork*. In either order what is below a fork's `/` is in one piece, and so are those
//! siblings. A walk therefore takes the account's list as it comes and puts each page in order; it
//! holds a directory back that has such siblings still to come, and lists it after them. Whether
//! they do come shows on the page, but for the directories that its last name lies in: about each
//! of those one small question is asked. What a page gives is then less than all that is still to
//! come, so that any later page may leave out what is not behind the last name given.
//!
//! Which requests these are is decided in `ordered`.

pub(super) mod fork;

use super::list::{Listing, Name, corrupt};
use crate::ListPage;
use fork::{Looked, below, bound, compare, component, forks, sight};
use penstock_base::{Error, Kind, Result};
use serde::{Deserialize, Serialize};

/// What tells tokens of walks from others.
const TOKEN_MARK: char = 'h';

/// A stretch of the account's list: all that begins with a prefix, from a place on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Frame {
    #[serde(rename = "p")]
    pub prefix: String,
    /// What comes before this in the account's order is not meant.
    #[serde(default, rename = "f", skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The service's marker of the next page.
    #[serde(default, rename = "m", skip_serializing_if = "String::is_empty")]
    pub marker: String,
    /// There is nothing behind.
    #[serde(default, rename = "e", skip_serializing_if = "std::ops::Not::not")]
    is_over: bool,
    /// Directories that the list has passed and that are still to be given, the next one last.
    #[serde(default, rename = "h", skip_serializing_if = "Vec::is_empty")]
    held: Vec<String>,
    /// A directory that, like those above it, has no siblings that byte order has before it.
    #[serde(default, rename = "c", skip_serializing_if = "String::is_empty")]
    clear: String,
}

impl Frame {
    fn of(prefix: &str) -> Self {
        Frame { prefix: prefix.to_string(), ..Frame::default() }
    }

    /// Whether all is given that comes before the directory that is held last.
    fn is_due(&self) -> bool {
        let at_bound = |node: &String| {
            self.marker.is_empty() && self.from.as_deref() == Some(bound(node).as_str())
        };
        self.is_over || self.held.last().is_some_and(at_bound)
    }
}

/// Where a list goes on: stretches of the account's list, the next one last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Walk {
    #[serde(rename = "w")]
    frames: Vec<Frame>,
    /// All up to this name in byte order was given, or is not wanted.
    #[serde(default, rename = "a", skip_serializing_if = "Option::is_none")]
    after: Option<String>,
    /// The prefix that was folded last, at a delimiter that is no `/`.
    #[serde(default, rename = "t", skip_serializing_if = "Option::is_none")]
    told: Option<String>,
}

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// A page of the last frame's list.
    Ask,
    /// A directory that was held back, folded.
    Give(String),
    /// Nothing.
    Over,
}

impl Walk {
    /// All names below a prefix, but for those up to a name that is not behind the prefix.
    pub fn all(prefix: &str, after: Option<&str>) -> Self {
        let after = after.map(str::to_string);
        Walk { frames: vec![Frame::of(prefix)], after, told: None }
    }

    /// From a marker of the service on, whatever was given before.
    pub fn resumed(prefix: &str, marker: &str) -> Self {
        let frame = Frame { marker: marker.to_string(), ..Frame::of(prefix) };
        Walk { frames: vec![frame], ..Walk::default() }
    }

    /// What has to be looked at before a walk can begin behind a name, the shortest first.
    pub fn unknown(prefix: &str, after: &str, folds: bool) -> Vec<String> {
        let end = match folds {
            true => after.len().min(component(prefix, after).len() + 1),
            false => after.len(),
        };
        // A name that ends with a slash is all that is asked of it.
        let nodes = forks(&after[..end], prefix.len());
        nodes.map(|(node, _)| node.to_string()).collect()
    }

    /// All names behind one that begins with the prefix.
    pub fn behind(prefix: &str, after: &str, looked: &[Looked]) -> Self {
        let (mut frames, mut frame) = (Vec::new(), Frame::of(prefix));
        frame.from = Some(after.to_string());
        for (node, is_open) in forks(after, prefix.len()) {
            let Some(sight) = sight(looked, node) else { continue };
            if !is_open && sight.is_directory {
                frame.held.push(node.to_string());
            } else if is_open && !sight.is_directory {
                // Nothing is there, and the service may refuse to start there.
                frame.from = Some(node.to_string());
                break;
            } else if is_open && sight.low.is_some() {
                // Its siblings were given before what is in it: the list goes on behind them.
                frame.from = Some(bound(node));
                frames.push(std::mem::replace(&mut frame, Frame::of(&below(node))));
                frame.from = Some(after.to_string());
            } else if is_open {
                frame.clear = below(node);
            }
        }
        frames.push(frame);
        Walk { frames, after: Some(after.to_string()), told: None }
    }

    /// The same where names fold at `/`; whether names behind lie in the directory that the name
    /// itself lies in is told.
    pub fn behind_folded(prefix: &str, after: &str, looked: &[Looked], is_straddled: bool) -> Self {
        let own = component(prefix, after);
        let mut frame = Frame::of(prefix);
        for (node, _) in forks(own, prefix.len()) {
            if sight(looked, node).is_some_and(|sight| sight.is_directory) {
                frame.held.push(node.to_string());
            }
        }
        frame.from = Some(own.to_string()).filter(|own| own.len() > prefix.len());
        if after.len() > own.len() {
            frame.from = Some(bound(own));
            frame.held.extend(is_straddled.then(|| own.to_string()));
        }
        Walk { frames: vec![frame], after: Some(after.to_string()), told: None }
    }

    /// The directory that a name lies in, seen from a prefix, if it lies in one that is there.
    pub fn directory(prefix: &str, after: &str, looked: &[Looked]) -> Option<String> {
        let own = component(prefix, after);
        let is_there = sight(looked, own).is_some_and(|sight| sight.is_directory);
        (after.len() > own.len() && is_there).then(|| below(own))
    }

    /// The text of a token.
    pub fn text(&self) -> String {
        let json = serde_json::to_string(self);
        format!("{TOKEN_MARK}{}", json.expect("text and lists of text always serialise"))
    }

    /// Reads it again; `None` for a token of another kind.
    ///
    /// # Errors
    /// `Invalid` for one that is not of a list with this prefix.
    pub fn parse(text: &str, prefix: &str) -> Result<Option<Self>> {
        let Some(json) = text.strip_prefix(TOKEN_MARK) else { return Ok(None) };
        let walk: Option<Walk> = serde_json::from_str(json).ok();
        let is_of = |walk: &Walk| {
            let mut texts = walk.frames.iter().flat_map(|it| it.held.iter().chain([&it.prefix]));
            texts.all(|text| text.starts_with(prefix))
        };
        let foreign = || Error::new(Kind::Invalid, "the listing token is not one of this list");
        walk.filter(is_of).map(Some).ok_or_else(foreign)
    }

    /// The stretch of which a page is wanted.
    pub fn frame(&self) -> Option<&Frame> {
        self.frames.last()
    }

    /// What comes next. A directory whose turn has come is given where it folds, else listed.
    pub fn turn(&mut self, folds: bool) -> Turn {
        loop {
            let Some(frame) = self.frames.last_mut() else { return Turn::Over };
            if !frame.is_due() {
                return Turn::Ask;
            }
            match frame.held.pop() {
                Some(node) if folds => return Turn::Give(below(&node)),
                Some(node) => self.frames.push(Frame::of(&below(&node))),
                None => drop(self.frames.pop()),
            }
        }
    }

    /// The directories that a page ends in and that names of it lie in: whether siblings follow
    /// that byte order has before them has to be looked at.
    pub fn open(&self, listing: &Listing) -> Vec<String> {
        let Some(frame) = self.frames.last() else { return Vec::new() };
        let names = || listing.names.iter().map(Name::text);
        let is_beyond = frame
            .held
            .last()
            .map(|node| bound(node))
            .is_some_and(|bound| names().any(|name| compare(name, &bound).is_ge()));
        let last = names().max_by(|a, b| compare(a, b));
        let Some(last) = last.filter(|_| !listing.marker.is_empty() && !is_beyond) else {
            return Vec::new();
        };
        let is_unclear = |(node, is_open): &(&str, bool)| {
            let inside = below(node);
            *is_open
                && !frame.clear.starts_with(&inside)
                && names().any(|it| it.starts_with(&inside))
        };
        let unclear = forks(last, frame.least()).filter(is_unclear);
        unclear.map(|(node, _)| node.to_string()).collect()
    }

    /// Takes a page of the last frame's list, and what was seen at its open forks; gives those of
    /// its names that byte order has before all that is still to come.
    ///
    /// # Errors
    /// `Corrupt` where the page is not in the order that such accounts have, and that matters.
    pub fn take(&mut self, listing: Listing, looked: &[Looked]) -> Result<Vec<Name>> {
        let Some(frame) = self.frames.last_mut() else { return Ok(Vec::new()) };
        let is_ordered = listing.is_ordered_by(compare);
        if !is_ordered && (frame.from.is_some() || !frame.held.is_empty()) {
            let why = "the names of an account with a hierarchical namespace are not in the order \
                       of such accounts, so that those behind a name cannot be told";
            return Err(Error::new(Kind::Corrupt, why)
                .with_hint("List without start-after, or report this with the names of the page"));
        }
        let Listing { mut names, marker, .. } = listing;
        names.sort_by(|a, b| compare(a.text(), b.text()));
        let last = names.last().map(|name| name.text().to_string());
        if let Some(from) = &frame.from {
            names.retain(|name| compare(name.text(), from).is_ge());
        }
        if let Some(bound) = frame.held.last().map(|node| bound(node)) {
            let meant = names.partition_point(|name| compare(name.text(), &bound).is_lt());
            if meant < names.len() {
                names.truncate(meant);
                frame.from = Some(bound);
                frame.marker.clear();
                return Ok(names);
            }
        }
        frame.is_over = marker.is_empty();
        frame.marker = marker;
        if let Some(last) = last.filter(|_| !frame.is_over && is_ordered) {
            frame.hold(&last, &mut names, looked)?;
        }
        while self.frames.last().is_some_and(|it| it.is_over && it.held.is_empty()) {
            self.frames.pop();
        }
        Ok(names)
    }

    /// Makes a page of what was given: of names what is behind all that was given before, folded at
    /// a delimiter that the service did not fold at.
    pub fn page(
        mut self,
        given: Vec<String>,
        names: Vec<Name>,
        (prefix, fold): (&str, Option<&str>),
    ) -> ListPage {
        let mut page = ListPage { prefixes: given, ..ListPage::default() };
        let is_new = |name: &str| self.after.as_deref().is_none_or(|after| name > after);
        for name in names {
            match name {
                Name::Object(entry) if is_new(&entry.key) => page.objects.push(entry),
                Name::Prefix(prefix) if is_new(&prefix) => page.prefixes.push(prefix),
                _ => {}
            }
        }
        page.objects.sort_by(|a, b| a.key.cmp(&b.key));
        page.prefixes.sort();
        page.prefixes.dedup();
        let last = page.objects.last().map(|entry| entry.key.clone());
        let last = last.max(page.prefixes.last().cloned());
        if last > self.after {
            self.after = last;
        }
        if let Some(delimiter) = fold {
            page.objects.retain(|entry| {
                let rest = entry.key.get(prefix.len()..).unwrap_or_default();
                let end = rest.find(delimiter).map(|at| at + delimiter.len());
                let Some(end) = end else { return true };
                let folded = &entry.key[..prefix.len() + end];
                if self.told.as_deref() != Some(folded) {
                    page.prefixes.push(folded.to_string());
                    self.told = Some(folded.to_string());
                }
                false
            });
        }
        page.next = (!self.frames.is_empty()).then(|| self.text());
        page
    }
}

impl Frame {
    /// The shortest node that can be a fork here: above the last one that is held nothing follows
    /// before it is given.
    fn least(&self) -> usize {
        let held = self.held.last().map_or(0, |node| node.len() + 1);
        self.prefix.len().max(held)
    }

    /// Holds the directories back that siblings may follow of which byte order has them before.
    fn hold(&mut self, last: &str, names: &mut Vec<Name>, looked: &[Looked]) -> Result<()> {
        let least = self.least();
        for (node, is_open) in forks(last, least) {
            let inside = below(node);
            let is_clear = is_open && self.clear.starts_with(&inside);
            if is_clear || !names.iter().any(|name| name.text().starts_with(&inside)) {
                continue;
            }
            let mut low = None;
            if is_open {
                let seen = sight(looked, node);
                let seen = seen.ok_or_else(|| corrupt("a directory at its end was not looked at"));
                low.clone_from(&seen?.low);
                if low.is_none() {
                    self.clear = inside;
                    continue;
                }
            }
            names.retain(|name| !name.text().starts_with(&inside));
            self.held.push(node.to_string());
            if low.is_some() {
                // All behind it is in that directory, up to these siblings.
                self.from = low;
                self.marker.clear();
                break;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
