//! Sources of credentials, asked in order.
//!
//! Decides when the search ends; says in its error which sources were asked and why each had none.

use reqsign_core::{Context, Error, ErrorKind, ProvideCredential, ProvideCredentialDyn, Result};
use std::fmt;

/// Longest text of one source: a service's answer may be a page.
const REASON_CHARS_MAX: usize = 500;

/// Sources in order, each with the name that errors call it.
pub(crate) struct Chain<C> {
    links: Vec<Link<C>>,
    on_failure: OnFailure,
}

/// What a source that is configured, but fails, means for the sources behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// They are asked (Azure's libraries).
    GoOn,
    /// They are not, since another identity than the configured one would be a surprise (AWS's).
    End,
}

struct Link<C> {
    name: &'static str,
    /// Asked on the chance that it is there: off the cloud nobody answers, however often one asks.
    is_guess: bool,
    provider: Box<dyn ProvideCredentialDyn<Credential = C>>,
}

impl<C> fmt::Debug for Chain<C> {
    /// The signing crate's sources show the secrets they hold.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.links.iter().map(|link| link.name)).finish()
    }
}

impl<C: Send + Sync + Unpin + 'static> Chain<C> {
    pub(crate) fn new(on_failure: OnFailure) -> Self {
        Chain { links: Vec::new(), on_failure }
    }

    /// Adds a source that is asked if those before have nothing.
    #[must_use]
    pub(crate) fn then(
        self,
        name: &'static str,
        provider: impl ProvideCredential<Credential = C>,
    ) -> Self {
        self.push(name, false, Box::new(provider))
    }

    /// Adds a source that nothing tells to be there.
    #[must_use]
    pub(crate) fn then_guess(
        self,
        name: &'static str,
        provider: impl ProvideCredential<Credential = C>,
    ) -> Self {
        self.push(name, true, Box::new(provider))
    }

    fn push(
        mut self,
        name: &'static str,
        is_guess: bool,
        provider: Box<dyn ProvideCredentialDyn<Credential = C>>,
    ) -> Self {
        self.links.push(Link { name, is_guess, provider });
        self
    }
}

impl<C: Send + Sync + Unpin + 'static> ProvideCredential for Chain<C> {
    type Credential = C;

    async fn provide_credential(&self, context: &Context) -> Result<Option<C>> {
        let mut reasons: Vec<String> = Vec::new();
        let (mut is_busy, mut is_retryable) = (false, false);
        for Link { name, is_guess, provider } in &self.links {
            let reason = match provider.provide_credential_dyn(context).await {
                Ok(Some(credential)) => return Ok(Some(credential)),
                Ok(None) => format!("{name}: not configured"),
                Err(error) => {
                    let is_guess = *is_guess && self.links.len() > 1;
                    is_retryable |= error.is_retryable() && !is_guess;
                    is_busy |= error.kind() == ErrorKind::RateLimited && !is_guess;
                    let reason = format!("{name}: {}", shortened(told(&error)));
                    if self.on_failure == OnFailure::End && !is_guess {
                        reasons.push(reason);
                        break;
                    }
                    reason
                }
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        let reasons = reasons.join("; ");
        Err(match is_busy {
            true => Error::rate_limited(reasons),
            false => Error::credential_invalid(reasons).set_retryable(is_retryable),
        })
    }
}

/// An error with its causes and context. The signing crate keeps secrets out of them.
pub(crate) fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let cause = inner.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
        source = inner.source();
    }
    if !error.context().is_empty() {
        text = format!("{text} ({})", error.context().join(", "));
    }
    text
}

/// The beginning of a long text.
fn shortened(text: String) -> String {
    match text.char_indices().nth(REASON_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
