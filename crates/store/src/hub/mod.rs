//! Repositories of the Hugging Face Hub: the names, listings and refusals of a web server that
//! [`HttpStore`] reads from.
//!
//! Decides what a `hf://` URL asks for, and what to do where the Hub refuses. The token goes to the
//! Hub's own host alone: neither a redirect nor a listing leads it anywhere else.

mod address;
mod tree;

pub use address::{NOT_A_FILE, NOT_A_TYPE};
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use tree::fuzz;

use crate::answer::{self, Failure};
use crate::options::StoreOptions;
use crate::web::{Outcome, Way, encoded};
use crate::{HttpStore, ListPage, ListRequest, advice};
use ::http::{HeaderMap, Method, Uri};
use address::{Repository, in_request, not_a_file};
use penstock_base::{Error, Kind, Result, Secret};

const HUB: &str = "https://huggingface.co";
/// The variable by which the Hub's own tools are told of another Hub.
const ENDPOINT_VARIABLE: &str = "HF_ENDPOINT";
/// The variable with their token.
const TOKEN_VARIABLE: &str = "HF_TOKEN";
/// Most bytes of one page of a listing; one of 1000 names has about 300 KB.
const LIST_BYTES_MAX: usize = 64 << 20;

/// One revision of a repository, and where the Hub is.
#[derive(Debug)]
pub(crate) struct Hub {
    repository: Repository,
    endpoint: String,
    base: String,
    /// Most names in a page of a listing, where somebody sets it.
    page_max: Option<u32>,
}

/// Root and key of what follows `hf://`.
///
/// # Errors
/// `Invalid` for a URL that names no repository.
pub(crate) fn root_and_key(rest: &str) -> Result<(String, String)> {
    let (repository, key) = Repository::parse(rest)?;
    Ok((repository.root, key.to_string()))
}

impl Hub {
    /// The repository of what follows `hf://`, and the key in it.
    ///
    /// # Errors
    /// `Invalid` for a URL that names no repository, or an endpoint that is none.
    pub fn open(rest: &str, options: &StoreOptions) -> Result<(Self, String)> {
        let (repository, key) = Repository::parse(rest)?;
        let endpoint = endpoint(options, &|name| std::env::var(name).ok())?;
        let base = repository.objects_url(&endpoint);
        let page_max = options.get("hf_max_per_page").and_then(|text| text.parse().ok());
        let page_max = page_max.filter(|max| *max > 0);
        Ok((Hub { repository, endpoint, base, page_max }, key.to_string()))
    }

    /// How the repository is named, ending with `/`.
    pub fn root(&self) -> &str {
        &self.repository.root
    }

    /// Where its files are asked for, ending with `/`.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Where a file is asked for.
    ///
    /// # Errors
    /// `Invalid` for what is the name of none.
    pub fn url_of(&self, key: &str) -> Result<String> {
        match key {
            "" => Err(not_a_file()),
            key => Ok(format!("{}{}", self.base, in_request(key)?)),
        }
    }

    /// A page of its names.
    ///
    /// # Errors
    /// As [`crate::Store::list`].
    pub async fn list(&self, web: &HttpStore, request: &ListRequest) -> Result<ListPage> {
        let max_keys = [request.max_keys, self.page_max].into_iter().flatten().min();
        let request = &ListRequest { max_keys, ..request.clone() };
        let page = self.page(web, request).await;
        let object = || format!("{}{}", self.root(), request.prefix);
        page.map_err(|error| error.with_operation("list").with_object(object()))
    }

    async fn page(&self, web: &HttpStore, request: &ListRequest) -> Result<ListPage> {
        let url = self.repository.tree_url(&self.endpoint, tree::directory(request))?;
        let own = encoded(&format!("{url}?{}", tree::query(request)));
        let names = ("list", request.prefix.as_str());
        let asked = (&Method::GET, Way::Anew);
        match web.send_to(own, asked, names, &HeaderMap::new()).await? {
            Outcome::Done(mut response) => {
                let link = answer::text_header(&response.headers, "link");
                let body = response.body.read_to_bytes(LIST_BYTES_MAX).await?;
                tree::page(request, &body, link.as_deref())
            }
            // A directory that is not there is empty.
            Outcome::Refused { failure, .. } if failure.code == "EntryNotFound" => {
                Ok(ListPage::default())
            }
            Outcome::Refused { failure, .. } => Err(web.refusal(names.0, names.1, failure)),
        }
    }

