//! Faults as data: what goes wrong, for which requests, how often.
//!
//! A fault is one line, such as `status=503,op=GetObject,key=*.parquet,nth=2-4,retry-after=1`:
//! an action, then the requests it is for. [`HELP`] is the reference. Chance comes from a seed, so
//! that a run can be repeated.

mod parse;

pub use parse::HELP;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::watch;

/// What goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer this status instead; nothing takes effect.
    Status(u16),
    /// Cut the connection before the head of the answer; nothing takes effect.
    Reset,
    /// Cut the connection after so many bytes of the request's body; nothing takes effect.
    ResetUpload(u64),
    /// Close the connection in order before the head of the answer; nothing takes effect.
    Close,
    /// Say nothing for so long, then cut the connection; nothing takes effect.
    Stall(Duration),
    /// Answer this status with a page of HTML, as a captive proxy does; nothing takes effect.
    Html(u16),
    /// Answer 200 with an error document, as S3 does for slow completions and copies.
    ErrorIn200,
    /// Serve the whole object with 200 although a range was asked for.
    IgnoreRange,
    /// Replace the object by another of the same size before serving this request.
    Replace,
    /// Answer a page without names that is not the last.
    EmptyPage,
    /// Wait so long before the answer, or until all faults are disarmed.
    Latency(Duration),
    /// Do what was asked, then cut the connection instead of answering.
    LostAnswer,
    /// Tell the truth in the head, then cut the connection after so many bytes of the body.
    Cut(u64),
    /// Answer a well-framed but short body of so many bytes.
    Truncate(u64),
    /// Tell a length that is wrong by so much.
    LieLength(i64),
    /// Tell a `Content-Range` that is wrong by so much.
    WrongRange(i64),
    /// Send the body at so many bytes per second.
    Slow(u64),
    /// Flip the bits of one byte of the body.
    Corrupt(u64),
    /// Do what was asked, then answer bytes that are no HTTP.
    Garbage,
    /// Do what was asked, then cut the connection after so many bytes of the head.
    CutHead(u64),
    /// Tell the truth in the head, then say nothing more after so many bytes of the body.
    Hang(u64),
    /// Send the body in chunks; the size of the chunk after so many bytes is no number.
    BadChunk(u64),
    /// Send the body in chunks, and close the connection in order after so many bytes.
    CutChunk(u64),
    /// Tell the length twice: the true one, and one that is larger by so much.
    TwoLengths(u64),
    /// Leave a header line of the answer out.
    Without(String),
}

/// The operation under which a connection is struck as it is accepted, before any request. Only
/// faults that name it are for it.
pub const CONNECT: &str = "Connect";

impl Action {
    /// Its name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Action::Status(_) => "status",
            Action::Reset => "reset",
            Action::ResetUpload(_) => "reset-upload",
            Action::Close => "close",
            Action::Stall(_) => "stall",
            Action::Html(_) => "html",
            Action::ErrorIn200 => "error-200",
            Action::IgnoreRange => "ignore-range",
            Action::Replace => "replace",
            Action::EmptyPage => "empty-page",
            Action::Latency(_) => "latency",
            Action::LostAnswer => "lost-answer",
            Action::Cut(_) => "cut",
            Action::Truncate(_) => "truncate",
            Action::LieLength(_) => "lie-length",
            Action::WrongRange(_) => "wrong-range",
            Action::Slow(_) => "slow",
            Action::Corrupt(_) => "corrupt",
            Action::Garbage => "garbage",
            Action::CutHead(_) => "cut-head",
            Action::Hang(_) => "hang",
            Action::BadChunk(_) => "bad-chunk",
            Action::CutChunk(_) => "cut-chunk",
            Action::TwoLengths(_) => "two-lengths",
            Action::Without(_) => "without",
        }
    }
}

