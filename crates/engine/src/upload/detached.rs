//! The uploads of a query that were finished without waiting: the barrier waits for them.

use crate::location::ObjectId;
use crate::upload::core::Upload;
use penstock_base::{Error, Result};
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The detached uploads of one query.
#[derive(Debug, Default)]
pub(crate) struct DetachedUploads {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    pending: HashMap<u64, (ObjectId, Arc<Upload>)>,
    failures: Vec<Error>,
    begun: u64,
    /// Uploads since the last barrier.
    since_barrier: u64,
}

impl DetachedUploads {
    /// Takes note of an upload; the number is for [`DetachedUploads::ended`].
    pub fn begin(&self, upload: &Arc<Upload>) -> u64 {
        let mut state = self.lock();
        state.begun += 1;
        state.since_barrier += 1;
        let number = state.begun;
        state.pending.insert(number, (upload.id(), Arc::clone(upload)));
        number
    }

    /// An upload is durable, or failed.
    pub fn ended(&self, number: u64, failure: Option<Error>) {
        let mut state = self.lock();
        let upload = state.pending.remove(&number);
        state.failures.extend(failure);
        drop(state);
        drop(upload);
        self.changed.notify_waiters();
    }

    /// Waits for all, and tells of all that failed.
    pub async fn barrier(&self) -> Result<()> {
        self.wait_until(|state| state.pending.is_empty()).await;
        let (failures, all) = {
            let mut state = self.lock();
            (std::mem::take(&mut state.failures), std::mem::take(&mut state.since_barrier))
        };
        summed_up(failures, all)
    }

    /// Waits until no upload of this object is pending, however it ends: the query's own later
    /// verbs see what it wrote.
    pub async fn settled(&self, id: &ObjectId) {
        self.wait_until(|state| state.pending.values().all(|(pending, _)| pending != id)).await;
    }

    /// As [`DetachedUploads::settled`], for every object whose key starts with a prefix.
    pub async fn settled_below(&self, id: &ObjectId) {
        let inside = |other: &ObjectId| other.mount == id.mount && other.key.starts_with(&id.key);
        self.wait_until(|state| !state.pending.values().any(|(pending, _)| inside(pending))).await;
    }

    /// Gives up those that are pending.
    pub fn abort(&self) {
        self.abort_where(|_| true);
    }

    /// Gives up those of one object.
    pub fn abort_object(&self, id: &ObjectId) {
        self.abort_where(|pending| pending == id);
    }

    fn abort_where(&self, chosen: impl Fn(&ObjectId) -> bool) {
        let uploads: Vec<Arc<Upload>> = self
            .lock()
            .pending
            .values()
            .filter(|(id, _)| chosen(id))
            .map(|(_, upload)| Arc::clone(upload))
            .collect();
        for upload in uploads {
            upload.cancel();
        }
    }

    async fn wait_until(&self, done: impl Fn(&State) -> bool) {
        loop {
            // Listens from here on, so that no end is missed.
            let changed = self.changed.notified();
            if done(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One error for all: the first one's kind and hint, and a line for each of the others.
fn summed_up(failures: Vec<Error>, all: u64) -> Result<()> {
    let mut failures = failures.into_iter();
    let Some(first) = failures.next() else { return Ok(()) };
    if failures.len() == 0 {
        return Err(first);
    }
    let mut note = format!("{} of {all} uploads failed", failures.len() + 1);
    for failure in failures {
        let text = failure.to_string();
        // The same advice is given once, at the end.
        let advice = first.hint().filter(|hint| failure.hint() == Some(hint));
        let rest = advice.and_then(|hint| text.strip_suffix(hint)?.strip_suffix(". "));
        // Writing into a string cannot fail.
        let _ = write!(note, "; also {}", rest.unwrap_or(&text));
    }
    Err(first.with_note(note))
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::Kind;

    #[test]
    fn the_same_advice_is_given_once() {
        let failure = |object: &str, hint: &str| {
            Error::new(Kind::Denied, "refused").with_object(object).with_hint(hint)
        };
        let failures = vec![failure("a", "Ask"), failure("b", "Ask"), failure("c", "Look")];
        let told = summed_up(failures, 5).unwrap_err().to_string();
        assert_eq!(
            told,
            "a: refused (3 of 5 uploads failed; also b: refused; also c: refused. Look). Ask"
        );
    }
}
