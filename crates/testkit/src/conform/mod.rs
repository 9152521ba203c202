//! Conformance suites: one exam for every implementation of a contract.

pub mod store;
