//! What is tried of a back end besides the buckets that are named: that its containers can be
//! buckets, and that the notes of buckets can be kept and read.

use super::judge::{Finding, failed};
use super::{read, retained, take_back, trial};
use crate::notes::{NOTES_BYTES_MAX, Notes};
use crate::route::{BUCKET_NAMES, is_bucket_name};
use penstock_base::{Kind, Result};
use penstock_store::{
    Account, GetRequest, ListRequest, Payload, PutOptions, StreamingStore, WriteCondition,
};
use std::sync::Arc;
use std::time::SystemTime;

/// Most notes that are read.
const NOTES_TRIED_MAX: u16 = 200;

/// Most containers that are named where their names are wrong.
const NAMES_TOLD_MAX: usize = 5;

/// Said of a back end that is asked for notes but keeps none.
const NONE_KEPT: &str = "none are kept here, as this back end cannot tie a write to what is there: \
                         what is set up on buckets is refused";

/// A container of this back end whose name nobody has: it is told by time and process.
fn trial_name(now: SystemTime) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("penstock-doctor-{}-{}", std::process::id(), since.as_millis())
}

/// A back end whose containers are buckets, those in `named` by names that the configuration gives:
/// they are listed, and one is made, tried and removed.
pub(super) async fn containers(
    subject: &str,
    account: &Arc<dyn Account>,
    named: &[&str],
    is_read_only: bool,
    now: &impl Fn() -> SystemTime,
) -> Vec<Finding> {
    let mut findings = match account.list().await {
        Ok(found) => {
            let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
            let count = Finding::good(subject, format!("{} containers", names.len()));
            std::iter::once(count).chain(nameless(subject, &names, named)).collect::<Vec<_>>()
        }
        // Nothing else would be told of it than the same again.
        Err(error) => return vec![failed(subject, &error)],
    };
    if is_read_only {
        return findings;
    }
    let name = trial_name(now());
    match account.create(&name).await {
        Ok(()) => {}
        Err(error) if error.kind() == Kind::Denied => {
            let cure = "Give the identity the right to make containers, or name the buckets that \
                        there are as [[bucket]] and take `dynamic` away";
            let what = format!("no container may be made, so CreateBucket fails: {error}");
            findings.push(Finding::warning(subject, what, cure));
            return findings;
        }
        Err(error) => {
            findings.push(failed(subject, &error));
            return findings;
        }
    }
    findings.push(match try_container(account, &name, now).await {
        Ok(()) => {
            Finding::good(subject, "a container was made, and an object placed in it and read")
        }
        Err(error) => failed(subject, &error),
    });
    if let Err(error) = account.delete(&name).await {
        let finding = failed(subject, &error);
        let what = format!("the container `{name}` of this trial stays: {}", finding.what);
        let cure = "Remove it, and give the identity the right to remove containers".to_string();
        findings.push(Finding { what, cure, ..finding });
    }
    findings
}

/// Containers that are no buckets, as no bucket may have their names.
fn nameless(subject: &str, names: &[&str], named: &[&str]) -> Option<Finding> {
    let odd: Vec<String> = names
        .iter()
        .filter(|name| !is_bucket_name(name) && !named.contains(name))
        .map(|name| format!("`{}`", name.escape_debug()))
        .collect();
    let more = match odd.len().checked_sub(NAMES_TOLD_MAX) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    let told = odd.iter().take(NAMES_TOLD_MAX).cloned().collect::<Vec<_>>().join(", ");
    let what =
        format!("no bucket may have the name of {told}{more}, so clients do not see what is there");
    let cure = format!("Rename it, or name it as the `container` of a [[bucket]]. {BUCKET_NAMES}");
    (!odd.is_empty()).then(|| Finding::warning(subject, what, &cure))
}

async fn try_container(
    account: &Arc<dyn Account>,
    name: &str,
    now: &impl Fn() -> SystemTime,
) -> Result<()> {
    trial(&account.open(name).await?, "", now).await.map(drop)
}

/// The notes that are kept in this container. One that is not there yet is made with the first.
pub(super) async fn notes(
    subject: &str,
    account: &Arc<dyn Account>,
    container: &str,
    is_read_only: bool,
    now: &impl Fn() -> SystemTime,
) -> Vec<Finding> {
    let subject = format!("{subject}, notes in `{container}`");
    let cure = "Give the identity rights on that container, or set notes_bucket to \"\": then \
                what is set up on buckets (lists, policies, tags, CORS) is refused";
    let tried = match account.check(container).await {
        Err(error) if error.kind() == Kind::NotFound => {
            let what = match account.open(container).await {
                Ok(store) if !store.capabilities().conditional_put => NONE_KEPT,
                _ => "there are none yet: their container is made with the first",
            };
            return vec![Finding::good(&subject, what)];
        }
        Err(error) => Err(error),
        Ok(()) => account.open(container).await,
    };
    let store = match tried {
        Ok(store) => store,
        Err(error) => return vec![Finding { cure: cure.to_string(), ..failed(&subject, &error) }],
    };
    if !store.capabilities().conditional_put {
        return vec![Finding::good(&subject, NONE_KEPT)];
    }
    let mut findings = match unreadable(&store).await {
        Ok((count, odd)) => {
            let read =
                Finding::good(&subject, format!("{} of {count} can be read", count - odd.len()));
            let cure = "Requests to that bucket fail: write back a copy of these notes, or remove \
                        them and set the bucket up again";
            let told = |key: String| Finding {
                kind: Some(Kind::Corrupt),
                level: super::Level::Problem,
                ..Finding::warning(&subject, format!("`{key}` cannot be read"), cure)
            };
            let mut findings: Vec<Finding> = odd.into_iter().map(told).collect();
            findings.insert(0, read);
            findings
        }
        Err(error) => vec![Finding { cure: cure.to_string(), ..failed(&subject, &error) }],
    };
    if is_read_only {
        return findings;
    }
    if let Some(retained) = retained(&subject, &store).await {
        findings.push(retained);
        return findings;
    }
    findings.push(match rewritten(&store, now).await {
        Ok(()) => Finding::good(&subject, "may be placed, replaced under a condition and removed"),
        Err(error) => Finding { cure: cure.to_string(), ..failed(&subject, &error) },
    });
    findings
}

