//! The uploads of a bucket: a walk over those of its directories that can hold one that is wanted.
//!
//! An upload lies beside its target, so that completing it is a rename inside one directory and one
//! file system. Nothing else tells which uploads there are: a second place would have to be kept in
//! step by every program that begins and ends one, and be mended after a crash.

use super::read_begun;
use crate::UploadId;
use crate::local::attributes::modified;
use crate::local::errno::explain;
use crate::local::names::{self, UPLOAD};
use crate::local::root::Root;
use crate::streaming::{UploadEntry, UploadsRequest};
use penstock_base::Result;
use rustix::fs::{Dir, FileType};
use rustix::io::Errno;

/// Every upload of the bucket that is not completed and may be asked for, in no particular order.
pub(in crate::local) fn list(root: &Root, request: &UploadsRequest) -> Result<Vec<UploadEntry>> {
    let mut uploads = Vec::new();
    find_uploads(root, (".", ""), request, &mut uploads)
        .map_err(|errno| explain(errno, "list", &root.path))?;
    Ok(uploads)
}

/// Walks the directories below `path`; `prefix` is what their keys begin with.
fn find_uploads(
    root: &Root,
    (path, prefix): (&str, &str),
    request: &UploadsRequest,
    found: &mut Vec<UploadEntry>,
) -> Result<(), Errno> {
    let dir = match root.open_dir(path) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno),
    };
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        if !matches!(entry.file_type(), FileType::Directory | FileType::Unknown) {
            continue;
        }
        let Ok(name) = entry.file_name().to_str() else { continue };
        let below = if path == "." { name.to_string() } else { format!("{path}/{name}") };
        if let Some(id) = name.strip_prefix(UPLOAD) {
            // One that ends this moment is not there any more.
            let Ok(upload) = root.open_dir(&below) else { continue };
            let Ok(begun) = read_begun(&upload) else { continue };
            let Some(last) = names::decode(begun.name.as_bytes(), false) else { continue };
            let stat = rustix::fs::fstat(&upload)?;
            found.push(UploadEntry {
                key: format!("{prefix}{last}"),
                id: UploadId(id.to_string()),
                begun: modified(&stat),
                metadata: begun.attributes.metadata,
            });
        } else if let Some(component) = names::decode(name.as_bytes(), true) {
            let prefix = format!("{prefix}{component}/");
            if request.may_want(&prefix) {
                find_uploads(root, (&below, &prefix), request, found)?;
            }
        }
    }
    Ok(())
}
