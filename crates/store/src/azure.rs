//! Azure Blob Storage, and Data Lake Storage (ADLS Gen2) through its Blob endpoint.
pub mod address;
mod block;
mod config;
mod connection_string;
mod credentials;
mod endpoint;
mod metadata;
