//! What makes a volume's bytes and table durable, and what is promised once that has failed:
//! nothing, until the volume is opened anew.

use crate::volume::copies::{commit, encode};
use crate::volume::node::Node;
use crate::volume::table::{Entry, Table};
use crate::volume::{Core, Volume};
use penstock_base::{Error, Kind, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, RwLockWriteGuard};

/// The flushes of a device, one at a time: the page cache tells of a page that it lost to one
/// flush only, and no other may succeed before that is known.
#[derive(Default)]
pub(super) struct Flushes {
    begun: AtomicU64,
    turn: Mutex<()>,
    /// Set when a flush or a write of the table failed: what is durable is not known any more.
    is_failed: AtomicBool,
}

/// How many flushes had begun when somebody asked for one. The next covers what he wrote.
#[derive(Clone, Copy)]
struct Ticket(u64);

impl Flushes {
    pub fn is_failed(&self) -> bool {
        self.is_failed.load(Ordering::Acquire)
    }

    /// After this, nothing is promised any more: the page cache forgets what it could not write, so
    /// a second flush would succeed without it.
    fn fail(&self, error: Error) -> Error {
        self.is_failed.store(true, Ordering::Release);
        error
    }

    fn ask(&self) -> Ticket {
        Ticket(self.begun.load(Ordering::Acquire))
    }

    /// Flushes, unless a flush that others began since the ticket was taken has done it. `None`
    /// if the device has failed.
    fn run(&self, ticket: Ticket, flush: impl FnOnce() -> Result<()>) -> Option<Result<()>> {
        let turn = self.turn.lock();
        if turn.is_err() {
            // A flush that panicked has begun and served nobody.
            self.is_failed.store(true, Ordering::Release);
        }
        if self.is_failed() {
            return None;
        }
        if self.begun.load(Ordering::Acquire) > ticket.0 {
            return Some(Ok(()));
        }
        self.begun.fetch_add(1, Ordering::AcqRel);
        Some(flush().map_err(|error| self.fail(error)))
    }
}

impl Volume {
    /// Refuses changes to what cannot or must not change.
    pub(super) fn check_writable(&self, operation: &'static str) -> Result<()> {
        self.check_process(operation)?;
        if self.port.geometry().is_read_only {
            let error = Error::new(Kind::Denied, "the volume was opened read-only");
            let error = error.with_operation(operation).with_object(self.port.name());
            return Err(error.with_hint(
                "Attach it without READ_ONLY; a device that takes no writes may be made to by \
                 blockdev --setrw",
            ));
        }
        match self.flushes.is_failed() {
            true => Err(self.failed(operation)),
            false => Ok(()),
        }
    }

    fn failed(&self, operation: &'static str) -> Error {
        let message = "the device failed earlier, and what of it is durable is not known";
        let hint = "Close the volume and open it anew; it then holds what was synced last";
        let error = Error::new(Kind::Unavailable, message).with_operation(operation);
        error.with_object(self.port.name()).with_hint(hint)
    }

    /// Without a queue nothing is flushed and nothing lost: that is no failure of the device.
    fn be_ready(&self, operation: &'static str) -> Result<()> {
        self.port.be_ready().map_err(|error| error.with_operation(operation))
    }

    /// Makes durable what the device was given before.
    fn flush(&self, operation: &'static str) -> Result<()> {
        self.be_ready(operation)?;
        let flushed = self.flushes.run(self.flushes.ask(), || self.port.flush());
        let flushed = flushed.unwrap_or_else(|| Err(self.failed(operation)));
        flushed.map_err(|error| error.with_operation(operation))
    }

    /// Makes `next` the table. What the device was given before is durable with it.
    pub(super) fn commit(
        &self,
        core: &mut Core,
        mut next: Table,
        operation: &'static str,
    ) -> Result<()> {
        // The device may have failed while this waited for the lock.
        self.check_writable(operation)?;
        self.be_ready(operation)?;
        next.generation = core.table.generation + 1;
        let encoded = encode(&self.port, &next)?;
        commit(&self.port, self.paging, &next, &encoded, || self.flush(operation))
            .map_err(|error| self.flushes.fail(error).with_operation(operation))?;
        core.table = next;
        Ok(())
    }

