//! One token for all stores of a process that ask the same sources for it.
//!
//! A token is for an identity, not for an account, a container or a file, and token services refuse
//! clients that ask often. So stores share the token while any of them lives, also those of other
//! secrets and of other databases of the process. Each asks by its own client.

use super::config::Source;
use reqsign_azure_storage::Credential;
use reqsign_core::{Context, Signer};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Variables that sources look at begin so.
const VARIABLES: [&str; 4] = ["AZURE_", "IDENTITY_", "MSI_", "HOME"];

/// The tokens that are in use.
#[derive(Debug, Default)]
pub(super) struct SharedTokens(Mutex<Vec<Entry>>);

#[derive(Debug)]
struct Entry {
    sources: Vec<Source>,
    environment: BTreeMap<String, String>,
    signer: Weak<Signer<Credential>>,
}

/// Those of this process.
pub(super) static PROCESS: SharedTokens = SharedTokens(Mutex::new(Vec::new()));

/// A signer for one store, and what keeps its token in use.
#[derive(Debug)]
pub(super) struct Shared {
    pub signer: Signer<Credential>,
    _first: Arc<Signer<Credential>>,
}

impl SharedTokens {
    /// A signer that asks by `context`, and shares the token of all that ask these sources;
    /// `make` makes the first one.
    pub fn of(
        &self,
        sources: &[Source],
        context: &Context,
        make: impl FnOnce() -> Signer<Credential>,
    ) -> Shared {
        let environment = environment(context);
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        entries.retain(|entry| entry.signer.strong_count() > 0);
        let known = entries
            .iter()
            .filter(|entry| entry.sources == sources && entry.environment == environment)
            .find_map(|entry| entry.signer.upgrade());
        let first = known.unwrap_or_else(|| {
            let (sources, made) = (sources.to_vec(), Arc::new(make()));
            entries.push(Entry { sources, environment, signer: Arc::downgrade(&made) });
            made
        });
        Shared { signer: Signer::clone(&first).with_context(context.clone()), _first: first }
    }
}

fn environment(context: &Context) -> BTreeMap<String, String> {
    let is_read = |name: &String| VARIABLES.iter().any(|start| name.starts_with(start));
    context.env_vars().into_iter().filter(|(name, _)| is_read(name)).collect()
}
