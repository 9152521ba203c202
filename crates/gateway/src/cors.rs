//! Cross-origin requests: which rule is for a request, and what its answer then says. Pure.
//!
//! Decides nothing about access: a browser that may show an answer to a page has still to be let
//! in by signature, list or policy.

use crate::wildcard;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use s3s::{S3Result, dto, s3_error};
use serde::{Deserialize, Serialize};

/// Most rules of a bucket, as in S3.
const RULES_MAX: usize = 100;
const METHODS: &[&str] = &["GET", "PUT", "POST", "DELETE", "HEAD"];

/// One rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rule {
    /// Its name, which means nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Origins, each with at most one `*` for any run of characters.
    pub origins: Vec<String>,
    /// HTTP methods.
    pub methods: Vec<String>,
    /// Headers that a page may send, each with at most one `*`.
    pub headers: Vec<String>,
    /// Headers of the answer that a page may see.
    pub exposed: Vec<String>,
    /// How long a browser may remember the answer to its question, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_age_s: Option<i32>,
}

/// Rules have `*` alone for a wildcard.
fn stands_for(pattern: &str, text: &str) -> bool {
    wildcard::matches(pattern, text, None)
}

impl Rule {
    /// Checks a rule.
    ///
    /// # Errors
    /// `InvalidRequest` with what is wrong.
    pub fn check(&self) -> S3Result<()> {
        if self.origins.is_empty() || self.methods.is_empty() {
            return Err(s3_error!(MalformedXML, "A CORS rule has an origin and a method."));
        }
        if let Some(odd) = self.methods.iter().find(|it| !METHODS.contains(&it.as_str())) {
            return Err(s3_error!(
                InvalidRequest,
                "Found unsupported HTTP method in CORS config. Unsupported method is {odd}"
            ));
        }
        let is_odd = |pattern: &&String| pattern.matches('*').count() > 1;
        if let Some(odd) = self.origins.iter().chain(&self.headers).find(is_odd) {
            return Err(s3_error!(InvalidRequest, "`{odd}` can not have more than one wildcard."));
        }
        Ok(())
    }

    fn is_for(&self, origin: &str, method: &str, headers: &[String]) -> bool {
        let allows = |header: &String| {
            self.headers.iter().any(|it| stands_for(&it.to_ascii_lowercase(), header))
        };
        self.methods.iter().any(|it| it == method)
            && self.origins.iter().any(|it| stands_for(it, origin))
            && headers.iter().all(allows)
    }
}

/// A request as CORS sees it.
#[derive(Debug)]
pub struct Question {
    origin: String,
    method: String,
    headers: Vec<String>,
    /// The method that a browser asks about before it sends it.
    asks: bool,
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

impl Question {
    /// Of a request from a page of another origin; `None` for any other.
    pub fn of(method: &Method, headers: &HeaderMap) -> Option<Self> {
        let origin = text(headers, "origin")?.to_string();
        let asked = text(headers, "access-control-request-method");
        let is_preflight = *method == Method::OPTIONS;
        let listed = text(headers, "access-control-request-headers").unwrap_or_default();
        let listed = listed.split(',').map(|name| name.trim().to_ascii_lowercase());
        Some(Question {
            origin,
            method: asked.unwrap_or(method.as_str()).to_string(),
            headers: listed.filter(|name| is_preflight && !name.is_empty()).collect(),
            asks: is_preflight && asked.is_some(),
        })
    }

    /// Whether a browser asks before it sends a request.
    pub fn is_preflight(&self) -> bool {
        self.asks
    }