    /// Makes durable what was written to a file, and its size. `rest` keeps blocks from being
    /// written until the table that is to hold is decided.
    pub(super) fn sync(&self, node: &Node, rest: RwLockWriteGuard<'_, ()>) -> Result<()> {
        const OPERATION: &str = "volume sync";
        if node.is_temp() {
            return Ok(());
        }
        self.check_writable(OPERATION)?;
        let mut core = self.core();
        let name = node.name();
        if node.is_removed() {
            // Its name may be another file's by now.
            return Err(self.gone(OPERATION, node));
        }
        let live = {
            let map = node.map();
            Entry { size_bytes: node.size(), extents: map.extents().to_vec() }
        };
        match core.table.files.get(&name) {
            Some(entry) if *entry != live => {
                // From here on an overwritten block moves again.
                let before = node.become_known(live.size_bytes);
                drop(rest);
                let mut next = core.table.clone();
                next.files.insert(name, live);
                match self.commit(&mut core, next, OPERATION) {
                    Ok(()) => {
                        self.leave(&mut core, node, &before.left);
                        Ok(())
                    }
                    Err(error) => {
                        // The table tells what it told: nobody moved anything without `core`.
                        *node.known() = before;
                        Err(error)
                    }
                }
            }
            Some(_) => {
                drop((core, rest));
                self.flush(OPERATION)
            }
            None => Err(self.gone(OPERATION, node)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Image, ModelDevice};
    use crate::volume::space::Extent;
    use crate::volume::{FormatOptions, Lock, OpenFileOptions, format};
    use crate::{Discipline, Port};
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Barrier};

    /// What the table does not tell of may be overwritten in place, and what it tells of must not.
    #[test]
    fn a_table_that_cannot_be_written_tells_what_it_told() {
        let model = ModelDevice::new(4096, 1280, Image::default()).expect("the sizes are right");
        let model = Arc::new(model);
        let port = || Port::new(model.clone(), Discipline::Thread).expect("opens");
        format(&port(), FormatOptions::default()).expect("formats");
        let volume = Volume::open(port()).expect("opens");
        let options = OpenFileOptions { create: true, lock: Lock::None };
        let file = volume.open_file("db", options).expect("creates");
        file.write_at(&[1; 65_536], 0).expect("writes");
        file.sync().expect("syncs");
        file.write_at(&[2; 16_384], 0).expect("moves");
        file.write_at(&[2; 16_384], 65_536).expect("grows");
        let known = || {
            let known = file.node.known();
            let at = |page| known.pages.meets(page, page + 1);
            ([0, 3, 4, 15, 16, 19].map(at), known.left.pages())
        };
        let before = known();
        assert_eq!(before, ([false, false, true, true, false, false], 4));
        let scattered = |page: u64| Extent { first_page: 600 + 2 * page, pages: 1 };
        let whole = file.node.map().clone();
        file.node.map_mut().append(&(0..70_000).map(scattered).collect::<Vec<_>>());
        let error = volume.sync(&file.node, file.node.at_rest()).expect_err("it is too long");
        assert_eq!(error.kind(), Kind::Exhausted, "{error}");
        assert_eq!(known(), before);
        *file.node.map_mut() = whole;
        file.sync().expect("nothing has failed for good");
        assert_eq!(known(), ([true; 6], 0));
    }

    #[test]
    fn a_flush_serves_those_who_asked_before_it_began_and_nobody_who_asked_later() {
        let flushes = Flushes::default();
        let run = |ticket| {
            let mut has_flushed = false;
            let outcome = flushes.run(ticket, || {
                has_flushed = true;
                Ok(())
            });
            assert!(matches!(outcome, Some(Ok(()))));
            has_flushed
        };
        let (first, second) = (flushes.ask(), flushes.ask());
        let mut third = None;
        let outcome = flushes.run(first, || {
            third = Some(flushes.ask());
            Ok(())
        });
        assert!(matches!(outcome, Some(Ok(()))));
        assert!(!run(second), "the first one's flush covers it");
        assert!(
            run(third.expect("the flush ran")),
            "that flush may have missed what came beside it"
        );
        assert!(run(flushes.ask()));
    }

    #[test]
    fn a_flush_that_panics_serves_nobody() {
        let flushes = Flushes::default();
        let (first, second) = (flushes.ask(), flushes.ask());
        std::thread::scope(|scope| {
            let panics = scope.spawn(|| flushes.run(first, || panic!("in the middle of it")));
            panics.join().expect_err("it panics");
        });
        assert!(flushes.run(second, || Ok(())).is_none());
        assert!(flushes.is_failed());
    }

    /// As the page cache does it: the failure is told to one flush, and the next succeeds.
    #[test]
    fn nobody_succeeds_beside_a_flush_that_fails() {
        let (flushes, began) = (Flushes::default(), Barrier::new(2));
        let has_flushed_again = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                began.wait();
                flushes.run(flushes.ask(), || {
                    has_flushed_again.store(true, Ordering::Release);
                    Ok(())
                })
            });
            let told = flushes.run(flushes.ask(), || {
                began.wait();
                Err(Error::new(Kind::Unavailable, "EIO"))
            });
            assert!(matches!(told, Some(Err(_))));
            assert!(other.join().expect("does not panic").is_none());
        });
        assert!(!has_flushed_again.load(Ordering::Acquire));
    }
}
