//! What goes wrong during one operation.

use crate::dice::Dice;

/// Longest silence of a server that a client has to bear, in milliseconds.
pub const STALL_TIMEOUT_MS: u64 = 400;

/// Most seconds that a body takes which comes slowly, but comes.
const SLOW_BODY_S: u64 = 3;

/// Every kind of fault that is drawn.
///
/// Left out are lies that no client can see through: bytes that are altered (TLS notices them), and
/// an object that is replaced by the server itself.
pub const KINDS: &[&str] = &[
    "status",
    "reset",
    "reset-upload",
    "close",
    "stall",
    "html",
    "error-200",
    "ignore-range",
    "empty-page",
    "latency",
    "lost-answer",
    "cut",
    "truncate",
    "lie-length",
    "wrong-range",
    "slow",
    "garbage",
    "cut-head",
    "hang",
    "bad-chunk",
    "cut-chunk",
    "two-lengths",
    "without",
];

/// Kinds behind which a request may have been carried out though its sender heard nothing of it,
/// or nothing that it could read.
const LOSSY: &[&str] = &[
    "latency",
    "lost-answer",
    "cut",
    "truncate",
    "lie-length",
    "slow",
    "garbage",
    "cut-head",
    "hang",
    "bad-chunk",
    "cut-chunk",
    "two-lengths",
    "without",
];

pub fn is_lossy(kind: &str) -> bool {
    LOSSY.contains(&kind)
}

/// What the answers are that are drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// Those of a store, which says what its answers are.
    Store,
    /// Those of a web server: a page of HTML in the place of an object is an object.
    Web,
    /// Whole objects of unknown length: an answer that is well framed is one, whatever it holds.
    Whole,
}

/// The faults of one operation, in the text form of the fakes: one stretch of its requests after
/// the other, so that at most one fault strikes a request.
/// `body_bytes` is the size of the largest body, which bounds how slow one may be.
pub fn draw(dice: &Dice, answers: Answers, body_bytes: usize) -> Vec<String> {
    let mut faults = Vec::new();
    let mut next = 1 + u64::from(dice.chance(0.2));
    for _ in 0..dice.whole(1, 4) {
        let for_good = dice.chance(0.06);
        let action = action(dice, answers, body_bytes, for_good);
        let chance = if dice.chance(0.7) { "1" } else { "0.5" };
        if for_good {
            faults.push(format!("{action},p={chance},nth={next}-"));
            break;
        }
        let last = next + dice.whole(0, 5);
        faults.push(format!("{action},p={chance},nth={next}-{last}"));
        next = last + dice.whole(1, 2);
    }
    if dice.chance(0.1) {
        let action = dice.pick(&["reset", "close", "stall=600"]);
        faults.push(format!("{action},op=Connect,times={}", dice.whole(1, 3)));
    }
    faults
}

/// A fault that stays is one whose error is soon there: each attempt of a slow one costs a timeout.
fn action(dice: &Dice, answers: Answers, body_bytes: usize, for_good: bool) -> String {
    loop {
        let kind = *dice.pick(KINDS);
        let is_slow = matches!(kind, "stall" | "latency" | "hang" | "slow" | "lie-length");
        // A page of its own is what an endless listing is made of.
        if for_good && (is_slow || kind == "empty-page") {
            continue;
        }
        let is_lie = match answers {
            Answers::Store => false,
            Answers::Web => matches!(kind, "html" | "error-200"),
            Answers::Whole => matches!(kind, "truncate" | "lie-length" | "html" | "error-200"),
        };
        if is_lie {
            continue;
        }
        return match kind {
            "status" => status(dice),
            "reset-upload" | "cut" | "truncate" | "hang" | "bad-chunk" | "cut-chunk" => {
                format!("{kind}={}", dice.between(1, 200_000) - 1)
            }
            "cut-head" => format!("{kind}={}", dice.whole(0, 200)),
            "stall" => format!("{kind}={}", dice.whole(1, 2 * STALL_TIMEOUT_MS)),
            "latency" => format!("{kind}={}", dice.between(1, 2 * STALL_TIMEOUT_MS)),
            "html" => format!("{kind}={}", dice.pick(&[200, 200, 403, 502, 503])),
            "lie-length" | "wrong-range" => {
                let sign = if dice.chance(0.5) { '+' } else { '-' };
                format!("{kind}={sign}{}", dice.between(1, 100_000))
            }
            "slow" => {
                let least = body_bytes as u64 / SLOW_BODY_S + 500;
                format!("{kind}={}", dice.between(least, 100 * least))
            }
            "two-lengths" => format!("{kind}={}", dice.between(1, 1000)),
            "without" => {
                let header = dice.pick(&[
                    "ETag",
                    "Content-Range",
                    "Content-Length",
                    "Last-Modified",
                    "Content-Type",
                ]);
                format!("{kind}={header}")
            }
            _ => kind.to_string(),
        };
    }
}

fn status(dice: &Dice) -> String {
    let status = dice.pick(&[500, 500, 502, 503, 503, 503, 504, 429, 408, 403, 401, 400, 501]);
    match dice.whole(0, 5) {
        0 => format!("status={status},retry-after=0"),
        1 => format!("status={status},retry-after=2"),
        _ => format!("status={status}"),
    }
}
