use super::*;
use proptest::prelude::*;

fn lake() -> Vec<String> {
    vec!["lake".to_string()]
}

fn judge(statements: &str, who: Option<&str>, action: &str, key: Option<&str>) -> Decision {
    judge_with(statements, who, action, key, &[])
}

fn judge_with(
    statements: &str,
    who: Option<&str>,
    action: &str,
    key: Option<&str>,
    facts: &[(&str, &str)],
) -> Decision {
    let text = format!(r#"{{"Version": "2012-10-17", "Statement": [{statements}]}}"#);
    let mut known = Facts::default();
    facts.iter().for_each(|(name, value)| known.put(name, value));
    let policy = Policy::parse(&text, lake()).unwrap();
    policy.judge(&Request { who, action, key, facts: &known })
}

const READ: &str = r#"{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
    "Resource": "arn:aws:s3:::lake/open/*"}"#;

#[test]
fn a_statement_is_about_principal_action_and_resource() {
    let decision = |who, action, key| judge(READ, who, action, Some(key));
    assert_eq!(decision(None, "s3:GetObject", "open/a"), Decision::Allowed);
    assert_eq!(decision(Some("me"), "s3:getobject", "open/a/b"), Decision::Allowed);
    assert_eq!(decision(None, "s3:GetObject", "closed/a"), Decision::Silent);
    assert_eq!(decision(None, "s3:PutObject", "open/a"), Decision::Silent);
    let you = READ.replace(r#""*""#, r#"{"AWS": ["arn:aws:iam:::user/you", "them"]}"#);
    assert_eq!(judge(&you, None, "s3:GetObject", Some("open/a")), Decision::Silent);
    assert_eq!(judge(&you, Some("you"), "s3:GetObject", Some("open/a")), Decision::Allowed);
    assert_eq!(judge(&you, Some("them"), "s3:GetObject", Some("open/a")), Decision::Allowed);
    assert_eq!(judge(&you, Some("me"), "s3:GetObject", Some("open/a")), Decision::Silent);
}

#[test]
fn who_may_write_under_a_condition_on_the_list_may_bring_that_list() {
    let decision = |condition: &str, denial: &str| {
        let text = format!(
            r#"{{"Statement": [{{"Effect": "Allow", "Principal": "*", "Action": "s3:PutObject",
            "Resource": "arn:aws:s3:::lake/*", "Condition": {condition}}}{denial}]}}"#
        );
        let mut facts = Facts::default();
        facts.put("s3:x-amz-acl", "bucket-owner-full-control");
        let key = Some("a");
        let policy = Policy::parse(&text, lake()).unwrap();
        let action = "s3:PutObjectAcl";
        policy.judge_list(&Request { who: None, action, key, facts: &facts })
    };
    let asked = r#"{"StringEquals": {"s3:x-amz-acl": "bucket-owner-full-control"}}"#;
    assert_eq!(decision(asked, ""), Decision::Allowed);
    assert_eq!(decision("{}", ""), Decision::Silent);
    assert_eq!(decision(&asked.replace("bucket-owner-full-control", "x"), ""), Decision::Silent);
    let unlike = asked.replace("StringEquals", "StringNotEquals");
    assert_eq!(decision(&unlike.replace("bucket-owner-full-control", "x"), ""), Decision::Silent);
    let denial = r#", {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObjectAcl",
        "Resource": "arn:aws:s3:::lake/*"}"#;
    assert_eq!(decision(asked, denial), Decision::Denied);
}

#[test]
fn a_denial_counts_more() {
    let denial = r#"{"Effect": "Deny", "NotPrincipal": {"AWS": "me"}, "NotAction": "s3:List*",
        "Resource": ["arn:aws:s3:::lake", "arn:aws:s3:::lake/*"]}"#;
    let both = format!("{READ}, {denial}");
    assert_eq!(judge(&both, None, "s3:GetObject", Some("open/a")), Decision::Denied);
    assert_eq!(judge(&both, Some("me"), "s3:GetObject", Some("open/a")), Decision::Allowed);
    assert_eq!(judge(&both, None, "s3:ListBucket", None), Decision::Silent);
}

