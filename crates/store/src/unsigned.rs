//! Reads of public data where the environment has credentials that nobody named for them.
//!
//! They may be old, or of another service. Where they are refused a read goes without them, once,
//! and the next reads of the bucket begin so. Writes are always signed, and so is everything for
//! which a secret, a setting or a flag has credentials.
//!
//! Credentials of the environment that may not go to the host that a URL names are withheld: reads
//! go without them, and writes are refused.

use penstock_base::{Error, Kind, Result};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Why credentials do not go to a host, and what lets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Withheld {
    kind: Kind,
    why: String,
    hint: String,
}

impl Withheld {
    pub fn new(kind: Kind, why: String, hint: String) -> Self {
        Withheld { kind, why, hint }
    }

    /// The refusal of a request that would need the credentials.
    pub fn into_error(self) -> Error {
        Error::new(self.kind, self.why).with_hint(self.hint)
    }
}

impl fmt::Display for Withheld {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}. {}", self.why, self.hint)
    }
}

/// Which way reads of one bucket went through last.
#[derive(Debug, Default)]
pub(crate) struct ReadsUnsigned(AtomicBool);

impl ReadsUnsigned {
    /// Whether a read begins with the credentials.
    pub fn begins_signed(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    /// The answer that counts, where the first was refused and the second came the other way; which
    /// way went through is remembered. Where both are refused it is the answer to the credentials.
    pub fn settle<T>(
        &self,
        began_signed: bool,
        (first, second): (Result<T>, Result<T>),
        is_denied: impl Fn(&Result<T>) -> bool,
    ) -> Result<T> {
        if is_denied(&second) {
            return if began_signed { first } else { second };
        }
        if second.is_ok() {
            self.0.store(began_signed, Ordering::Relaxed);
        }
        second
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::{Error, Kind};

    fn is_denied(answer: &Result<&str>) -> bool {
        answer.as_ref().is_err_and(|error| error.kind() == Kind::Denied)
    }

    fn refused(why: &str) -> Result<&str> {
        Err(Error::new(Kind::Denied, why))
    }

    #[test]
    fn the_way_that_went_through_comes_first_next_time() {
        let reads = ReadsUnsigned::default();
        assert!(reads.begins_signed());
        let answer = reads.settle(true, (refused("signed"), Ok("public")), is_denied);
        assert_eq!((answer.unwrap(), reads.begins_signed()), ("public", false));
        let answer = reads.settle(false, (refused("unsigned"), Ok("private")), is_denied);
        assert_eq!((answer.unwrap(), reads.begins_signed()), ("private", true));
    }

    #[test]
    fn what_is_refused_both_ways_is_told_as_the_credentials_were() {
        let reads = ReadsUnsigned::default();
        for began_signed in [true, false] {
            let (signed, unsigned) = (refused("signed"), refused("unsigned"));
            let answers = if began_signed { (signed, unsigned) } else { (unsigned, signed) };
            let error = reads.settle(began_signed, answers, is_denied).unwrap_err();
            assert_eq!(error.message(), "signed");
            assert!(reads.begins_signed(), "nothing is learnt");
        }
    }

    #[test]
    fn a_failure_of_another_kind_is_told_and_teaches_nothing() {
        let reads = ReadsUnsigned::default();
        let failed = Err(Error::new(Kind::Unavailable, "gone"));
        let error = reads.settle(true, (refused("signed"), failed), is_denied).unwrap_err();
        assert_eq!((error.message(), reads.begins_signed()), ("gone", true));
    }
}
