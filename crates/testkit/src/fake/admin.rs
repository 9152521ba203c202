//! `/_penstock/...`: what the bench and tests in other languages ask and tell a fake.

use super::fault::FaultSpec;
use super::http::{Request, Response};
use super::server::Server;
use bytes::Bytes;

/// Requests told by `/_penstock/requests` where `n` is not given.
const REQUESTS_DEFAULT: usize = 1000;

/// Whether a path belongs to the administration.
pub fn is_admin(path: &str) -> bool {
    path.starts_with("/_penstock/")
}

/// Answers an administration request.
pub fn answer(server: &Server, request: &Request, body: &[Bytes]) -> Response {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/_penstock/stats") => json(server.stats.to_json().to_string()),
        ("GET", "/_penstock/requests") => {
            let most = request.query.get("n").and_then(|text| text.parse().ok());
            json(server.stats.requests_json(most.unwrap_or(REQUESTS_DEFAULT)).to_string())
        }
        ("POST", "/_penstock/reset") => {
            server.stats.reset();
            Response::new(204)
        }
        ("POST", "/_penstock/faults") => with_faults(body, |faults| {
            faults.into_iter().for_each(|fault| server.faults.add(fault));
        }),
        ("PUT", "/_penstock/faults") => with_faults(body, |faults| server.faults.replace(faults)),
        ("GET", "/_penstock/faults") => {
            json(serde_json::Value::from(server.faults.fired()).to_string())
        }
        ("DELETE", "/_penstock/faults") => {
            server.faults.clear();
            Response::new(204)
        }
        _ => Response::text(404, "text/plain", "no such administration request\n".to_string()),
    }
}

fn json(text: String) -> Response {
    Response::text(200, "application/json", text + "\n")
}

/// Does something with the faults that a body lists, if each of them can be read.
fn with_faults(body: &[Bytes], act: impl FnOnce(Vec<FaultSpec>)) -> Response {
    let text = String::from_utf8_lossy(&body.concat()).into_owned();
    let mut faults = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.parse() {
            Ok(fault) => faults.push(fault),
            Err(error) => return Response::text(400, "text/plain", format!("{error}\n")),
        }
    }
    act(faults);
    Response::new(204)
}
