//! Marked secrets through every verb and every trouble: no text that comes out holds a mark.

#![allow(clippy::unwrap_used)] // Helpers of tests fail as tests do.

use penstock_testkit::scratch::Scratch;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};

/// Stands in each secret. It is base64, as the signature of an account is.
const MARK: &str = "U0VDUkVU";

/// Every trouble is told soon.
const SHORT: [(&str, &str); 4] = [
    ("PENSTOCK_REQUEST_DEADLINE_MS", "200"),
    ("PENSTOCK_STALL_TIMEOUT_MS", "200"),
    ("PENSTOCK_CONNECT_TIMEOUT_MS", "500"),
    ("PENSTOCK_RETRY_BASE_MS", "10"),
];

/// What a server does with every request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    Refuses,
    Misses,
    /// Quotes the whole request, its headers included.
    Quotes,
    /// Sends a page of the web that quotes the URL.
    Page,
    /// Leads to a port on which nobody listens, with another signed URL.
    Redirects,
    /// Closes the connection without an answer.
    Cuts,
    /// Never answers.
    Stalls,
}

const TROUBLES: [Trouble; 7] = [
    Trouble::Refuses,
    Trouble::Misses,
    Trouble::Quotes,
    Trouble::Page,
    Trouble::Redirects,
    Trouble::Cuts,
    Trouble::Stalls,
];

fn start(trouble: Trouble) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(trouble, stream));
        }
    });
    address
}

fn answer(trouble: Trouble, mut stream: TcpStream) {
    let mut request = vec![0; 64 << 10];
    let Ok(count) = stream.read(&mut request) else { return };
    let head = String::from_utf8_lossy(&request[..count]).replace("\r\n", " ");
    let (status, more, body) = match trouble {
        Trouble::Refuses => ("403 Forbidden", String::new(), String::new()),
        Trouble::Misses => ("404 Not Found", String::new(), String::new()),
        Trouble::Quotes => {
            let quoted = head.replace('&', "&amp;").replace('<', "&lt;");
            let error = format!("<Error><Code>Odd</Code><Message>{quoted}</Message></Error>");
            ("400 Bad Request", String::new(), error)
        }
        Trouble::Page => {
            let page = format!("<html><body>{head}</body></html>");
            ("404 Not Found", "Content-Type: text/html\r\n".to_string(), page)
        }
        Trouble::Redirects => {
            let target = format!("http://127.0.0.1:1/y?sv=1&sig={MARK}&X-Amz-Signature={MARK}");
            ("302 Found", format!("Location: {target}\r\n"), String::new())
        }
        Trouble::Cuts => return,
        // Until the other end has gone.
        Trouble::Stalls => {
            while stream.read(&mut request).is_ok_and(|count| count > 0) {}
            return;
        }
    };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\n{more}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).ok();
}

/// URLs that hold secrets, each in another way, with the options to reach the server by.
fn urls(host: &str) -> Vec<(String, Vec<String>)> {
    let azure = format!("connection_string=BlobEndpoint=http://{host}/acc;AccountName=acc");
    let s3 = ["url_style=path".to_string(), "use_ssl=false".to_string()];
    let s3: Vec<String> = s3.into_iter().chain([format!("endpoint={host}")]).collect();
    let web = [
        format!("http://{host}/d/x?sv=1&se=2&sig={MARK}"),
        format!("http://{host}/d/x?sv=1&sig=+{MARK}+/="),
        format!("http://{host}/d/*.csv?sv=1&sig={MARK}"),
        format!(
            "http://{host}/x?X-Amz-Signature={MARK}&X-Amz-Credential={MARK}%2F2&X-Amz-Security-Token={MARK}"
        ),
        format!("http://{host}/x?AWSAccessKeyId={MARK}&Signature={MARK}%3D&Expires=1"),
        format!("http://{host}/x?X-Goog-Signature={MARK}&X-Goog-Credential={MARK}"),
        format!("http://{host}/x?access_token={MARK}&api_key={MARK}"),
        format!("http://{host}/x?hdnts=exp=1~hmac={MARK}&subscription-key={MARK}&pass-me={MARK}"),
        format!("http://user:{MARK}@{host}/x"),
        format!("https://{host}/x?sv=1&sig={MARK}"),
        format!("https://no-such-host.invalid/x?sv=1&sig={MARK}"),
        format!("http://{host}:x/x?sv=1&sig={MARK}"),
        format!("htp://{host}/x?sv=1&sig={MARK}"),
        format!("{host}/x?sv=1&sig={MARK}"),
    ];
    let az = ["k", "d/*.csv", ""].map(|key| format!("az://c/{key}?sv=1&se=2&sp=r&sig={MARK}"));
    let az_odd = [
        format!("az://c/dir?sv=1&sig={MARK}/name"),
        format!("az://c#/k?sv=1&sig={MARK}"),
        format!("abfss://c:{MARK}@acc.dfs.core.windows.invalid/k"),
    ];
    let in_s3 = [
        format!(
            "s3://b/k?s3_access_key_id={MARK}&s3_secret_access_key={MARK}&s3_session_token={MARK}"
        ),
        format!("s3://b/k?s3_secret_acces_key={MARK}"),
        format!("s3://AKIA:{MARK}/x@b/k"),
        format!("s3://b/k?X-Amz-Signature={MARK}"),
    ];
    let with = |options: &[String]| options.to_vec();
    let web = web.into_iter().map(|url| (url, with(&[])));
    let az = az.into_iter().chain(az_odd).map(|url| (url, with(std::slice::from_ref(&azure))));
    let in_s3 = in_s3.into_iter().map(|url| (url, with(&s3)));
    web.chain(az).chain(in_s3).collect()
}

