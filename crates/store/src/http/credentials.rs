//! Lets the signing crates use our client, files, environment and processes.

use crate::http::told;
use crate::{HttpClient, Payload};
use bytes::Bytes;
use penstock_base::redact::is_metadata_host;
use penstock_base::{Error, Kind, Retry};
use reqsign_core::{CommandExecute, CommandOutput, Context, FileRead, HttpSend, OsEnv};
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Longest answer of a token service.
const TOKEN_ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest wait for instance metadata: one hop away, or absent.
const METADATA_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for any other token service.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest run of a credential process or command line tool.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// How often a running command is looked at.
const COMMAND_POLL: Duration = Duration::from_millis(20);

/// The world as the signing crates see it: requests for tokens go through `client`.
pub fn credential_context(client: &HttpClient) -> Context {
    Context::new()
        .with_http_send(TokenSend(client.clone()))
        .with_file_read(TokioFileRead)
        .with_command_execute(Commands)
        .with_env(OsEnv)
}

/// Turns an error of the signing crates into ours; it says which credentials were looked for.
pub fn credential_error(what: &str, error: &reqsign_core::Error) -> Error {
    let cause = told(error);
    let message = format!("no usable {what}: {cause}");
    match error.kind() {
        reqsign_core::ErrorKind::RateLimited => {
            Error::new(Kind::Throttled, message).with_retry(Retry::BackOff)
        }
        // A token service that is not there or talks nonsense is rather named wrongly than busy.
        _ if error.is_retryable() => {
            Error::new(Kind::Unavailable, message).with_retry(Retry::Briefly)
        }
        _ => Error::new(Kind::Denied, message),
    }
}

#[derive(Debug)]
struct TokenSend(HttpClient);

impl HttpSend for TokenSend {
    async fn http_send(
        &self,
        request: http::Request<Bytes>,
    ) -> reqsign_core::Result<http::Response<Bytes>> {
        let (mut parts, body) = request.into_parts();
        // Whatever such a request carries lets others in: no log has it.
        parts.headers.values_mut().for_each(|value| value.set_sensitive(true));
        let failed = |error: Error| {
            let retryable = error.retry() != Retry::Never;
            reqsign_core::Error::unexpected(error.to_string()).set_retryable(retryable)
        };
        let is_metadata = parts.uri.host().is_some_and(is_metadata_host);
        let limit = if is_metadata { METADATA_TIMEOUT } else { TOKEN_TIMEOUT };
        let send = self.0.send(parts, Payload::from(body));
        let mut answer = tokio::time::timeout(limit, send)
            .await
            .map_err(|_| reqsign_core::Error::unexpected("the token service did not answer"))?
            .map_err(failed)?;
        let bytes = answer.body.read_to_bytes(TOKEN_ANSWER_BYTES_MAX).await.map_err(failed)?;
        let mut response = http::Response::new(bytes);
        *response.status_mut() = http::StatusCode::from_u16(answer.status)
            .map_err(|error| reqsign_core::Error::unexpected(error.to_string()))?;
        *response.headers_mut() = answer.headers;
        Ok(response)
    }
}

#[derive(Debug)]
struct TokioFileRead;

impl FileRead for TokioFileRead {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        Ok(tokio::fs::read(path).await?)
    }
}

/// Runs credential processes without a handler for SIGCHLD, which belongs to the host program.
#[derive(Debug)]
struct Commands;

impl CommandExecute for Commands {
    async fn command_execute<'a>(
        &'a self,
        program: &'a str,
        args: &'a [&'a str],
    ) -> reqsign_core::Result<CommandOutput> {
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let message = format!("`{program}` cannot be started, is it installed? {error}");
                reqsign_core::Error::unexpected(message)
            })?;
        let mut running = Running(child);
        let stdout = running.0.stdout.take().map(read_all);
        let stderr = running.0.stderr.take().map(read_all);
        let outcome = tokio::time::timeout(COMMAND_TIMEOUT, async {
            let stdout = joined(stdout).await?;
            let stderr = joined(stderr).await?;
            while running.0.try_wait()?.is_none() {
                tokio::time::sleep(COMMAND_POLL).await;
            }
            let status = running.0.wait()?.code().unwrap_or(-1);
            Ok(CommandOutput { status, stdout, stderr })
        });
        outcome.await.unwrap_or_else(|_| {
            let seconds = COMMAND_TIMEOUT.as_secs();
            let message = format!("`{program}` did not end within {seconds} s");
            Err(reqsign_core::Error::unexpected(message))
        })
    }
}

/// A child that does not outlive the wait for it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Killing and reaping a child that has ended already does nothing.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

type Reading = JoinHandle<std::io::Result<Vec<u8>>>;

fn read_all(mut pipe: impl Read + Send + 'static) -> Reading {
    tokio::task::spawn_blocking(move || {
        let mut bytes = Vec::new();
        pipe.read_to_end(&mut bytes)?;
        Ok(bytes)
    })
}

async fn joined(reading: Option<Reading>) -> reqsign_core::Result<Vec<u8>> {
    match reading {
        Some(reading) => Ok(reading
            .await
            .map_err(|error| reqsign_core::Error::unexpected(error.to_string()))??),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tool_that_is_not_there_is_named() {
        let error = Commands.command_execute("no-such-tool", &[]).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("`no-such-tool` cannot be started, is it installed?"), "{text}");
    }
}
