//! HTTP/1.1 as small as a fake needs it, with every byte on the wire under control.

pub mod body;
pub mod head;
pub mod response;
pub mod wire;

pub use body::BodyReader;
pub use head::{Framing, Headers, Query, Request};
pub use response::{Frame, Response};
pub use wire::Wire;