/// One fault: the action and the requests it is for.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultSpec {
    /// What goes wrong.
    pub action: Action,
    /// Only requests of this method.
    pub method: Option<String>,
    /// Only requests of this operation, such as `GetObject`.
    pub operation: Option<String>,
    /// Only requests whose key matches; `*` and `?` match any text and any character.
    pub key: Option<String>,
    /// Only requests whose credentials contain this text: see [`FaultPlan::strike`].
    pub credential: Option<String>,
    /// Only these of the requests that match otherwise, counted from 1, both ends inclusive.
    pub nth: (u64, u64),
    /// At most so often.
    pub times: u64,
    /// Of those that remain, each with this chance.
    pub probability: f64,
    /// `Retry-After` in seconds, for [`Action::Status`].
    pub retry_after_s: Option<u64>,
    /// The service's error code, for [`Action::Status`]; a fitting one otherwise.
    pub code: Option<String>,
}

impl FaultSpec {
    /// A fault for every request.
    pub fn new(action: Action) -> Self {
        FaultSpec {
            action,
            method: None,
            operation: None,
            key: None,
            credential: None,
            nth: (1, u64::MAX),
            times: u64::MAX,
            probability: 1.0,
            retry_after_s: None,
            code: None,
        }
    }

    fn is_for(&self, method: &str, operation: &str, key: &str, credential: &str) -> bool {
        self.method.as_deref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(method))
            && self.operation.as_deref().map_or(operation != CONNECT, |wanted| wanted == operation)
            && self.key.as_deref().is_none_or(|pattern| glob(pattern.as_bytes(), key.as_bytes()))
            && self.credential.as_deref().is_none_or(|text| credential.contains(text))
    }
}

#[derive(Debug)]
struct Armed {
    spec: FaultSpec,
    matched: u64,
    fired: u64,
}

#[derive(Debug)]
struct State {
    armed: Vec<Armed>,
    random: u64,
    /// How often each action changed what a client met.
    injected: BTreeMap<&'static str, u64>,
}

/// The faults of one server; they can be changed while it runs.
#[derive(Debug)]
pub struct FaultPlan {
    state: Mutex<State>,
    /// How often all were disarmed.
    disarmed: watch::Sender<u64>,
}

/// What was disarmed by a moment, to wait for what is disarmed since.
#[derive(Debug)]
pub struct Disarmed(watch::Receiver<u64>);

impl Disarmed {
    /// Waits so long, or until all faults are disarmed.
    pub async fn or_after(mut self, wait: Duration) {
        // The plan may be gone: then nothing is disarmed any more.
        let disarmed = async {
            if self.0.changed().await.is_err() {
                std::future::pending().await
            }
        };
        let _ = tokio::time::timeout(wait, disarmed).await;
    }
}

impl FaultPlan {
    /// Arms faults; the same seed and the same requests in the same order meet the same faults.
    pub fn new(faults: Vec<FaultSpec>, seed: u64) -> Self {
        let armed = faults.into_iter().map(Armed::from).collect();
        let state = Mutex::new(State { armed, random: seed, injected: BTreeMap::new() });
        FaultPlan { state, disarmed: watch::Sender::default() }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Arms one more fault.
    pub fn add(&self, fault: FaultSpec) {
        self.state().armed.push(fault.into());
    }

    /// Disarms all; answers that wait for one are sent.
    pub fn clear(&self) {
        self.replace(Vec::new());
    }

    /// Arms these in place of all others, at once: no request meets neither. Answers that wait for
    /// one of the others are sent.
    pub fn replace(&self, faults: Vec<FaultSpec>) {
        self.state().armed = faults.into_iter().map(Armed::from).collect();
        self.disarmed.send_modify(|times| *times += 1);
    }

    /// From now on.
    pub fn disarmed(&self) -> Disarmed {
        Disarmed(self.disarmed.subscribe())
    }

    /// How often each armed fault has struck, in the order of arming.
    pub fn fired(&self) -> Vec<u64> {
        self.state().armed.iter().map(|armed| armed.fired).collect()
    }

    /// Counts a fault that changed what a client meets: one that struck a request to which it does
    /// not apply, such as a wrong range of an upload, is not counted.
    pub fn took_effect(&self, action: &Action) {
        *self.state().injected.entry(action.name()).or_default() += 1;
    }

    /// How often each action took effect since the start, by its name.
    pub fn injected(&self) -> BTreeMap<&'static str, u64> {
        self.state().injected.clone()
    }

