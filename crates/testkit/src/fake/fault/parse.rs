//! The text form of a fault.

use super::{Action, FaultSpec};
use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result};
use std::str::FromStr;
use std::time::Duration;

/// The reference of the text form, printed by `penstock-fake --help`.
pub const HELP: &str = "\
A fault is ACTION[=VALUE] and filters, separated by commas:

  status=CODE          answer this status; nothing takes effect (retry-after=S, code=NAME)
  reset                cut the connection before the answer; nothing takes effect
  reset-upload=N       cut it after N bytes of the request's body; nothing takes effect
  close                close it in order before the answer; nothing takes effect
  stall[=MS]           say nothing for so long (60000), then cut; nothing takes effect
  html[=CODE]          answer 200, or this status, with a page of HTML
  error-200            answer 200 with an error document
  ignore-range         answer 200 and the whole object
  replace              replace the object by another of the same size, then serve
  empty-page           answer a page of a listing that is empty and not the last
  latency=MS           wait before the answer, or until the faults are disarmed
  lost-answer          do it, then cut the connection instead of answering
  cut=N                true head, then cut the connection after N bytes of the body
  truncate=N           well-framed body of N bytes only
  lie-length=+N|-N     Content-Length wrong by N: after +N the client waits for bytes that
                       never come, after -N surplus bytes precede the next answer
  wrong-range=+N|-N    Content-Range wrong by N
  slow=BYTES_PER_S     send the body slowly
  corrupt=N            flip the bits of byte N of the body
  garbage              do it, then answer bytes that are no HTTP
  cut-head=N           do it, then cut the connection after N bytes of the head
  hang=N               true head, then silence after N bytes of the body
  bad-chunk=N          body in chunks; the size of the chunk after N bytes is no number
  cut-chunk=N          body in chunks; the connection is closed in order after N bytes
  two-lengths=N        Content-Length twice, the second larger by N
  without=HEADER       leave a header line of the answer out

  method=GET           only this method
  op=GetObject         only this operation, as /_penstock/stats names it; op=Connect strikes a
                       new connection (reset, close or stall), which no other fault does
  key=GLOB             only keys that match (* and ?; * spans slashes)
  as=TEXT              only requests whose credentials contain this, in a header or the query
  nth=N | A-B | A-     only these of the matching requests, from 1
  times=N              at most so often
  p=0.1                of those that remain, each with this chance (see --seed)
";

const NAMES: &[&str] = &[
    "status",
    "reset",
    "reset-upload",
    "close",
    "stall",
    "html",
    "error-200",
    "ignore-range",
    "replace",
    "empty-page",
    "latency",
    "lost-answer",
    "cut",
    "truncate",
    "lie-length",
    "wrong-range",
    "slow",
    "corrupt",
    "garbage",
    "cut-head",
    "hang",
    "bad-chunk",
    "cut-chunk",
    "two-lengths",
    "without",
    "retry-after",
    "code",
    "method",
    "op",
    "key",
    "as",
    "nth",
    "times",
    "p",
];

const STALL_DEFAULT_MS: u64 = 60_000;

impl FromStr for FaultSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(',').map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (name.trim(), value.trim())
        });
        let (name, value) = parts.next().unwrap_or(("", ""));
        let mut fault = FaultSpec::new(action(text, name, value)?);
        for (name, value) in parts {
            filter(&mut fault, text, name, value)?;
        }
        Ok(fault)
    }
}

fn wrong(text: &str, why: impl std::fmt::Display) -> Error {
    Error::new(Kind::Invalid, format!("fault `{text}`: {why}"))
}

fn unknown(text: &str, name: &str) -> Error {
    let error = wrong(text, format!("unknown name `{name}`"));
    match nearest(name, NAMES.iter().copied()) {
        Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
        None => error.with_hint("`penstock-fake --help` lists them"),
    }
}

fn number<T: FromStr>(text: &str, name: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| wrong(text, format!("`{name}` takes a number, not `{value}`")))
}