/// Options that are secrets, each with a URL at which they are used.
fn credentials(host: &str) -> Vec<(String, Vec<String>)> {
    let s3 = format!("endpoint=http://{host}");
    let az = format!("endpoint=http://{host}/acc");
    let mut rows =
        vec![("http://x/k".to_string(), vec![format!("http_proxy=http://u:{MARK}@{host}")])];
    rows.push((format!("http://{host}/k"), vec![format!("bearer_token={MARK}")]));
    rows.push((format!("http://{host}/k"), vec![format!("extra_http_headers=X-Api-Key: {MARK}")]));
    for more in [
        vec![format!("key_id={MARK}"), format!("secret={MARK}"), format!("session_token={MARK}")],
        vec![format!("secrt={MARK}")],
        vec![format!("use_ssl=x?token={MARK}")],
    ] {
        let more = more.into_iter().chain([s3.clone(), "url_style=path".into()]);
        rows.push(("s3://b/k".to_string(), more.collect()));
    }
    for more in [
        format!("account_key={MARK}"),
        format!("account_key=?{MARK}"),
        format!("sas_token=sv=1&sig={MARK}"),
        format!("sas_token={MARK}"),
        format!("sas_token=https://other.blob.core.windows.net/c?sv=1&sig={MARK}"),
        format!("access_token={MARK}"),
        format!("connection_string=AccountName=acc;AccountKey={MARK}"),
        format!("connection_string=AccountName=acc;AcountKey={MARK}"),
        format!("connection_string={MARK}"),
    ] {
        let more = vec![more, az.clone(), "account_name=acc".to_string()];
        rows.push(("az://c/k".to_string(), more));
    }
    rows
}

fn run(verb: &[&str], options: &[String]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
    command.env_clear().envs(SHORT).args(verb);
    command.args(options.iter().flat_map(|option| ["-o", option]));
    command.output().unwrap()
}

/// What came out. It holds no mark, and is an error that names what to do.
fn judged(verb: &[&str], options: &[String]) -> String {
    let output = run(verb, options);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(!said.contains(MARK), "{verb:?} {options:?} shows a secret:\n{said}");
    assert!(!output.status.success(), "{verb:?} {options:?} does not fail:\n{said}");
    said
}

fn every_verb(own: &Scratch, url: &str, options: &[String]) {
    let source = own.path().join("source");
    let target = own.path().join("target");
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    for verb in [
        &["ls", url][..],
        &["stat", url],
        &["cat", url],
        &["get", url, target],
        &["put", source, url],
        &["cp", url, target],
        &["cp", source, url],
        &["cp", url, url],
        &["rm", url],
    ] {
        let is_removal = verb[0] == "rm";
        // A store may say that what is not there is removed.
        match is_removal {
            true => {
                let output = run(verb, options);
                let said = [output.stdout, output.stderr].concat();
                assert!(!String::from_utf8_lossy(&said).contains(MARK), "{verb:?}");
            }
            false => drop(judged(verb, options)),
        }
    }
}

#[test]
fn no_verb_shows_a_secret_of_a_url_whatever_goes_wrong() {
    let own = Scratch::new("secret-urls");
    std::fs::write(own.path().join("source"), "x").unwrap();
    let closed = "127.0.0.1:1".to_string();
    let hosts = TROUBLES.map(|trouble| start(trouble).to_string());
    for host in hosts.into_iter().chain([closed]) {
        for (url, options) in urls(&host) {
            judged(&["stat", &url], &options);
        }
    }
    let host = start(Trouble::Quotes).to_string();
    for (url, options) in urls(&host) {
        every_verb(&own, &url, &options);
    }
}

#[test]
fn no_verb_shows_a_credential_whatever_goes_wrong() {
    for trouble in TROUBLES {
        let host = start(trouble).to_string();
        for (url, options) in credentials(&host) {
            judged(&["stat", &url], &options);
        }
    }
}

#[test]
fn a_wrong_command_line_shows_no_secret() {
    let url = format!("https://h/x?sv=1&sig={MARK}");
    for verb in [
        &["ls", "s3://b/", &url][..],
        &["sttat", &url],
        &[&url],
        &["cat", "--range", &url, "s3://b/k"],
        &["stat", &url, "--optoin", "x"],
        &["stat", &format!("--option={url}")],
    ] {
        judged(verb, &[]);
    }
}

#[test]
fn variables_are_not_shown() {
    let host = start(Trouble::Quotes).to_string();
    let string = format!("BlobEndpoint=http://{host}/acc;AccountKey={MARK};AccountName=acc");
    for (url, variables) in [
        ("az://c/k", vec![("AZURE_STORAGE_CONNECTION_STRING", string)]),
        ("az://c/k", vec![("AZURE_STORAGE_CONNECTION_STRING", format!("Nonsense={MARK}"))]),
        (
            "s3://b/k",
            vec![
                ("AWS_ACCESS_KEY_ID", format!("AKIA{MARK}")),
                ("AWS_SECRET_ACCESS_KEY", MARK.to_string()),
                ("AWS_SESSION_TOKEN", MARK.to_string()),
                ("AWS_ENDPOINT_URL", format!("http://{host}")),
            ],
        ),
        ("http://x.invalid/k", vec![("HTTP_PROXY", format!("http://u:{MARK}@{host}"))]),
        ("http://x.invalid/k", vec![("HTTP_PROXY", format!("ftp://u:{MARK}@{host}"))]),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_penstock"));
        command.env_clear().envs(SHORT).envs(variables);
        let output = command.args(["stat", url]).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(!output.status.success() && !said.contains(MARK), "{url}: {said}");
    }
}
