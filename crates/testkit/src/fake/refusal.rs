//! A request that a service does not grant: one shape, two renderings.

use super::http::Response;
use super::xml::Writer;
use std::borrow::Cow;
use std::io;

/// Why a request is not granted.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// The service's code.
    pub code: Cow<'static, str>,
    /// A sentence.
    pub message: String,
    /// More header lines.
    pub headers: Vec<(&'static str, String)>,
}

impl Refusal {
    /// A refusal with a status, a code and a sentence.
    pub fn new(
        status: u16,
        code: impl Into<Cow<'static, str>>,
        message: impl Into<String>,
    ) -> Self {
        Refusal { status, code: code.into(), message: message.into(), headers: Vec::new() }
    }

    /// Adds a header line.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// As S3 tells it.
    pub fn s3(&self, resource: &str) -> Response {
        let mut xml = Writer::default();
        xml.open("Error", "")
            .text("Code", &self.code)
            .text("Message", &self.message)
            .text("Resource", resource)
            .text("RequestId", "0000000000000000")
            .close("Error");
        self.finish(Response::text(self.status, "application/xml", xml.finish()))
    }

    /// As Azure tells it.
    pub fn azure(&self) -> Response {
        let mut xml = Writer::default();
        xml.open("Error", "")
            .text("Code", &self.code)
            .text("Message", &self.message)
            .close("Error");
        let response = Response::text(self.status, "application/xml", xml.finish());
        self.finish(response).with("x-ms-error-code", self.code.clone())
    }

    fn finish(&self, mut response: Response) -> Response {
        if matches!(self.status, 204 | 304) {
            response.body = super::data::Data::default();
        }
        for (name, value) in &self.headers {
            response = response.with(*name, value.clone());
        }
        response
    }
}

/// Why a request got no granted answer.
#[derive(Debug)]
pub enum Trouble {
    /// The service says no.
    Refused(Refusal),
    /// The connection or the disk broke.
    Broken(io::Error),
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Trouble::Refused(refusal)
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Broken(error)
    }
}

/// What a handler returns.
pub type Served = Result<Response, Trouble>;
