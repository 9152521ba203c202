//! Reads the TLS files again and opens the logs again, by a signal or because the files changed,
//! and says what came of it.

use crate::access_log::AccessLog;
use crate::telemetry::Telemetry;
use crate::tls::{Reloaded, Tls};
use penstock_base::Result;
use std::sync::Arc;
use std::time::Duration;

const SUBJECT: &str = "reload";

/// Reads the TLS files and opens the logs again, without touching connections.
#[derive(Clone, Debug)]
pub struct Reloader {
    pub(crate) tls: Option<Arc<Tls>>,
    /// The logs, with the settings that name them.
    pub(crate) logs: Vec<(&'static str, AccessLog)>,
    pub(crate) telemetry: Arc<Telemetry>,
}

impl Reloader {
    /// Does both, and says on stderr what changed.
    ///
    /// # Errors
    /// What is wrong with the TLS files; the old certificate stays.
    pub fn reload(&self) -> Result<()> {
        self.logs.iter().for_each(|(_, log)| log.reopen());
        let tls = self.tls.as_ref().map(|tls| tls.reload()).transpose();
        let opened = self.logs.iter().map(|(name, _)| format!("{name} is opened again"));
        let mut words: Vec<String> = opened.collect();
        match &tls {
            Ok(None) => {}
            Ok(Some(reloaded)) => {
                self.telemetry.tls_reloads.add(1);
                words.push(certificate(reloaded));
            }
            Err(error) => {
                self.telemetry.tls_reloads_failed.add(1);
                words.push(format!("{error}; the old certificate stays in use"));
            }
        }
        words.push("keys, back ends and settings are read at the start only".to_string());
        self.telemetry.notices.say(SUBJECT, &words.join("; "));
        tls.map(drop)
    }

    /// Looks at the TLS files again and again, and reads them when they have changed. Never ends.
    pub(crate) async fn watch(&self, every: Duration) {
        let Some(tls) = &self.tls else { return std::future::pending().await };
        loop {
            tokio::time::sleep(every).await;
            if tls.has_changed() {
                // What is wrong has been said, and the files are looked at again.
                self.reload().ok();
            }
        }
    }
}

fn certificate(reloaded: &Reloaded) -> String {
    let Reloaded { is_other, until } = reloaded;
    match is_other {
        true => format!("the certificate is a new one, which holds until {until}"),
        false => format!("the certificate is the one that was in use, which holds until {until}"),
    }
}
