//! The Azure Blob dialect.

use super::exchange::Target;
use super::http::{BodyReader, Request, Response};
use super::refusal::Refusal;
use super::server::Server;
use std::io;

/// Names the operation.
pub fn target(_request: &Request) -> Target {
    Target::default()
}

/// Serves a request.
///
/// # Errors
/// When the connection or the disk breaks.
pub async fn serve(
    _server: &Server,
    _request: &Request,
    _target: &Target,
    _body: &mut BodyReader<'_>,
    _empty_page: bool,
) -> io::Result<Response> {
    Ok(Refusal::new(501, "NotImplemented", "x").azure())
}
