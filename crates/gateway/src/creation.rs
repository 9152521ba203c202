//! What the document of a CreateBucket asks for. s3s reads where the bucket is to be and passes
//! over what it does not know, its tags among them. Pure.

use crate::tagging;
use s3s::{S3Result, dto, s3_error, xml};

/// Longest document that is looked into: fifty of the longest tags are well below.
pub(crate) const CREATION_BYTES_MAX: usize = 256 << 10;

/// The tags that a new bucket is to have; `None` where none are asked for.
///
/// # Errors
/// `NotImplemented` with the name of anything else that is asked for besides the place;
/// `MalformedXML`; `InvalidTag`.
pub(crate) fn tags_of(document: &[u8]) -> S3Result<Option<Vec<(String, String)>>> {
    if document.is_empty() {
        return Ok(None);
    }
    let (mut tags, mut unknown) = (Vec::new(), None);
    let mut reader = xml::Deserializer::new(document);
    let read = reader.named_element("CreateBucketConfiguration", |reader| {
        reader.for_each_element(|reader, name| match name {
            b"LocationConstraint" => reader.content::<dto::BucketLocationConstraint>().map(drop),
            b"Tags" => reader.for_each_element(|reader, name| match name {
                b"Tag" => reader.content().map(|tag| tags.push(tag)),
                _ => Err(xml::DeError::UnexpectedTagName),
            }),
            name => {
                unknown = Some(String::from_utf8_lossy(name).into_owned());
                Err(xml::DeError::UnexpectedTagName)
            }
        })
    });
    match (read, unknown) {
        (_, Some(name)) => Err(s3_error!(
            NotImplemented,
            "{name} in a CreateBucketConfiguration: the gateway makes general purpose buckets only"
        )),
        (Err(_), None) => Err(s3_error!(MalformedXML, "The CreateBucketConfiguration is none.")),
        (Ok(()), None) if tags.is_empty() => Ok(None),
        (Ok(()), None) => tagging::checked_of_bucket(tags).map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(inside: &str) -> String {
        let document =
            format!("<CreateBucketConfiguration xmlns=\"x\">{inside}</CreateBucketConfiguration>");
        match tags_of(document.as_bytes()) {
            Ok(None) => String::new(),
            Ok(Some(tags)) => tags.iter().map(|(name, value)| format!("{name}={value};")).collect(),
            Err(error) => format!("{} {}", error.code().as_str(), error.message().unwrap()),
        }
    }

    #[test]
    fn what_a_new_bucket_is_asked_to_have_is_read_or_refused_by_name() {
        assert_eq!(tags_of(b"").unwrap(), None);
        let place = "<LocationConstraint>eu-west-1</LocationConstraint>";
        for none in ["", place, "<LocationConstraint/>", "<Tags></Tags>", "<Tags/>"] {
            assert_eq!(told(none), "", "{none}");
        }
        let tag = |name: &str| format!("<Tag><Key>{name}</Key><Value>1 &amp; 2</Value></Tag>");
        let tags = format!("{place}<Tags>{}\n{}</Tags>", tag("a"), tag("b"));
        assert!(told(&tags).starts_with("InvalidTag"), "{}", told(&tags));
        assert_eq!(told(&tags.replace(" &amp; ", ".")), "a=1.2;b=1.2;");
        for name in ["Bucket", "Location", "Other"] {
            let refused = told(&format!("{place}<{name}><Type>Directory</Type></{name}>"));
            assert!(refused.starts_with(&format!("NotImplemented {name} in")), "{refused}");
        }
        for odd in ["<Tags><member/></Tags>", "<Tags>", "<Tags><Tag><Odd/></Tag></Tags>"] {
            assert!(told(odd).starts_with("MalformedXML"), "{odd}: {}", told(odd));
        }
    }
}
