//! The signatures of a body in chunks: each covers its chunk and the signature before it, the first
//! of which is the head's. Compared in constant time.
//!
//! Source: as of [`super`], and "Using trailing headers", of the same reference.

use super::{Fault, Trailer};
use crate::hex::{hex, unhex};
use crate::v4::signing_key;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use ring::{digest, hmac};

/// The SHA-256 of nothing, which stands in what each chunk signs.
const NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Where the chain has come to.
#[derive(Clone)]
pub(crate) struct Chain {
    key: hmac::Key,
    /// Time and scope, which stand in everything that is signed.
    context: String,
    /// The signature of what came before.
    before: String,
    /// Of the chunk that is passing.
    signature: String,
    digest: digest::Context,
}

/// A signature as it is written: 64 digits, the letters among them small.
fn told(text: &str) -> Result<Vec<u8>, Fault> {
    if text.len() != 2 * digest::SHA256_OUTPUT_LEN {
        return Err(Fault::Malformed);
    }
    let is_small = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    unhex(text).filter(|_| is_small).ok_or(Fault::Signature)
}

impl Chain {
    /// That which begins with a head signed by version 4 with `secret`; `None` where the head has
    /// no such signature. That it holds is found out before.
    pub fn of(headers: &HeaderMap, secret: &str) -> Option<Self> {
        let text = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let fields = text.strip_prefix("AWS4-HMAC-SHA256")?;
        let field = |name: &str| {
            let mut fields = fields.split(',').map(str::trim);
            fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
        };
        let (_, scope) = field("Credential")?.split_once('/')?;
        let time = headers.get("x-amz-date")?.to_str().ok()?;
        Some(Chain {
            key: signing_key(secret, scope),
            context: format!("{time}\n{scope}"),
            before: field("Signature")?.to_string(),
            signature: String::new(),
            digest: digest::Context::new(&digest::SHA256),
        })
    }

    /// A chunk begins that is said to have this signature.
    pub fn begin(&mut self, signature: String) {
        self.signature = signature;
        self.digest = digest::Context::new(&digest::SHA256);
    }

    /// Bytes of it pass.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// All of it has passed.
    ///
    /// # Errors
    /// `Signature`; `Malformed` where that is none.
    pub fn end(&mut self) -> Result<(), Fault> {
        let empty = digest::Context::new(&digest::SHA256);
        let sum = std::mem::replace(&mut self.digest, empty).finish();
        let digests = format!("{NOTHING}\n{}", hex(sum.as_ref()));
        self.verify("PAYLOAD", &digests, &self.signature)?;
        self.before = std::mem::take(&mut self.signature);
        Ok(())
    }

    /// What followed the last chunk has this signature.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub fn trailer(&self, trailer: &Trailer, signature: &str) -> Result<(), Fault> {
        let sum = digest::digest(&digest::SHA256, trailer.canonical().as_bytes());
        self.verify("TRAILER", &hex(sum.as_ref()), signature)
    }

    fn verify(&self, what: &str, digests: &str, signature: &str) -> Result<(), Fault> {
        let Chain { context, before, .. } = self;
        let signed = format!("AWS4-HMAC-SHA256-{what}\n{context}\n{before}\n{digests}");
        let told = told(signature)?;
        hmac::verify(&self.key, signed.as_bytes(), &told).map_err(|_| Fault::Signature)
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chain").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";

    fn chain(signature: &str) -> Chain {
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host, Signature={signature}"
        );
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_str(&authorization).unwrap());
        headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
        Chain::of(&headers, SECRET).unwrap()
    }

    fn pass(chain: &mut Chain, signature: &str, bytes: &[u8]) -> Result<(), Fault> {
        chain.begin(signature.to_string());
        bytes.chunks(1000).for_each(|piece| chain.update(piece));
        chain.end()
    }

    /// The examples of the reference, without and with a trailer.
    #[test]
    fn what_the_reference_signs_holds_and_nothing_else() {
        let (first, second) = (vec![b'a'; 65536], vec![b'a'; 1024]);
        let plain = [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ];
        let mut begun = chain("4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9");
        for (signature, bytes) in plain.iter().zip([&first[..], &second, b""]) {
            let upper = signature.to_uppercase();
            let forged = signature.replace(&signature[..1], "e");
            for wrong in [upper.as_str(), &forged] {
                assert_eq!(pass(&mut begun.clone(), wrong, bytes), Err(Fault::Signature));
            }
            for wrong in [&signature[..63], ""] {
                assert_eq!(pass(&mut begun.clone(), wrong, bytes), Err(Fault::Malformed));
            }
            let other = [bytes, b"a"].concat();
            assert_eq!(pass(&mut begun.clone(), signature, &other), Err(Fault::Signature));
            assert_eq!(pass(&mut begun, signature, bytes), Ok(()));
        }
        let mut begun = chain("106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e");
        let trailed = [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ];
        for (signature, bytes) in trailed.iter().zip([&first[..], &second, b""]) {
            assert_eq!(pass(&mut begun, signature, bytes), Ok(()));
        }
        let trailer = |value: &str| Trailer {
            fields: vec![("x-amz-checksum-crc32c".to_string(), value.to_string())],
            signature: None,
        };
        let signature = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
        assert_eq!(begun.trailer(&trailer("sOO8/Q=="), signature), Ok(()));
        assert_eq!(begun.trailer(&trailer("AAAAAA=="), signature), Err(Fault::Signature));
        assert!(!format!("{begun:?}").contains(SECRET));
    }

    #[test]
    fn a_head_of_no_such_signature_begins_no_chain() {
        let mut headers = HeaderMap::new();
        assert!(Chain::of(&headers, SECRET).is_none());
        headers.insert(AUTHORIZATION, HeaderValue::from_static("AWS K:s"));
        headers.insert("x-amz-date", HeaderValue::from_static("20130524T000000Z"));
        assert!(Chain::of(&headers, SECRET).is_none());
    }
}