    /// What the first fitting rule adds to the answer; `None` where none fits.
    pub fn answer(&self, rules: &[Rule]) -> Option<HeaderMap> {
        let rule = rules.iter().find(|it| it.is_for(&self.origin, &self.method, &self.headers))?;
        let mut headers = HeaderMap::new();
        let mut put = |name: &'static str, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        let is_any = rule.origins.iter().any(|origin| origin == "*");
        put("access-control-allow-origin", if is_any { "*" } else { &self.origin });
        if !is_any {
            put("access-control-allow-credentials", "true");
        }
        put("access-control-allow-methods", &rule.methods.join(", "));
        put("vary", "Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
        if !rule.exposed.is_empty() {
            put("access-control-expose-headers", &rule.exposed.join(", "));
        }
        if self.asks && !self.headers.is_empty() {
            put("access-control-allow-headers", &self.headers.join(", "));
        }
        if let (true, Some(seconds)) = (self.asks, rule.max_age_s) {
            put("access-control-max-age", &seconds.to_string());
        }
        Some(headers)
    }
}

/// The rules of a document.
///
/// # Errors
/// `MalformedXML`, `InvalidRequest`.
pub fn from_document(rules: dto::CORSRules) -> S3Result<Vec<Rule>> {
    if rules.is_empty() || rules.len() > RULES_MAX {
        return Err(s3_error!(MalformedXML, "A CORS configuration has 1 to 100 rules."));
    }
    let rule = |rule: dto::CORSRule| {
        let rule = Rule {
            id: rule.id,
            origins: rule.allowed_origins,
            methods: rule.allowed_methods,
            headers: rule.allowed_headers.unwrap_or_default(),
            exposed: rule.expose_headers.unwrap_or_default(),
            max_age_s: rule.max_age_seconds,
        };
        rule.check().map(|()| rule)
    };
    rules.into_iter().map(rule).collect()
}

/// The rules as answers tell them.
pub fn to_document(rules: Vec<Rule>) -> dto::CORSRules {
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let rule = |rule: Rule| dto::CORSRule {
        id: rule.id,
        allowed_origins: rule.origins,
        allowed_methods: rule.methods,
        allowed_headers: some(rule.headers),
        expose_headers: some(rule.exposed),
        max_age_seconds: rule.max_age_s,
    };
    rules.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rule(origin: &str, methods: &[&str], headers: &[&str]) -> Rule {
        let owned = |list: &[&str]| list.iter().map(|it| it.to_string()).collect();
        Rule {
            origins: vec![origin.into()],
            methods: owned(methods),
            headers: owned(headers),
            ..Rule::default()
        }
    }

    fn question(method: Method, pairs: &[(&'static str, &'static str)]) -> Option<Question> {
        let pair = |it: &(&'static str, &'static str)| {
            (HeaderName::from_static(it.0), HeaderValue::from_static(it.1))
        };
        Question::of(&method, &pairs.iter().map(pair).collect())
    }

    #[test]
    fn the_first_fitting_rule_answers() {
        let rules = [rule("https://*.org", &["GET"], &[]), rule("*", &["GET", "PUT"], &["x-*"])];
        assert!(question(Method::GET, &[]).is_none());
        let from_org = question(Method::GET, &[("origin", "https://a.org")]).unwrap();
        let answer = from_org.answer(&rules).unwrap();
        assert_eq!(answer["access-control-allow-origin"], "https://a.org");
        assert_eq!(answer["access-control-allow-methods"], "GET");
        let elsewhere = question(Method::PUT, &[("origin", "http://b")]).unwrap();
        assert_eq!(elsewhere.answer(&rules).unwrap()["access-control-allow-origin"], "*");
        let delete = question(Method::DELETE, &[("origin", "http://b")]).unwrap();
        assert!(delete.answer(&rules).is_none());
    }

    #[test]
    fn a_preflight_is_told_of_headers() {
        let asks = |headers| {
            let pairs = [
                ("origin", "http://b"),
                ("access-control-request-method", "PUT"),
                ("access-control-request-headers", headers),
            ];
            question(Method::OPTIONS, &pairs).unwrap()
        };
        let mut rules = [rule("*", &["PUT"], &["X-Amz-*"])];
        rules[0].max_age_s = Some(30);
        let answer = asks("x-amz-date, X-Amz-Meta-a").answer(&rules).unwrap();
        assert_eq!(answer["access-control-allow-headers"], "x-amz-date, x-amz-meta-a");
        assert_eq!(answer["access-control-max-age"], "30");
        assert!(asks("x-other").answer(&rules).is_none());
    }

    #[test]
    fn rules_have_limits() {
        assert!(rule("a", &["GET"], &[]).check().is_ok());
        for wrong in [
            rule("*a*", &["GET"], &[]),
            rule("a", &["PATCH"], &[]),
            rule("a", &[], &[]),
            rule("a", &["GET"], &["x-**"]),
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        assert!(from_document(Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn a_wildcard_stands_for_any_run(
            before in "[a-c]{0,4}",
            run in "[a-c*]{0,4}",
            after in "[a-c]{0,4}",
        ) {
            let text = format!("{before}{run}{after}");
            let pattern = format!("{before}*{after}");
            prop_assert!(stands_for(&pattern, &text));
        }
    }
}