    /// The faults that strike this request. Its credential is what it was signed with, as sent:
    /// headers and query.
    pub fn strike(
        &self,
        method: &str,
        operation: &str,
        key: &str,
        credential: &str,
    ) -> Vec<FaultSpec> {
        let mut state = self.state();
        let State { armed, random, .. } = &mut *state;
        let mut struck = Vec::new();
        let is_for = |fault: &&mut Armed| fault.spec.is_for(method, operation, key, credential);
        for fault in armed.iter_mut().filter(is_for) {
            fault.matched += 1;
            let (first, last) = fault.spec.nth;
            let counted = (first..=last).contains(&fault.matched);
            let chance = fault.spec.probability >= 1.0 || unit(random) < fault.spec.probability;
            if counted && chance && fault.fired < fault.spec.times {
                fault.fired += 1;
                struck.push(fault.spec.clone());
            }
        }
        struck
    }
}

impl From<FaultSpec> for Armed {
    fn from(spec: FaultSpec) -> Self {
        Armed { spec, matched: 0, fired: 0 }
    }
}

/// The next number of a splitmix64 sequence, in [0, 1).
fn unit(state: &mut u64) -> f64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}

/// Whether a text matches a pattern of `*` and `?`; `*` also spans slashes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, from));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == text[from] => {
                at += 1;
                from += 1;
            }
            _ => match star {
                // Let the last star take one byte more.
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    from = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (pattern, text) in
            [("*", ""), ("*", "a/b"), ("a*c", "abbc"), ("*.parquet", "d/x.parquet"), ("?b*", "ab")]
        {
            assert!(glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
        for (pattern, text) in [("", "a"), ("a*c", "abd"), ("?", ""), ("*.parquet", "x.parquet.gz")]
        {
            assert!(!glob(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
        }
    }

    #[test]
    fn nth_and_times_count_matching_requests_only() {
        let spec = "reset,op=GetObject,nth=2-4,times=2".parse().unwrap();
        let plan = FaultPlan::new(vec![spec], 0);
        let mut hits = Vec::new();
        for _ in 0..5 {
            assert!(plan.strike("PUT", "PutObject", "k", "").is_empty());
            hits.push(!plan.strike("GET", "GetObject", "k", "").is_empty());
        }
        assert_eq!(hits, [false, true, true, false, false]);
        assert_eq!(plan.fired(), [2]);
    }

    #[test]
    fn a_connection_is_struck_only_by_a_fault_that_names_it() {
        let plan = FaultPlan::new(vec!["reset".parse().unwrap()], 0);
        assert!(plan.strike("CONNECT", CONNECT, "", "").is_empty());
        plan.add("close,op=Connect".parse().unwrap());
        assert_eq!(plan.strike("CONNECT", CONNECT, "", "").len(), 1);
        assert_eq!(plan.strike("GET", "GetObject", "k", "").len(), 1);
    }

    #[tokio::test]
    async fn who_waits_goes_on_when_all_are_disarmed() {
        let plan = FaultPlan::new(Vec::new(), 0);
        let disarmed = plan.disarmed();
        plan.clear();
        disarmed.or_after(Duration::MAX).await;
    }

    #[test]
    fn chance_repeats_with_its_seed() {
        let run = |seed| -> Vec<bool> {
            let plan = FaultPlan::new(vec!["status=503,p=0.3".parse().unwrap()], seed);
            (0..1000).map(|_| !plan.strike("GET", "GetObject", "k", "").is_empty()).collect()
        };
        assert_eq!(run(7), run(7));
        assert_ne!(run(7), run(8));
        let hits = run(7).into_iter().filter(|hit| *hit).count();
        assert!((250..350).contains(&hits), "{hits} of 1000 at 0.3");
    }
}