#[test]
fn conditions_narrow() {
    let with = |condition: &str| {
        READ.replace("\"Resource\"", &format!("\"Condition\": {condition}, \"Resource\""))
    };
    let holds = |condition: &str, facts: &[(&str, &str)]| {
        judge_with(&with(condition), None, "s3:GetObject", Some("open/a"), facts)
            == Decision::Allowed
    };
    let tag = r#"{"StringEquals": {"s3:ExistingObjectTag/security": "public"}}"#;
    assert!(holds(tag, &[("s3:ExistingObjectTag/security", "public")]));
    assert!(!holds(tag, &[("s3:ExistingObjectTag/security", "private")]) && !holds(tag, &[]));
    let if_exists = tag.replace("Equals", "EqualsIfExists");
    assert!(holds(&if_exists, &[]));
    let not = r#"{"StringNotEquals": {"s3:x-amz-acl": ["public-read", "public-read-write"]}}"#;
    assert!(holds(not, &[]) && holds(not, &[("s3:x-amz-acl", "private")]));
    assert!(!holds(not, &[("s3:x-amz-acl", "public-read")]));
    let net = r#"{"IpAddress": {"aws:SourceIp": "10.1.0.0/16"}}"#;
    assert!(holds(net, &[("aws:SourceIp", "10.1.255.1")]));
    assert!(!holds(net, &[("aws:SourceIp", "10.2.0.1")]));
    let all = r#"{"ForAllValues:StringLike": {"s3:RequestObjectTagKeys": ["a*"]}}"#;
    assert!(holds(all, &[("s3:RequestObjectTagKeys", "ab")]));
    assert!(!holds(all, &[("s3:RequestObjectTagKeys", "ab"), ("s3:RequestObjectTagKeys", "b")]));
    let spelt = |operator: &str, wanted: &str| {
        let text = with(&format!(r#"{{"{operator}": {{"s3:x-amz-copy-source": "{wanted}"}}}}"#));
        let text = format!(r#"{{"Statement": {text}}}"#);
        let mut facts = Facts::default();
        facts.put_spelt("s3:x-amz-copy-source", vec!["old/a".to_string(), "lake/a".to_string()]);
        let policy = Policy::parse(&text, lake()).unwrap();
        let (action, key) = ("s3:GetObject", Some("open/a"));
        policy.judge(&Request { who: None, action, key, facts: &facts }) == Decision::Allowed
    };
    for bucket in ["lake", "old"] {
        let source = format!("{bucket}/*");
        assert!(spelt("StringLike", &source) && !spelt("StringNotLike", &source), "{bucket}");
    }
    assert!(!spelt("StringLike", "new/*") && spelt("StringNotLike", "new/*"));
    let null = r#"{"Null": {"s3:x-amz-server-side-encryption": "true"}}"#;
    assert!(holds(null, &[]) && !holds(null, &[("s3:x-amz-server-side-encryption", "AES256")]));
    let keys = r#"{"NumericLessThanEquals": {"s3:max-keys": 10}}"#;
    assert!(holds(keys, &[("s3:max-keys", "10")]) && !holds(keys, &[("s3:max-keys", "11")]));
}

#[test]
fn a_policy_that_lets_everybody_in_is_public() {
    let is_public = |statement: &str| {
        let text = format!(r#"{{"Statement": {statement}}}"#);
        Policy::parse(&text, lake()).unwrap().is_public()
    };
    assert!(is_public(READ));
    assert!(!is_public(&READ.replace("Allow", "Deny")));
    assert!(!is_public(&READ.replace(r#""*""#, r#"{"AWS": "me"}"#)));
    let from = r#""Condition": {"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}, "Resource""#;
    assert!(!is_public(&READ.replace("\"Resource\"", from)));
}

#[test]
fn what_cannot_be_judged_is_refused() {
    for wrong in [
        "",
        "[]",
        "{}",
        r#"{"Statement": []}"#,
        &format!(r#"{{"Statement": [{}]}}"#, READ.replace("Allow", "Perhaps")),
        &format!(r#"{{"Statement": [{}]}}"#, READ.replace("s3:GetObject", "ec2:Run")),
        &format!(r#"{{"Statement": [{}]}}"#, READ.replace(":::lake", ":::other")),
        &format!(r#"{{"Statement": [{}]}}"#, READ.replace("\"Action\"", "\"Act\"")),
        &format!(
            r#"{{"Statement": [{}]}}"#,
            READ.replace(
                "\"Effect\"",
                r#""Condition": {"StringEquals": {"s3:odd": "x"}}, "Effect""#
            )
        ),
        &format!(
            r#"{{"Statement": [{}]}}"#,
            READ.replace("\"Effect\"", r#""Condition": {"Guess": {"s3:prefix": "x"}}, "Effect""#)
        ),
    ] {
        let error = Policy::parse(wrong, lake()).unwrap_err();
        assert_eq!(error.code().as_str(), "MalformedPolicy", "{wrong}");
    }
}

proptest! {
    #[test]
    fn a_pattern_without_wildcards_stands_for_itself(
        text in "[a-z/.]{0,12}",
        other in "[a-z/.]{0,12}",
    ) {
        prop_assert!(stands_for(&text, &text));
        prop_assert_eq!(stands_for(&text, &other), text == other);
        let pattern = format!("{text}*");
        let longer = format!("{text}{other}");
        prop_assert!(stands_for(&pattern, &longer));
    }

    #[test]
    fn any_json_is_judged_or_refused(text in "\\PC{0,80}") {
        if let Ok(policy) = Policy::parse(&text, lake()) {
            policy.is_public();
        }
    }
}

#[test]
fn what_could_never_be_met_is_malformed() {
    let parse = |text: &str| Policy::parse(text, lake()).is_ok();
    let policy = |version: &str, principal: &str, condition: &str| {
        format!(
            r#"{{"Version": "{version}", "Statement": {{"Effect": "Allow",
                "Principal": {principal}, "Action": "s3:GetObject",
                "Resource": "arn:aws:s3:::lake/*", "Condition": {condition}}}}}"#
        )
    };
    let of = |condition: &str| parse(&policy("2012-10-17", "\"*\"", condition));
    for good in [
        r#"{"NotIpAddress": {"aws:SourceIp": ["10.0.0.0/8", "::1", "10.1.2.3/32", "::/0"]}}"#,
        r#"{"NumericLessThan": {"s3:max-keys": "10"}, "Null": {"s3:prefix": "true"}}"#,
        "{}",
    ] {
        assert!(of(good), "{good}");
    }
    for odd in [
        r#"{"NotIpAddress": {"aws:SourceIp": "10.0.0"}}"#,
        r#"{"IpAddress": {"aws:SourceIp": "10.0.0.0/33"}}"#,
        r#"{"IpAddress": {"aws:SourceIp": "10.0.0.0/"}}"#,
        r#"{"NumericLessThan": {"s3:max-keys": "ten"}}"#,
        r#"{"Null": {"s3:prefix": "maybe"}}"#,
    ] {
        assert!(!of(odd), "{odd}");
    }
    assert!(parse(&policy("2008-10-17", r#"{"AWS": "me"}"#, "{}")));
    for (version, principal) in [
        ("2012-10-18", "\"*\""),
        ("", "\"*\""),
        ("2012-10-17", "\"\""),
        ("2012-10-17", r#"{"AWS": []}"#),
    ] {
        assert!(!parse(&policy(version, principal, "{}")), "{version} {principal}");
    }
}

#[test]
fn a_bucket_is_meant_under_each_of_its_names() {
    let names = || vec!["lake".to_string(), "old".to_string()];
    let facts = Facts::default();
    let judge = |text: &str, key| {
        let policy = Policy::parse(text, names()).unwrap();
        let key = Some(key);
        policy.judge(&Request { who: None, action: "s3:GetObject", key, facts: &facts })
    };
    let of = |resource: &str| {
        format!(
            r#"{{"Statement": {{"Effect": "Deny", "Principal": "*", "Action": "s3:*",
            {resource}}}}}"#
        )
    };
    for name in ["lake", "old", "l*", "ol?"] {
        let text = of(&format!(r#""Resource": "arn:aws:s3:::{name}/a""#));
        assert_eq!(judge(&text, "a"), Decision::Denied, "{name}");
        assert_eq!(judge(&text, "b"), Decision::Silent, "{name}");
        assert!(Policy::parse(&text, names()).unwrap().check_resources().is_ok());
        let other = of(&format!(r#""NotResource": "arn:aws:s3:::{name}/a""#));
        assert_eq!(judge(&other, "a"), Decision::Silent, "{name}");
        assert_eq!(judge(&other, "b"), Decision::Denied, "{name}");
    }
    // A name that the bucket has no more stands for nothing, and is not set anew; beside no other
    // it would let pass what was denied.
    let both = of(r#""Resource": ["arn:aws:s3:::gone/*", "arn:aws:s3:::lake/*"]"#);
    assert_eq!(judge(&both, "a"), Decision::Denied);
    assert!(Policy::parse(&both, names()).unwrap().check_resources().is_err());
    assert!(Policy::parse(&of(r#""Resource": "arn:aws:s3:::gone/*""#), names()).is_err());
}
