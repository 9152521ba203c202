//! `penstock-fake`: a fake S3 or Azure Blob server on the command line.

use penstock_base::nearest::nearest;
use penstock_base::{Error, Kind, Result};
use penstock_testkit::fake::fault::HELP;
use penstock_testkit::fake::server::{Server, runtime};
use penstock_testkit::fake::{FakeOptions, Protocol};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

const USAGE: &str = "\
penstock-fake s3|azure [--listen HOST:PORT] [options]

A fake S3 or Azure Blob server for tests and benchmarks. Buckets and containers
appear on first use, but for names that begin with `missing`.

  --listen HOST:PORT       address; port 0 takes a free one (127.0.0.1:0)
  --dir DIR                keep objects in a directory instead of in memory
  --latency-ms N           round trip before the first byte of each answer
  --connect-latency-ms N   handshake of each connection, from when it is accepted
  --bandwidth-mbit N       shared by all connections, each direction by itself
  --bandwidth-up-mbit N    the same from clients to here, where it differs
  --fault SPEC             what goes wrong; may be given again (below)
  --seed N                 seed of the faults' chance (1)
  --access-key KEY         S3 access key, or Azure account (test; devstoreaccount1)
  --secret-key KEY         S3 secret key, or Azure account key (test; the emulator's)
  --session-token TOKEN    S3: requests must carry this token
  --bearer-token TOKEN     Azure, and S3 with --google: requests with this token are let in
  --google                 S3: speak it as Google's XML API does
  --without-checksums      S3: refuse headers of checksums, as older services do
  --versioning             Azure: keep the versions of blobs, as accounts do that are set so
  --hierarchical           Azure: list as accounts with a hierarchical namespace do
  --anonymous              let unsigned requests in
  --clock-offset-s N       seconds by which the server's clock is ahead
  --digests                make MD5 (and CRC64) of every body, as the real services do;
                           about one CPU second per GB
  --part-bytes-min N       S3: smallest part that is not the last (5242880)
  --threads N              worker threads (1, which serves 10 GB/s; more cost more CPU per GB)
  --quiet                  print nothing but the address

On the same port: GET /_penstock/stats, GET /_penstock/requests?n=N,
POST /_penstock/reset, POST /_penstock/faults (one a line), DELETE /_penstock/faults;
PUT /_penstock/faults arms these in place of all others.
";

const FLAGS: &[&str] = &[
    "--listen",
    "--dir",
    "--latency-ms",
    "--connect-latency-ms",
    "--bandwidth-mbit",
    "--bandwidth-up-mbit",
    "--fault",
    "--seed",
    "--access-key",
    "--secret-key",
    "--session-token",
    "--bearer-token",
    "--google",
    "--without-checksums",
    "--versioning",
    "--hierarchical",
    "--anonymous",
    "--clock-offset-s",
    "--digests",
    "--part-bytes-min",
    "--threads",
    "--quiet",
    "--help",
];

struct Command {
    protocol: Protocol,
    options: FakeOptions,
    quiet: bool,
}

fn invalid(message: String) -> Error {
    Error::new(Kind::Invalid, message).with_hint("`penstock-fake --help` tells more")
}

fn parse<T: FromStr>(flag: &str, value: &str) -> Result<T> {
    value.parse().map_err(|_| invalid(format!("{flag} does not take `{value}`")))
}

fn parse_command(arguments: &[String]) -> Result<Command> {
    let (protocol, options) = match arguments.first().map(String::as_str) {
        Some("s3") => (Protocol::S3, FakeOptions::s3()),
        Some("azure") => (Protocol::Azure, FakeOptions::azure()),
        _ => return Err(invalid("the first argument is `s3` or `azure`".to_string())),
    };
    let mut command = Command { protocol, options, quiet: false };
    command.options.threads = 1;
    let mut rest = arguments[1..].iter();
    while let Some(flag) = rest.next() {
        let (flag, inline) = match flag.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_string())),
            None => (flag.as_str(), None),
        };
        match flag {
            "--anonymous" => command.options.anonymous = true,
            "--digests" => command.options.digests = true,
            "--google" => command.options.google = true,
            "--without-checksums" => command.options.without_checksums = true,
            "--versioning" => command.options.versioning = true,
            "--hierarchical" => command.options.hierarchical = true,
            "--quiet" => command.quiet = true,
            flag if FLAGS.contains(&flag) => {
                let value = inline.or_else(|| rest.next().cloned());
                let value = value.ok_or_else(|| invalid(format!("{flag} takes a value")))?;
                set(&mut command.options, flag, &value)?;
            }
            flag => {
                let error = Error::new(Kind::Invalid, format!("unknown flag `{flag}`"));
                return Err(match nearest(flag, FLAGS.iter().copied()) {
                    Some(near) => error.with_hint(format!("Did you mean `{near}`?")),
                    None => error.with_hint("`penstock-fake --help` lists them"),
                });
            }
        }
    }
    Ok(command)
}