fn action(text: &str, name: &str, value: &str) -> Result<Action> {
    let millis = |value: &str| number(text, name, value).map(Duration::from_millis);
    Ok(match name {
        "status" => Action::Status(number(text, name, value)?),
        "reset" => Action::Reset,
        "reset-upload" => Action::ResetUpload(number(text, name, value)?),
        "close" => Action::Close,
        "stall" if value.is_empty() => Action::Stall(Duration::from_millis(STALL_DEFAULT_MS)),
        "stall" => Action::Stall(millis(value)?),
        "html" if value.is_empty() => Action::Html(200),
        "html" => Action::Html(number(text, name, value)?),
        "error-200" => Action::ErrorIn200,
        "ignore-range" => Action::IgnoreRange,
        "replace" => Action::Replace,
        "empty-page" => Action::EmptyPage,
        "latency" => Action::Latency(millis(value)?),
        "lost-answer" => Action::LostAnswer,
        "cut" => Action::Cut(number(text, name, value)?),
        "truncate" => Action::Truncate(number(text, name, value)?),
        "lie-length" => Action::LieLength(number(text, name, value)?),
        "wrong-range" => Action::WrongRange(number(text, name, value)?),
        "slow" => Action::Slow(number::<u64>(text, name, value)?.max(1)),
        "corrupt" => Action::Corrupt(number(text, name, value)?),
        "garbage" => Action::Garbage,
        "cut-head" => Action::CutHead(number(text, name, value)?),
        "hang" => Action::Hang(number(text, name, value)?),
        "bad-chunk" => Action::BadChunk(number(text, name, value)?),
        "cut-chunk" => Action::CutChunk(number(text, name, value)?),
        "two-lengths" => Action::TwoLengths(number(text, name, value)?),
        "without" => Action::Without(value.to_string()),
        known if NAMES.contains(&known) => {
            return Err(wrong(text, format!("begins with the filter `{known}`, not an action")));
        }
        _ => return Err(unknown(text, name)),
    })
}

fn filter(fault: &mut FaultSpec, text: &str, name: &str, value: &str) -> Result<()> {
    match name {
        "retry-after" => fault.retry_after_s = Some(number(text, name, value)?),
        "code" => fault.code = Some(value.to_string()),
        "method" => fault.method = Some(value.to_string()),
        "op" => fault.operation = Some(value.to_string()),
        "key" => fault.key = Some(value.to_string()),
        "as" => fault.credential = Some(value.to_string()),
        "times" => fault.times = number(text, name, value)?,
        "p" => fault.probability = number(text, name, value)?,
        "nth" => {
            fault.nth = match value.split_once('-') {
                None => (number(text, name, value)?, number(text, name, value)?),
                Some((first, "")) => (number(text, name, first)?, u64::MAX),
                Some((first, last)) => (number(text, name, first)?, number(text, name, last)?),
            }
        }
        known if NAMES.contains(&known) => {
            return Err(wrong(text, format!("has a second action `{known}`")));
        }
        _ => return Err(unknown(text, name)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_name_is_in_the_help_and_parses() {
        for name in NAMES {
            assert!(HELP.contains(name), "{name} is not in the help");
            let as_action = format!("{name}=5").parse::<FaultSpec>();
            let as_filter = format!("reset,{name}=5").parse::<FaultSpec>();
            assert!(as_action.is_ok() != as_filter.is_ok(), "{name} is either action or filter");
        }
    }

    #[test]
    fn whole_line() {
        let fault: FaultSpec = "status=503,op=GetObject,key=a*,nth=2-,p=0.5,retry-after=1,times=3"
            .parse()
            .expect("a good line");
        assert_eq!(fault.action, Action::Status(503));
        assert_eq!((fault.nth, fault.times, fault.probability), ((2, u64::MAX), 3, 0.5));
        assert_eq!((fault.retry_after_s, fault.key.as_deref()), (Some(1), Some("a*")));
    }

    #[test]
    fn slips_are_told() {
        let error = "statsu=503".parse::<FaultSpec>().unwrap_err();
        assert_eq!(error.hint(), Some("Did you mean `status`?"));
        for text in ["", "status", "status=x", "op=GetObject", "reset,stall=5", "cut=-1"] {
            assert_eq!(text.parse::<FaultSpec>().unwrap_err().kind(), Kind::Invalid, "{text}");
        }
    }

    proptest! {
        #[test]
        fn parsing_never_panics(text in "[a-z=,0-9.+*-]{0,40}") {
            let _ = text.parse::<FaultSpec>();
        }
    }
}
