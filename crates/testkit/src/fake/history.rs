//! Versions of a bucket's objects as S3 keeps them: delete markers, the version `null`, and what
//! becomes the latest again once a later one is removed by its id.
//!
//! The live object of a key lies in its bucket, all others here; in memory only, as generations
//! are. Where nobody ever asked for versions nothing is kept.

use super::vault::Object;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

/// The status under which every write is a version of its own.
pub const ENABLED: &str = "Enabled";
/// What the version of a bucket that makes none is called.
const NULL: &str = "null";
/// Spreads serials, so that no client can take ids for an order.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
/// Its inverse modulo 2^64: a list goes on behind an id whose version is gone already.
const GATHER: u64 = 0xF1DE_83E1_9937_733D;

/// Objects by key.
type Objects = BTreeMap<String, Arc<Object>>;

/// Which version of a key; those that came later have the larger serial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Id {
    /// When it came, among those of its bucket.
    pub serial: u64,
    /// Written while the bucket made no versions; each key has one at most.
    pub is_null: bool,
}

impl Id {
    /// As clients are told it.
    pub fn text(self) -> String {
        match self.is_null {
            true => NULL.to_string(),
            false => format!("{:016x}", self.serial.wrapping_mul(SPREAD)),
        }
    }

    /// Reads [`Id::text`]; the serial of `null` is not in it.
    pub fn parse(text: &str) -> Option<Self> {
        if text == NULL {
            return Some(Id { serial: 0, is_null: true });
        }
        let is_hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let spread = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16 && is_hex)?;
        Some(Id { serial: spread.wrapping_mul(GATHER), is_null: false })
    }

    fn is(self, other: Id) -> bool {
        self == other || self.is_null && other.is_null
    }
}

/// A version that is not the live object of its key.
#[derive(Clone, Debug)]
pub struct Past {
    /// Which it is.
    pub id: Id,
    /// `None`: a delete marker.
    pub object: Option<Arc<Object>>,
    /// When a marker came; of an object its own time counts.
    pub since: SystemTime,
}

/// What a key, or one version of it, comes to.
#[derive(Clone, Debug)]
pub enum Found {
    /// An object.
    Object(Arc<Object>, Id),
    /// A delete marker.
    Marker(Id, SystemTime),
    /// Neither.
    Nothing,
}

/// The versions of one bucket that are not live.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// `Enabled`, `Suspended`, or nothing where nobody ever asked.
    pub status: String,
    /// Of live objects; one that is not here is the version `null`.
    live: BTreeMap<String, Id>,
    /// Oldest first.
    past: BTreeMap<String, Vec<Past>>,
    count: u64,
}

impl History {
    fn next(&mut self) -> Id {
        self.count += 1;
        Id { serial: self.count, is_null: self.status != ENABLED }
    }

    /// The live object of a key gives way to what has the id `to`.
    fn give_way(&mut self, key: &str, before: Option<Arc<Object>>, to: Id, now: SystemTime) {
        let id = self.live_id(key);
        self.live.remove(key);
        let past = self.past.entry(key.to_string()).or_default();
        past.retain(|version| !(to.is_null && version.id.is_null));
        if before.is_some() && !(to.is_null && id.is_null) {
            past.push(Past { id, object: before, since: now });
        }
    }

    /// Counts a write over what was there.
    pub fn written(&mut self, key: &str, before: Option<Arc<Object>>, now: SystemTime) {
        if self.status.is_empty() {
            return;
        }
        let id = self.next();
        self.give_way(key, before, id, now);
        self.live.insert(key.to_string(), id);
    }

    /// Counts a removal, which makes a delete marker.
    pub fn removed(&mut self, key: &str, before: Option<Arc<Object>>, now: SystemTime) {
        if self.status.is_empty() {
            return;
        }
        let id = self.next();
        self.give_way(key, before, id, now);
        let past = self.past.entry(key.to_string()).or_default();
        past.push(Past { id, object: None, since: now });
    }

    /// The id of a key's live object.
    pub fn live_id(&self, key: &str) -> Id {
        self.live.get(key).copied().unwrap_or(Id { serial: 0, is_null: true })
    }

    /// All versions of a key that are not live, oldest first.
    pub fn past(&self, key: &str) -> &[Past] {
        self.past.get(key).map_or(&[], Vec::as_slice)
    }

    /// Keys that have versions which are not live.
    pub fn keys(&self) -> impl Iterator<Item = &String> {
        self.past.iter().filter(|(_, past)| !past.is_empty()).map(|(key, _)| key)
    }

    /// The latest of a key, or the version that is named.
    pub fn find(&self, key: &str, named: Option<Id>, objects: &Objects) -> Found {
        let live = objects.get(key).map(|object| (object, self.live_id(key)));
        if let Some((object, id)) = live
            && named.is_none_or(|named| named.is(id))
        {
            return Found::Object(object.clone(), id);
        }
        let mut past = self.past(key).iter().rev();
        let found = match named {
            Some(named) => past.find(|version| version.id.is(named)),
            None => past.next(),
        };
        match found {
            Some(Past { id, object: Some(object), .. }) => Found::Object(object.clone(), *id),
            Some(Past { id, object: None, since }) => Found::Marker(*id, *since),
            None => Found::Nothing,
        }
    }

    /// Changes what is told of a version that is not live.
    pub fn amend(&mut self, key: &str, id: Id, object: Object) {
        let past = self.past.get_mut(key).into_iter().flatten();
        for version in past.filter(|version| version.id.is(id)) {
            version.object = Some(Arc::new(object.clone()));
        }
    }

    /// Removes a version for good; whether it was a delete marker. The one before the latest is
    /// the latest then.
    pub fn forget(&mut self, key: &str, id: Id, objects: &mut Objects) -> bool {
        let mut was_marker = false;
        let past = self.past.entry(key.to_string()).or_default();
        let live = self.live.get(key).copied().unwrap_or(Id { serial: 0, is_null: true });
        if objects.contains_key(key) && live.is(id) {
            objects.remove(key);
            self.live.remove(key);
        } else if let Some(at) = past.iter().position(|version| version.id.is(id)) {
            was_marker = past.remove(at).object.is_none();
        }
        if !objects.contains_key(key)
            && let Some(object) = past.last().and_then(|latest| latest.object.clone())
            && let Some(latest) = past.pop()
        {
            objects.insert(key.to_string(), object);
            self.live.insert(key.to_string(), latest.id);
        }
        was_marker
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ids_read_back(serial: u64) {
            let id = Id { serial, is_null: false };
            prop_assert_eq!(Id::parse(&id.text()), Some(id));
        }

        #[test]
        fn what_is_no_id_is_none(text in "[ -~]{0,20}") {
            prop_assume!(Id::parse(&text).is_none_or(|id| id.text() != text));
            prop_assert_eq!(Id::parse(&text), None);
        }
    }
}