fn set(options: &mut FakeOptions, flag: &str, value: &str) -> Result<()> {
    let text = value.to_string();
    match flag {
        "--listen" => options.listen = text,
        "--dir" => options.dir = Some(text.into()),
        "--latency-ms" => options.link.latency = millis(flag, value)?,
        "--connect-latency-ms" => options.link.connect_latency = millis(flag, value)?,
        "--bandwidth-mbit" => {
            let bits_per_s = mbit(flag, value)?;
            options.link.bits_per_s_down = bits_per_s;
            options.link.bits_per_s_up = options.link.bits_per_s_up.or(bits_per_s);
        }
        "--bandwidth-up-mbit" => options.link.bits_per_s_up = mbit(flag, value)?,
        "--fault" => options.faults.push(value.parse()?),
        "--seed" => options.seed = parse(flag, value)?,
        "--access-key" => options.account = text,
        "--secret-key" => options.key = text,
        "--session-token" => options.session_token = Some(text),
        "--bearer-token" => options.bearer_token = Some(text),
        "--clock-offset-s" => options.clock_offset_s = parse(flag, value)?,
        "--part-bytes-min" => options.part_bytes_min = parse(flag, value)?,
        "--threads" => options.threads = parse(flag, value)?,
        flag => unreachable!("{flag} is in the table, so it is in this match"),
    }
    Ok(())
}

fn millis(flag: &str, value: &str) -> Result<Duration> {
    let millis: f64 = parse(flag, value)?;
    Duration::try_from_secs_f64(millis / 1000.0)
        .map_err(|_| invalid(format!("{flag} does not take `{value}`")))
}

/// Megabits a second as bits a second; 0 is no limit.
fn mbit(flag: &str, value: &str) -> Result<Option<f64>> {
    let mbit: f64 = parse(flag, value)?;
    if !mbit.is_finite() || mbit < 0.0 {
        return Err(invalid(format!("{flag} does not take `{value}`")));
    }
    Ok((mbit > 0.0).then_some(mbit * 1e6))
}

fn run(command: Command) -> Result<()> {
    let quiet = command.quiet;
    let name = match command.protocol {
        Protocol::S3 => "s3",
        Protocol::Azure => "azure",
    };
    let threads = command.options.threads;
    let server = Arc::new(Server::new(command.protocol, command.options)?);
    runtime(threads).block_on(async move {
        let listener = server.bind().await?;
        let address = listener.local_addr().map_err(|error| {
            Error::new(Kind::Internal, "a bound socket has no address").with_source(error)
        })?;
        say(&format!("penstock-fake {name} listening on http://{address}"));
        if !quiet {
            say("statistics at /_penstock/stats; Ctrl-C ends it");
        }
        server.run(listener).await;
        Ok(())
    })
}

/// One line on standard output, at once: scripts wait for it.
fn say(line: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    // A closed standard output is no reason to end the server.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        say(&format!("{USAGE}\n{HELP}"));
        return ExitCode::SUCCESS;
    }
    match parse_command(&arguments).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("penstock-fake: {error}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &str) -> Result<Command> {
        let arguments: Vec<String> = line.split_ascii_whitespace().map(str::to_string).collect();
        parse_command(&arguments)
    }

    #[test]
    fn flags_are_all_in_the_usage() {
        for flag in FLAGS.iter().filter(|flag| **flag != "--help") {
            assert!(USAGE.contains(&format!("  {flag}")), "{flag} is not in the usage");
        }
    }

    #[test]
    fn a_whole_line() {
        let parsed = command(
            "azure --listen 127.0.0.1:0 --latency-ms 30 --bandwidth-mbit 150 \
             --bandwidth-up-mbit=37 --fault status=503,p=0.1 --seed 9 --quiet",
        )
        .unwrap();
        assert_eq!(parsed.options.link.latency, Duration::from_millis(30));
        assert_eq!(parsed.options.link.bits_per_s_up, Some(37e6));
        assert_eq!(parsed.options.link.bits_per_s_down, Some(150e6));
        assert_eq!((parsed.options.faults.len(), parsed.options.seed), (1, 9));
        assert_eq!(parsed.options.account, "devstoreaccount1");
    }

    #[test]
    fn slips_are_told() {
        let told = |line| command(line).err().map(|error| error.to_string()).unwrap();
        assert!(told("s3 --latencyms 3").contains("--latency-ms"));
        assert!(told("s3 --listen").contains("takes a value"));
        assert!(told("gcs").contains("s3"));
        assert!(told("s3 --latency-ms x").contains("does not take"));
    }
}
