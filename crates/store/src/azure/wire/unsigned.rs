//! What the environment's credentials are refused is read without them; see [`crate::unsigned`].

use super::Wire;
use crate::answer::text_header;
use crate::{HttpResponse, Payload};
use http::request::Parts;
use penstock_base::{Kind, Result};

/// Codes by which the service hides from strangers what there is, or takes no such token.
const HIDDEN: &[&str] =
    &["ResourceNotFound", "PublicAccessNotPermitted", "InvalidAuthenticationInfo"];

impl Wire {
    pub(super) async fn read(&self, parts: Parts) -> Result<HttpResponse> {
        let is_signed = self.reads_unsigned.begins_signed();
        let first = self.send_read(parts.clone(), is_signed).await;
        if !is_denied(&first) {
            return first;
        }
        let second = self.send_read(parts, !is_signed).await;
        self.reads_unsigned.settle(is_signed, (first, second), is_denied)
    }

    async fn send_read(&self, mut parts: Parts, is_signed: bool) -> Result<HttpResponse> {
        if is_signed {
            self.credentials.sign(&mut parts).await?;
        }
        self.client.send(parts, Payload::default()).await
    }
}

fn is_denied(answer: &Result<HttpResponse>) -> bool {
    match answer {
        Ok(answer) => {
            let code = text_header(&answer.headers, "x-ms-error-code").unwrap_or_default();
            matches!(answer.status, 401 | 403) || HIDDEN.contains(&code.as_str())
        }
        Err(error) => error.kind() == Kind::Denied,
    }
}
