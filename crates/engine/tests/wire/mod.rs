//! Where an engine finds the S3 fake, or what stands before it.

#![allow(clippy::unwrap_used)]

pub mod relay;

use penstock_engine::{Engine, Location};
use std::net::SocketAddr;

/// An object at this address, by the fake's own credentials.
pub fn at(engine: &Engine, address: SocketAddr, url: &str) -> Location {
    let endpoint = address.to_string();
    let options = [
        ("secret_type", "s3"),
        ("key_id", "test"),
        ("secret", "test"),
        ("region", "us-east-1"),
        ("endpoint", &endpoint),
        ("url_style", "path"),
        ("use_ssl", "false"),
    ]
    .map(|(name, value)| (name.to_string(), value.to_string()));
    engine.locate(url, &options).unwrap()
}
