//! A line that tells how far a transfer is, on a terminal only.

use penstock_base::ByteSize;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(200);

/// Bytes moved so far, of a total where it is known.
pub struct Progress {
    shown: bool,
    total: Option<u64>,
    moved: u64,
    last: Instant,
    drawn: bool,
}

impl Progress {
    /// Draws on stderr, if that is a terminal.
    pub fn new(total: Option<u64>) -> Self {
        let shown = std::io::stderr().is_terminal();
        Progress { shown, total, moved: 0, last: Instant::now(), drawn: false }
    }

    /// Some bytes moved.
    pub fn add(&mut self, bytes: u64) {
        self.moved += bytes;
        if self.shown && self.last.elapsed() >= INTERVAL {
            self.last = Instant::now();
            self.drawn = true;
            let of = self.total.map(|total| format!(" of {}", mebibytes(total)));
            // A terminal that went away is no reason to stop the transfer.
            write!(
                std::io::stderr(),
                "\r\x1b[K{}{}",
                mebibytes(self.moved),
                of.unwrap_or_default()
            )
            .ok();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            write!(std::io::stderr(), "\r\x1b[K").ok();
        }
    }
}

fn mebibytes(bytes: u64) -> String {
    if bytes < 1 << 20 {
        ByteSize(bytes).to_string()
    } else {
        format!("{:.1} MiB", bytes as f64 / 1048576.0)
    }
}
