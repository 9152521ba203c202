//! The fields of a form (RFC 7578). Pure.

use super::malformed;
use bytes::Bytes;
use s3s::{S3Result, s3_error};

/// Most fields of a form.
const FIELDS_MAX: usize = 100;
/// Longest value of a field that is not the file.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// Longest line between fields (RFC 2046, section 5.1.1). To look for one may cost its length at
/// each byte of a form, which nobody has signed so far.
const BOUNDARY_BYTES_MAX: usize = 70;
const BLANK: &[u8] = b"\r\n\r\n";

/// A form.
#[derive(Debug, Default)]
pub(super) struct Form {
    /// Names in lower case, and values, in the order of the form. Those behind the file are
    /// ignored, as in S3.
    pub fields: Vec<(String, String)>,
    /// The file's name, as the browser told it, without directories.
    pub filename: String,
    /// The file.
    pub file: Bytes,
}

fn position(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

/// A parameter of a Content-Disposition line.
fn parameter(line: &str, wanted: &str) -> Option<String> {
    let mut rest = line.split_once(';')?.1;
    loop {
        let (name, after) = rest.split_once('=')?;
        let (value, next) = match after.strip_prefix('"') {
            Some(quoted) => {
                let mut end = None;
                let mut is_escaped = false;
                for (at, character) in quoted.char_indices() {
                    match character {
                        '"' if !is_escaped => {
                            end = Some(at);
                            break;
                        }
                        '\\' if !is_escaped => is_escaped = true,
                        _ => is_escaped = false,
                    }
                }
                let end = end?;
                (quoted[..end].replace("\\\"", "\""), &quoted[end + 1..])
            }
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_string(), &after[end..])
            }
        };
        if name.trim().eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = next.trim_start().strip_prefix(';')?;
    }
}

impl Form {
    /// Reads a form. Of one that cannot be read to its file, what stands before the fault is told
    /// too.
    ///
    /// # Errors
    /// `MalformedPOSTRequest`; `InvalidArgument` where there is no file.
    pub fn parse(bytes: &Bytes, boundary: &str) -> (Self, S3Result<()>) {
        let mut form = Form::default();
        let read = form.read(bytes, boundary);
        (form, read)
    }