    /// What to do about a refusal.
    pub fn advice(&self, failure: &Failure) -> Option<String> {
        let name = &self.repository.name;
        let page = self.repository.page_url(&self.endpoint);
        let token = advice::give("huggingface", &[("token", "...")]);
        let secret = failure.secret_name.as_ref();
        let secret = secret.map_or_else(|| "the token".to_string(), |it| format!("secret '{it}'"));
        let is_known = !failure.was_unsigned;
        Some(match (failure.verdict().0, failure.code.as_str(), &failure.location) {
            (Kind::Denied, _, Some(url)) => {
                format!("The Hub sent the request on to {url}, which refused it: run it again")
            }
            (Kind::Denied, "GatedRepo", _) if is_known => {
                format!("{name} is gated: ask for access on {page}, as the account of {secret}")
            }
            (Kind::Denied, "GatedRepo", _) => {
                format!("{name} is gated: ask for access on {page}. {token}")
            }
            (Kind::Denied, ..) if is_known => format!(
                "Check the name {name}, and {secret} with its rights; access to a gated repository \
                 is asked for on {page}"
            ),
            (Kind::Denied, ..) => format!(
                "The Hub answers so for private repositories, and for names that it does not have: \
                 check the name {name}. {token}"
            ),
            (Kind::NotFound, "RepoNotFound", _) => format!("Check the name {name}"),
            (Kind::NotFound, "RevisionNotFound", _) => {
                format!("Its branches and tags are on {page}")
            }
            (Kind::Throttled, ..) => {
                let wait = failure.retry_after.map_or_else(
                    || "within five minutes".to_string(),
                    |wait| format!("in {} s", wait.as_secs()),
                );
                let more = match is_known {
                    true => "Read fewer files at once".to_string(),
                    false => format!("It takes more of them with a token: {token}"),
                };
                format!("The Hub takes requests again {wait}. {more}")
            }
            _ => return None,
        })
    }
}

/// The token of the options; `provider = credential_chain` takes that of the environment.
pub(crate) fn token(
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Option<Secret> {
    let given = options.first_of(&["token", "bearer_token"]).map(str::to_string);
    let is_asked = options.get("provider") == Some("credential_chain");
    let found = || environment(TOKEN_VARIABLE).filter(|text| is_asked && !text.is_empty());
    given.or_else(found).map(Secret::new)
}

/// Scheme, host and path of the Hub, without a slash at the end.
fn endpoint(
    options: &StoreOptions,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<String> {
    let given = options.get("endpoint").map(str::to_string);
    let given = given.or_else(|| environment(ENDPOINT_VARIABLE));
    let Some(text) = given.filter(|text| !text.trim().is_empty()) else {
        return Ok(HUB.to_string());
    };
    let text = text.trim();
    let url = if text.contains("://") { text.to_string() } else { format!("https://{text}") };
    let url = url.trim_end_matches('/').to_string();
    let wrong = || {
        Error::new(Kind::Invalid, format!("`{text}` is no address of a Hub"))
            .with_hint(format!("Write {HUB} or https://host:port ({ENDPOINT_VARIABLE})"))
    };
    let parsed: Uri = url.parse().map_err(|_| wrong())?;
    let is_web = matches!(parsed.scheme_str(), Some("http" | "https"));
    let is_place = is_web && parsed.query().is_none() && !url.contains('#');
    let is_host = |place: &&::http::uri::Authority| {
        is_place && !place.as_str().contains('@') && !place.host().is_empty()
    };
    crate::http::explicit_port(parsed.authority().filter(is_host).ok_or_else(wrong)?)?;
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(pairs: &[(&str, &str)], variable: Option<&str>) -> Result<String> {
        let options = StoreOptions::new(pairs.iter().copied())?;
        endpoint(&options, &|name| variable.filter(|_| name == "HF_ENDPOINT").map(str::to_string))
    }

    #[test]
    fn the_environments_token_counts_where_it_is_asked_for() {
        let environment = |name: &str| (name == "HF_TOKEN").then(|| "hf_x".to_string());
        let found = |pairs: &[(&str, &str)]| {
            let options = StoreOptions::new(pairs.iter().copied()).unwrap();
            token(&options, &environment).map(|token| token.reveal().to_string())
        };
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[("provider", "credential_chain")]).as_deref(), Some("hf_x"));
        let both = [("provider", "credential_chain"), ("token", "hf_y"), ("bearer_token", "z")];
        assert_eq!(found(&both).as_deref(), Some("hf_y"));
        assert_eq!(found(&both[2..]).as_deref(), Some("z"));
    }

    #[test]
    fn the_hub_is_where_options_or_the_environment_say() {
        assert_eq!(found(&[], None).unwrap(), HUB);
        assert_eq!(found(&[], Some(" ")).unwrap(), HUB);
        assert_eq!(found(&[], Some("http://h:8080/hf/")).unwrap(), "http://h:8080/hf");
        let both = found(&[("endpoint", "mine.example")], Some("http://h")).unwrap();
        assert_eq!(both, "https://mine.example");
        for wrong in ["ftp://h", "http://", "http://u:p@h", "http://h?x", "http://h:99999", "a b"] {
            assert_eq!(found(&[], Some(wrong)).unwrap_err().kind(), Kind::Invalid, "{wrong}");
        }
    }
}
