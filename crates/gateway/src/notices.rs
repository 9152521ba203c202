//! Lines for the operator on stderr: the start, bad signatures, back ends that are lost and come
//! back, reloads and drains. All have one form: `penstock: TIME SUBJECT: WORDS`.
//!
//! Lines that clients can cause are limited; those that are left out are counted, and the count is
//! a line. Decides nothing about requests.

use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// What limits a kind of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Bad signatures.
    Signatures,
    /// Connections that could not be accepted.
    Accepts,
    /// Back ends that are lost and come back.
    BackEnds,
}

impl Limit {
    const ALL: [Limit; 3] = [Limit::Signatures, Limit::Accepts, Limit::BackEnds];

    /// Most lines within a time.
    fn most(self) -> (u32, Duration) {
        match self {
            Limit::Signatures => (10, Duration::from_secs(1)),
            Limit::Accepts => (1, Duration::from_secs(60)),
            Limit::BackEnds => (20, Duration::from_secs(60)),
        }
    }
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Said,
    /// Left out, the first one since `Said`: the count is due after this long.
    FirstLeftOut(Duration),
    LeftOut,
}

/// The lines of one kind within the time of its limit.
#[derive(Debug, Default)]
struct Window {
    began: Option<Instant>,
    said: u32,
    left_out: u64,
}

impl Window {
    fn take(&mut self, limit: Limit, now: Instant) -> Verdict {
        let (most, time) = limit.most();
        let age = self.began.map(|began| now.duration_since(began));
        // A window with lines left out is ended by their count, which comes in time.
        if age.is_none_or(|age| age >= 2 * time || age >= time && self.left_out == 0) {
            *self = Window { began: Some(now), ..Window::default() };
        }
        if self.said < most {
            self.said += 1;
            return Verdict::Said;
        }
        self.left_out += 1;
        match self.left_out {
            1 => Verdict::FirstLeftOut(time.saturating_sub(age.unwrap_or_default())),
            _ => Verdict::LeftOut,
        }
    }

    /// Ends it; how many lines were left out.
    fn end(&mut self) -> u64 {
        std::mem::take(self).left_out
    }
}

/// Where lines go.
#[derive(Debug)]
enum Sink {
    Stderr,
    Kept(Mutex<Vec<String>>),
}

#[derive(Debug)]
struct Shared {
    sink: Sink,
    windows: [Mutex<Window>; Limit::ALL.len()],
}

/// Writes the lines. Clones write to the same place.
#[derive(Clone, Debug)]
pub struct Notices(Arc<Shared>);

impl Default for Notices {
    /// Those that go to stderr.
    fn default() -> Self {
        Notices::to(Sink::Stderr)
    }
}

impl Notices {
    /// Those that stay in memory, for tests.
    pub fn kept() -> Self {
        Notices::to(Sink::Kept(Mutex::default()))
    }

    fn to(sink: Sink) -> Self {
        Notices(Arc::new(Shared { sink, windows: Default::default() }))
    }

    /// The lines that were kept, without the time.
    pub fn lines(&self) -> Vec<String> {
        match &self.0.sink {
            Sink::Stderr => Vec::new(),
            Sink::Kept(lines) => lines.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    /// Writes a line.
    pub fn say(&self, subject: &str, words: &str) {
        match &self.0.sink {
            Sink::Stderr => {
                // A terminal that is gone is no reason to end.
                std::io::stderr()
                    .write_all(line(SystemTime::now(), subject, words).as_bytes())
                    .ok();
            }
            Sink::Kept(lines) => {
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                lines.push(format!("{subject}: {words}"));
            }
        }
    }

    /// Writes a line, unless too many of its kind have come.
    pub(crate) fn say_within(&self, limit: Limit, subject: &str, words: &str) {
        match self.window(limit).take(limit, Instant::now()) {
            Verdict::Said => self.say(subject, words),
            Verdict::LeftOut => {}
            Verdict::FirstLeftOut(wait) => {
                let (notices, subject) = (self.clone(), subject.to_string());
                let Ok(runtime) = Handle::try_current() else { return };
                runtime.spawn(async move {
                    tokio::time::sleep(wait).await;
                    let count = notices.window(limit).end();
                    let seconds = limit.most().1.as_secs();
                    let words = format!("{count} more lines within {seconds} s are left out");
                    notices.say(&subject, &words);
                });
            }
        }
    }

    fn window(&self, limit: Limit) -> std::sync::MutexGuard<'_, Window> {
        self.0.windows[limit as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn line(now: SystemTime, subject: &str, words: &str) -> String {
    let time = jiff::Timestamp::try_from(now).unwrap_or_default();
    // One line each, whatever stands in a name or in an error.
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("penstock: {time:.3} {subject}: {words}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_time_and_is_one_line() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1_500);
        let told = line(time, "drain", "a\nb\u{1b}[2J");
        assert_eq!(told, "penstock: 1970-01-01T00:00:01.500Z drain: a b [2J\n");
    }

    #[tokio::test(start_paused = true)]
    async fn lines_above_the_limit_are_counted_and_the_count_is_said() {
        let notices = Notices::kept();
        for number in 0..25 {
            notices.say_within(Limit::Signatures, "signature", &number.to_string());
        }
        // Another kind has a limit of its own.
        notices.say_within(Limit::Accepts, "connections", "one");
        assert_eq!(notices.lines().len(), 11);
        tokio::time::sleep(Duration::from_millis(1_001)).await;
        let lines = notices.lines();
        assert_eq!(lines.last().unwrap(), "signature: 15 more lines within 1 s are left out");
        assert_eq!(lines.len(), 12);
        notices.say_within(Limit::Signatures, "signature", "again");
        assert_eq!(notices.lines().last().unwrap(), "signature: again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_is_full_again_after_its_time() {
        let notices = Notices::kept();
        for _ in 0..3 {
            for _ in 0..10 {
                notices.say_within(Limit::Signatures, "signature", "bad");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(notices.lines(), vec!["signature: bad"; 30]);
    }
}
