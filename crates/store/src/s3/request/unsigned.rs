//! What the environment's credentials are refused is read without them; see [`crate::unsigned`].

use super::{Call, Outcome, Sender};
use crate::advice;
use penstock_base::{Error, Kind, Result};

impl Sender {
    pub(super) async fn read(&self, call: &Call<'_>) -> Result<Outcome> {
        let is_signed = self.reads_unsigned.begins_signed();
        let first = self.follow(call, is_signed).await;
        if !is_denied(&first) {
            return first;
        }
        let second = self.follow(call, !is_signed).await;
        self.reads_unsigned.settle(is_signed, (first, second), is_denied)
    }

    /// Refuses a write whose credentials may not go to the endpoint.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn check_withheld(&self, call: &Call<'_>) -> Result<()> {
        match self.config.withheld.clone().filter(|_| !call.is_read()) {
            Some(withheld) => Err(self.named(call, withheld.into_error())),
            None => Ok(()),
        }
    }

    /// What to do where the environment's credentials are refused, which nobody gave for this
    /// bucket: where there are secrets, none is to blame.
    pub(super) fn environment_hint(&self) -> Option<String> {
        self.config.environment.filter(|_| advice::has_secrets())?;
        let key = [("key_id", "..."), ("secret", "..."), ("scope", self.scope())];
        Some(format!("For credentials of this bucket {}", advice::give(self.secret_type(), &key)))
    }

    /// Says whose credentials were refused, where nobody gave them for this bucket.
    pub(super) fn with_environment(&self, call: &Call<'_>, error: Error) -> Error {
        let Some(variable) = self.config.environment.filter(|_| error.kind() == Kind::Denied)
        else {
            return error;
        };
        let tried = match call.is_read() {
            true => "; without credentials the read was refused, too",
            false => "",
        };
        error.with_note(format_args!("the credentials are the environment's: {variable}{tried}"))
    }
}

/// Whether credentials, or the lack of them, are the reason why there is no answer.
fn is_denied(outcome: &Result<Outcome>) -> bool {
    match outcome {
        Ok(Outcome::Done(_)) => false,
        // HEAD has no body that could say that a token has expired.
        Ok(Outcome::Refused { failure, .. }) => {
            failure.verdict().0 == Kind::Denied
                || (failure.status == 400 && failure.code.is_empty())
        }
        Err(error) => error.kind() == Kind::Denied,
    }
}
