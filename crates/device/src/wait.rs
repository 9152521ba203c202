//! How a thread waits for the commands that a ring of the kernel has. It decides which ways of
//! reaching a device leave a choice: calls wait in the kernel, libxnvme can only be asked.

use crate::open::{Io, by_name};
use penstock_base::door::setting;
use penstock_base::{Error, Kind, Result};

/// How a thread waits for commands that are in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// The kernel wakes it: until then the processor is free for others.
    #[default]
    Sleep,
    /// It looks for what has ended, again and again: an answer is there sooner, and a processor is
    /// busy until then.
    Poll,
}

impl Wait {
    /// Every way to wait, its name, and what it is.
    pub const ALL: &'static [(Wait, &'static str, &'static str)] = &[
        (Wait::Sleep, "sleep", "the kernel wakes the thread"),
        (Wait::Poll, "poll", "the thread looks for what has ended, and its processor is busy"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// Finds a way to wait by its name.
    ///
    /// # Errors
    /// `Invalid`, naming the nearest known one.
    pub fn by_name(name: &str) -> Result<Self> {
        by_name("wait", name, Self::ALL, &[])
    }

    /// # Errors
    /// `Unsupported` for polling where commands are calls, which end before they return.
    pub(crate) fn check(self, io: Io, object: &str) -> Result<()> {
        match (self, io) {
            (Wait::Poll, Io::File | Io::Direct | Io::Ioctl) => {
                let message = format!("by io={io} commands are calls: there is nothing to poll");
                let error = Error::new(Kind::Unsupported, message).with_operation("device open");
                Err(error.with_object(object).with_hint(format!(
                    "Leave wait=poll and {} out, or choose io=uring, or passthrough on /dev/ngXnY",
                    setting("nvme_wait")
                )))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_the_nearest_is_told() {
        for row in Wait::ALL {
            assert_eq!(Wait::by_name(row.1).expect("it is known"), row.0);
            assert_eq!(row.0.name(), row.1);
        }
        let error = Wait::by_name("pol").expect_err("it is misspelt");
        assert!(error.hint().is_some_and(|hint| hint.contains("poll")), "{error}");
    }

    #[test]
    fn calls_cannot_be_polled_for() {
        for (io, name, _) in Io::ALL {
            assert!(Wait::Sleep.check(*io, "disk").is_ok(), "{name}");
            let is_ring = matches!(io, Io::Uring | Io::Passthrough);
            let outcome = Wait::Poll.check(*io, "disk");
            assert_eq!(outcome.is_ok(), is_ring, "{name}");
            if let Err(error) = outcome {
                assert!(error.to_string().contains(&format!("io={name}")), "{error}");
            }
        }
    }
}
