//! What is known of the file systems that can be wrapped. Pure.

/// A file system of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrapSystem {
    /// The extension that brings it.
    pub extension: &'static str,
    /// What its `GetName()` says.
    pub file_system: &'static str,
    /// Whether one file, opened for parallel access, may be read by several threads at once, with
    /// nothing in it that they write without a lock. Where this is not known each request has its
    /// own.
    pub shares_handle: bool,
    /// Whether its servers may know no ranges, so that the first read of a file has to be alone:
    /// httpfs then fetches the file whole, and keeps a lock in the handle of whoever waited for
    /// that until it is closed. Others that wait too would wait for ever for a handle of this read.
    pub may_ignore_ranges: bool,
}

/// The file systems of extensions that can be wrapped by the extension's name. A handle of httpfs
/// keeps what it learns from an answer (the version to pin to, a whole download where the server
/// knows no ranges) without a lock; another handle costs it no request. azure asks its SDK, which
/// is safe to be asked at once, and each handle costs it a HEAD.
pub const WRAP_SYSTEMS: &[WrapSystem] = &[
    WrapSystem {
        extension: "httpfs",
        file_system: "S3FileSystem",
        shares_handle: false,
        may_ignore_ranges: false,
    },
    WrapSystem {
        extension: "httpfs",
        file_system: "HTTPFileSystem",
        shares_handle: false,
        may_ignore_ranges: true,
    },
    WrapSystem {
        extension: "httpfs",
        file_system: "HuggingFaceFileSystem",
        shares_handle: false,
        may_ignore_ranges: true,
    },
    WrapSystem {
        extension: "azure",
        file_system: "AzureBlobStorageFileSystem",
        shares_handle: true,
        may_ignore_ranges: false,
    },
    WrapSystem {
        extension: "azure",
        file_system: "AzureDfsStorageFileSystem",
        shares_handle: true,
        may_ignore_ranges: false,
    },
];

fn row(file_system: &str) -> Option<&'static WrapSystem> {
    WRAP_SYSTEMS.iter().find(|row| row.file_system == file_system)
}

/// Whether requests at once may share one open file of this system.
pub(crate) fn shares_handle(file_system: &str) -> bool {
    row(file_system).is_some_and(|row| row.shares_handle)
}

/// Whether the first read of a file has to be alone; of a system that is not known it has.
pub(crate) fn first_read_alone(file_system: &str) -> bool {
    row(file_system).is_none_or(|row| row.may_ignore_ranges)
}
