//! What requests are sent for: the words, and the task-local that tells a store's observer.

use crate::location::Location;
use penstock_base::redact;
use std::future::Future;
use std::sync::Arc;

tokio::task_local! {
    static ASKED: Asked;
}

macro_rules! causes {
    ($($variant:ident $name:literal $doc:literal;)*) => {
        /// What a request is sent for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Cause {
            $(#[doc = $doc] $variant,)*
        }

        impl Cause {
            /// Every cause with its stable name and meaning.
            pub const ALL: &'static [(Cause, &'static str, &'static str)] = &[
                $((Cause::$variant, $name, $doc),)*
            ];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Cause::$variant => $name,)*
                }
            }
        }
    };
}

causes! {
    Open "open"
        "A file is opened, or looked up by name: size and version, and its first bytes with them.";
    Footer "footer" "A file is opened by its last bytes, which tell what it holds (Parquet).";
    Read "read" "Bytes that a read waits for.";
    Ahead "ahead" "Bytes, or files, that a scan is expected to want next.";
    List "list" "Names below a prefix.";
    Write "write" "An object is written: in one request, or by parts.";
    Copy "copy" "An object is copied inside its store.";
    Delete "delete" "Objects are removed.";
    Abort "abort" "An upload is given up, with the parts that were sent.";
    Other "other" "None of these, such as a token that is fetched before its time.";
}

/// One attempt of a request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub url: Arc<str>,
    pub cause: Cause,
    /// From 1.
    pub attempt: u32,
}

impl Asked {
    /// Requests that begin inside `future` are sent for this.
    pub fn run<F: Future>(self, future: F) -> impl Future<Output = F::Output> + use<F> {
        ASKED.scope(self, future)
    }

    /// What the running task asks for, if it does.
    pub fn current() -> Option<Self> {
        ASKED.try_with(Clone::clone).ok()
    }

    /// The same, asked for once more.
    pub fn again(self) -> Self {
        Asked { attempt: self.attempt + 1, ..self }
    }
}

/// The object's URL as its user spelt it, without secrets.
pub(crate) fn shown_url(at: &Location) -> Arc<str> {
    redact::url(&at.url()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_a_closed_set_of_plain_words() {
        for (index, (cause, name, doc)) in Cause::ALL.iter().enumerate() {
            assert_eq!(*cause as usize, index);
            assert_eq!(cause.name(), *name);
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase()), "{name}");
            assert!(doc.ends_with('.'), "{name} needs a sentence");
            assert!(Cause::ALL[..index].iter().all(|other| other.1 != *name));
        }
    }

    #[tokio::test]
    async fn what_is_asked_for_is_known_inside_only() {
        let asked = Asked { url: "s3://b/k".into(), cause: Cause::Read, attempt: 1 };
        let seen = asked.clone().run(async { Asked::current() }).await.expect("inside");
        assert_eq!((&*seen.url, seen.cause, seen.attempt), ("s3://b/k", Cause::Read, 1));
        assert_eq!(asked.again().attempt, 2);
        assert!(Asked::current().is_none());
    }
}
