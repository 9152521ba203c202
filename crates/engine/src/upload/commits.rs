//! One at a time for each name: the requests that make an object visible.
//!
//! An upload that is given up while such a request is on its way is taken back, which removes the
//! object of that name. Until that is over, no other upload of this engine may place one there:
//! what a second try of a statement wrote would be removed with it.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// The names that are being committed or taken back.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    names: Mutex<HashSet<String>>,
    changed: Notify,
}

/// The right to commit a name; dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Commit {
    commits: Arc<Commits>,
    name: String,
}

impl Commits {
    /// Waits until nobody else commits this name.
    pub async fn enter(self: &Arc<Self>, name: String) -> Commit {
        loop {
            // Listens from here on, so that no leaving is missed.
            let changed = self.changed.notified();
            if self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone()) {
                return Commit { commits: Arc::clone(self), name };
            }
            changed.await;
        }
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        let mut names = self.commits.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.remove(&self.name);
        drop(names);
        self.commits.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_name_is_entered_by_one_at_a_time_and_others_are_not_held_up() {
        let commits = Arc::new(Commits::default());
        let first = commits.enter("a".into()).await;
        let _other = commits.enter("b".into()).await;
        let entered = Arc::new(AtomicUsize::new(0));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let (commits, entered) = (Arc::clone(&commits), Arc::clone(&entered));
                tokio::spawn(async move {
                    let _commit = commits.enter("a".into()).await;
                    entered.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        assert_eq!(entered.load(Ordering::Relaxed), 0);
        drop(first);
        for task in waiting {
            task.await.unwrap();
        }
        assert_eq!(entered.load(Ordering::Relaxed), 3);
    }
}
