//! What is known of the file systems that can be wrapped. Pure.

/// A file system of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrapSystem {
    /// The extension that brings it.
    pub extension: &'static str,
    /// What its `GetName()` says.
    pub file_system: &'static str,
    /// Whether one file, opened for parallel access, may be read by several threads at once without
    /// their waiting for each other. Where this is not known each request gets a file of its own.
    pub shares_handle: bool,
}

/// The file systems of extensions that can be wrapped by the extension's name. httpfs keeps a
/// client for each request of a handle opened for parallel access and skips its buffer; azure asks
/// its SDK, which is safe to be asked at once, and skips its buffer too.
pub const WRAP_SYSTEMS: &[WrapSystem] = &[
    WrapSystem { extension: "httpfs", file_system: "S3FileSystem", shares_handle: true },
    WrapSystem { extension: "httpfs", file_system: "HTTPFileSystem", shares_handle: true },
    WrapSystem { extension: "httpfs", file_system: "HuggingFaceFileSystem", shares_handle: true },
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