/// How many notes there are, and those that are none.
async fn unreadable(store: &Arc<dyn StreamingStore>) -> Result<(usize, Vec<String>)> {
    let max_keys = Some(u32::from(NOTES_TRIED_MAX));
    let page = store.list(ListRequest { max_keys, ..ListRequest::default() }).await?;
    let keys = page.objects.into_iter().map(|entry| entry.key);
    let (mut count, mut odd) = (0, Vec::new());
    for key in keys.filter(|key| key.ends_with(".json")) {
        let request = GetRequest::default();
        let mut answer = match store.get(&key, request).await {
            Ok(answer) => answer,
            // Its bucket was removed this moment.
            Err(error) if error.kind() == Kind::NotFound => continue,
            Err(error) => return Err(error),
        };
        count += 1;
        let text = read(&mut answer, NOTES_BYTES_MAX).await?;
        if serde_json::from_slice::<Notes>(&text).is_err() {
            odd.push(key);
        }
    }
    Ok((count, odd))
}

/// Writes, replaces and removes an object as notes are: each write tied to what was there.
async fn rewritten(store: &Arc<dyn StreamingStore>, now: &impl Fn() -> SystemTime) -> Result<()> {
    let key = trial_name(now());
    let put = async |condition| {
        let options = PutOptions { condition, ..PutOptions::default() };
        store.put(&key, Payload::from(bytes::Bytes::from_static(super::TRIAL)), &options).await
    };
    let written = put(WriteCondition::IfAbsent).await?;
    let replaced = match &written.etag {
        Some(etag) => put(WriteCondition::IfMatch(etag.clone())).await.map(Some),
        None => Ok(None),
    };
    // Removed whatever became of the rest.
    if let Ok(Some(again)) = &replaced {
        take_back(store, &key, again).await?;
    }
    let is_kept_apart = written.version.is_some() && store.has_versions();
    if is_kept_apart || !matches!(replaced, Ok(Some(_))) {
        take_back(store, &key, &written).await?;
    }
    replaced.map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use async_trait::async_trait;
    use penstock_base::Error;
    use penstock_store::ContainerEntry;

    /// An account that makes and opens no containers.
    #[derive(Debug)]
    struct Closed;

    fn denied<T>() -> Result<T> {
        Err(Error::new(Kind::Denied, "not for you"))
    }

    #[async_trait]
    impl Account for Closed {
        async fn open(&self, _: &str) -> Result<Arc<dyn StreamingStore>> {
            denied()
        }

        async fn check(&self, _: &str) -> Result<()> {
            Ok(())
        }

        async fn list(&self) -> Result<Vec<ContainerEntry>> {
            Ok(Vec::new())
        }

        async fn create(&self, _: &str) -> Result<()> {
            denied()
        }

        async fn delete(&self, _: &str) -> Result<()> {
            denied()
        }
    }

    #[tokio::test]
    async fn what_may_not_be_made_is_a_warning_and_notes_that_may_not_be_kept_a_problem() {
        let account: Arc<dyn Account> = Arc::new(Closed);
        let now = || SystemTime::UNIX_EPOCH;
        let made = containers("back end `b`", &account, &[], false, &now).await;
        assert_eq!(made.iter().map(|it| it.level).max(), Some(Level::Warning), "{made:?}");
        assert!(made[1].what.contains("CreateBucket") && made[1].cure.contains("[[bucket]]"));
        assert_eq!(containers("back end `b`", &account, &[], true, &now).await.len(), 1);
        let kept = notes("back end `b`", &account, "n", false, &now).await;
        assert_eq!((kept.len(), kept[0].level), (1, Level::Problem));
        assert!(kept[0].cure.contains("notes_bucket"), "{kept:?}");
    }

    #[test]
    fn containers_that_no_bucket_can_be_are_named() {
        assert_eq!(nameless("back end `disk`", &["lake", "team.a", "0-1"], &[]), None);
        let told =
            nameless("back end `disk`", &["lake", "Sales", "b", "under_score", "healthz"], &[])
                .unwrap();
        assert_eq!(told.level, Level::Warning);
        assert!(told.what.contains("`Sales`, `b`, `under_score`, `healthz`, so"), "{told:?}");
        assert!(told.cure.contains("3 to 63 lower-case letters"), "{told:?}");
        assert_eq!(nameless("back end `disk`", &["lake", "Sales"], &["Sales"]), None);
        let many = ["A", "B", "C", "D", "E", "F", "G"];
        let found = nameless("back end `disk`", &many, &[]).unwrap().what;
        assert!(found.contains("`E` and 2 more") && !found.contains("`F`"), "{found}");
        assert!(!nameless("back end `disk`", &["\u{1b}[2J"], &[]).unwrap().what.contains('\u{1b}'));
    }
}
