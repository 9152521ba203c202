//! Asks a back end whether it is there, as cheaply as it can be asked.

use crate::ready::Probe;
use crate::route::{BackendOptions, Routes};
use async_trait::async_trait;
use penstock_base::{Error, Kind, Result};
use penstock_store::Account;
use std::sync::Arc;

/// A container that nobody has: its absence is an answer too.
const ABSENT: &str = "penstock-readiness-probe";

#[derive(Debug)]
struct Target {
    name: String,
    account: Arc<dyn Account>,
    /// A container that a bucket names, if one does.
    container: Option<String>,
    /// Whether the containers lie on this machine, where listing them costs nothing.
    is_here: bool,
}

/// The back ends of a gateway.
#[derive(Debug)]
pub(crate) struct BackEnds(Vec<Target>);

impl BackEnds {
    /// In the order of the options.
    pub fn new(options: &[BackendOptions], routes: &Routes, accounts: &[Arc<dyn Account>]) -> Self {
        let target = |(index, (backend, account)): (usize, (&BackendOptions, &Arc<_>))| Target {
            name: backend.name.clone(),
            account: Arc::clone(account),
            container: routes.a_container_of(index),
            is_here: backend.is_here(),
        };
        BackEnds(options.iter().zip(accounts).enumerate().map(target).collect())
    }
}

#[async_trait]
impl Probe for BackEnds {
    fn names(&self) -> Vec<String> {
        self.0.iter().map(|target| target.name.clone()).collect()
    }

    fn is_here(&self, index: usize) -> bool {
        self.0.get(index).is_some_and(|target| target.is_here)
    }

    async fn probe(&self, index: usize) -> Result<()> {
        let target = self.0.get(index);
        let target =
            target.ok_or_else(|| Error::new(Kind::Internal, "there is no such back end"))?;
        match &target.container {
            Some(container) => target.account.check(container).await,
            None if target.is_here => target.account.list().await.map(drop),
            None => target.account.check(ABSENT).await,
        }
    }
}
