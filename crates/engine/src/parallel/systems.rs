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
}

/// The file systems of extensions that can be wrapped by the extension's name. A handle of httpfs
/// keeps what it learns from an answer (the version to pin to, a whole download where the server
/// knows no ranges) without a lock; another handle costs it no request. azure asks its SDK, which
/// is safe to be asked at once, and each handle costs it a HEAD.
pub const WRAP_SYSTEMS: &[WrapSystem] = &[
    WrapSystem { extension: "httpfs", file_system: "S3FileSystem", shares_handle: false },
    WrapSystem { extension: "httpfs", file_system: "HTTPFileSystem", shares_handle: false },
    WrapSystem { extension: "httpfs", file_system: "HuggingFaceFileSystem", shares_handle: false },
    WrapSystem {
        extension: "azure",
        file_system: "AzureBlobStorageFileSystem",
        shares_handle: true,
    },
    WrapSystem {
        extension: "azure",
        file_system: "AzureDfsStorageFileSystem",
        shares_handle: true,
    },
];

/// Whether requests at once may share one open file of this system.
pub(crate) fn shares_handle(file_system: &str) -> bool {
    WRAP_SYSTEMS.iter().any(|row| row.file_system == file_system && row.shares_handle)
}
