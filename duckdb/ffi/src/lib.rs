//! The C treaty.
