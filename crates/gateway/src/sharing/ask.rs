//! What of a request is judged. Pure.

use crate::acl::Requester;
use crate::auth::Caller;
use crate::exchange::Exchange;
use http::{Extensions, HeaderMap, Uri};
use std::net::IpAddr;
use std::sync::Arc;

/// Who sent a request, and its head: the same of all that is asked about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asker<'a> {
    pub who: Requester<'a>,
    pub headers: &'a HeaderMap,
    pub uri: &'a Uri,
    /// From which address it came.
    pub peer: Option<IpAddr>,
}

/// A request that is to be judged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub operation: &'a str,
    /// What is asked for in a policy's words, where that is not the operation itself.
    pub action: Option<&'a str>,
    pub who: Requester<'a>,
    pub bucket: &'a str,
    pub key: Option<&'a str>,
    /// The version that is meant, where one is named.
    pub version: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub uri: &'a Uri,
    /// From which address it came.
    pub peer: Option<IpAddr>,
    /// It is about the source of a copy.
    pub is_source: bool,
}

impl<'a> Asker<'a> {
    /// The sender of a request that was let in, and has this head.
    pub fn of(
        caller: &'a Caller,
        (headers, uri, extensions): (&'a HeaderMap, &'a Uri, &Extensions),
    ) -> Self {
        let exchange = extensions.get::<Arc<Exchange>>();
        let peer = exchange.map(|exchange| exchange.client());
        Asker { who: caller.id.as_deref(), headers, uri, peer }
    }

    /// An operation of theirs on a bucket, or on a version of an object in it.
    pub fn asks(
        self,
        operation: &'a str,
        bucket: &'a str,
        key: Option<&'a str>,
        version: Option<&'a str>,
    ) -> Ask<'a> {
        let Asker { who, headers, uri, peer } = self;
        let (action, is_source) = (None, false);
        Ask { operation, action, who, bucket, key, version, headers, uri, peer, is_source }
    }
}