    fn read(&mut self, bytes: &Bytes, boundary: &str) -> S3Result<()> {
        let cut = || {
            malformed(
                "The body of your POST request is not well-formed \
                                multipart/form-data.",
            )
        };
        if boundary.len() > BOUNDARY_BYTES_MAX {
            return Err(malformed("The boundary of the form is longer than 70 characters."));
        }
        let first = format!("--{boundary}");
        let delimiter = format!("\r\n--{boundary}");
        let mut at = position(bytes, first.as_bytes()).ok_or_else(cut)? + first.len();
        loop {
            if bytes[at..].starts_with(b"--") {
                let why = "POST requires exactly one file upload per request.";
                return Err(s3_error!(InvalidArgument, "{why}"));
            }
            let head_len = position(&bytes[at..], BLANK).ok_or_else(cut)?;
            let head = std::str::from_utf8(&bytes[at..at + head_len]).map_err(|_| cut())?;
            let start = at + head_len + BLANK.len();
            let len = position(&bytes[start..], delimiter.as_bytes()).ok_or_else(cut)?;
            let value = bytes.slice(start..start + len);
            at = start + len + delimiter.len();
            let disposition = head.split("\r\n").find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
            });
            let disposition = disposition.ok_or_else(cut)?;
            let name = parameter(disposition, "name").ok_or_else(cut)?.to_ascii_lowercase();
            if name == "file" {
                let filename = parameter(disposition, "filename").unwrap_or_default();
                self.filename = filename.rsplit(['/', '\\']).next().unwrap_or_default().to_string();
                self.file = value;
                return Ok(());
            }
            if self.fields.len() >= FIELDS_MAX || value.len() > VALUE_BYTES_MAX {
                return Err(malformed("The form has too many or too long fields."));
            }
            // A policy would be asked about one of them, and another would be kept.
            if self.field(&name).is_some() {
                return Err(malformed("The form has two fields of one name."));
            }
            let text = String::from_utf8(value.to_vec()).map_err(|_| cut())?;
            self.fields.push((name, text));
        }
    }

    /// The value of a field.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    /// The key that the file gets.
    ///
    /// # Errors
    /// `InvalidArgument` where there is none.
    pub fn key(&self) -> S3Result<String> {
        let key = self.field("key").unwrap_or_default();
        let key = key.replace("${filename}", &self.filename);
        match key.is_empty() {
            true => {
                let why = "Bucket POST must contain a field named 'key'.";
                Err(s3_error!(InvalidArgument, "{why}"))
            }
            false => Ok(key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fields_before_the_file_count() {
        let text = "--X\r\nContent-Disposition: form-data; name=\"kEy\"\r\n\r\nup/${filename}\r\n\
            --X\r\ncontent-disposition: form-data; \
            filename=\"C:\\\\dir\\\\a \\\"b\\\".txt\"; name=file\r\n\
            Content-Type: text/plain\r\n\r\nbytes\r\n--Y\r\n\r\n--X\r\n\
            Content-Disposition: form-data; name=late\r\n\r\nx\r\n--X--\r\n";
        let (form, read) = Form::parse(&Bytes::from(text), "X");
        read.unwrap();
        assert_eq!(form.fields, [("key".to_string(), "up/${filename}".to_string())]);
        assert_eq!(form.file, "bytes\r\n--Y\r\n");
        assert_eq!(form.key().unwrap(), "up/a \"b\".txt");
    }

    #[test]
    fn what_is_no_form_is_refused() {
        for text in ["", "--X", "--X--", "--X\r\n\r\n\r\n--X--", "--X\r\nA: b\r\n\r\nx\r\n--X--"] {
            assert!(Form::parse(&Bytes::from(text), "X").1.is_err(), "{text:?}");
        }
        let text = "--X\r\nContent-Disposition: form-data; name=key\r\n\r\nup/k\r\n--X--\r\n";
        let (form, read) = Form::parse(&Bytes::from(text), "X");
        assert_eq!((form.key().unwrap().as_str(), read.is_err()), ("up/k", true));
    }

    #[test]
    fn a_field_stands_once() {
        let field = |name: &str| {
            format!("--X\r\nContent-Disposition: form-data; name={name}\r\n\r\n{name}\r\n")
        };
        for (names, is_read) in
            [(["acl", "key"], true), (["acl", "acl"], false), (["Acl", "acL"], false)]
        {
            let fields: String = names.into_iter().chain(["file"]).map(field).collect();
            let (form, read) = Form::parse(&Bytes::from(format!("{fields}--X--\r\n")), "X");
            assert_eq!(
                (read.is_ok(), form.fields.len()),
                (is_read, names.len() - usize::from(!is_read))
            );
        }
    }

    #[test]
    fn a_boundary_is_no_haystack() {
        let dashes = "-".repeat(60_000);
        let bytes = Bytes::from("-".repeat(4 << 20));
        assert!(Form::parse(&bytes, &format!("{dashes}x")).1.is_err());
        let part = "Content-Disposition: form-data; name=file\r\n\r\nx";
        for (len, is_read) in [(70, true), (71, false)] {
            let boundary = "b".repeat(len);
            let form = Bytes::from(format!("--{boundary}\r\n{part}\r\n--{boundary}--\r\n"));
            assert_eq!(Form::parse(&form, &boundary).1.is_ok(), is_read, "{len}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            bytes.splice(0..0, *b"--X\r\nContent-Disposition: form-data; name=\"");
            drop(Form::parse(&Bytes::from(bytes), "X"));
        }
    }
}
