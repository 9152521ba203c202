//! What URLs of volumes mean, and which there are.

use super::*;
use crate::open::Io;
use proptest::prelude::*;

fn parse(url: &str) -> Address {
    Address::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
}

fn refusal(url: &str) -> String {
    Address::parse(url).expect_err(url).to_string()
}

fn spill(directory: &str, file: Option<&str>) -> Place {
    Place::Temp { directory: directory.into(), file: file.map(str::to_string) }
}

#[test]
fn a_database_and_its_companions() {
    let plain = parse("nvme:///dev/ng0n1?db=sales");
    assert_eq!(plain.device, Path::new("/dev/ng0n1"));
    assert_eq!(plain.place, Place::Database("sales".into()));
    assert_eq!(plain.asked, Asked::default());
    for ending in ENDINGS {
        let companion = parse(&format!("nvme:///dev/ng0n1{ending}?db=sales"));
        assert_eq!(companion.device, plain.device);
        assert_eq!(companion.place, Place::Database(format!("sales{ending}")));
    }
    assert_eq!(parse("NVMe://disk.img?db=a b/c?d").database(), Some("a b/c?d"));
    assert_eq!(parse("nvme://disk.img").place, Place::Volume);
}

#[test]
fn a_place_to_spill_and_its_files() {
    let url = "nvme:///dev/ng0n1?temp";
    assert_eq!(parse(url).place, spill("", None));
    assert_eq!(parse(&format!("{url}/a.tmp")).place, spill("", Some("a.tmp")));
    assert_eq!(parse(&format!("{url}=x/a.tmp")).place, spill("x", Some("a.tmp")));
    // As DuckDB 2.0 writes them.
    let joined = parse("nvme:///dev/ng0n1/duckdb_temp_7_0_owner?temp=x&io=file");
    assert_eq!(joined.device, Path::new("/dev/ng0n1"));
    assert_eq!(joined.place, spill("x", Some("duckdb_temp_7_0_owner")));
    assert_eq!(joined.asked.io, Some(IoChoice::By(Io::File)));
    let url = "nvme:///dev/ng0n1?temp";
    let asked = parse(&format!("{url}=x&io=file/a.tmp"));
    assert_eq!(asked.place, spill("x", Some("a.tmp")));
    assert_eq!(asked.asked.io, Some(IoChoice::By(Io::File)));
}

#[test]
fn how_a_device_is_opened() {
    let asked = parse("nvme:///d?db=a&io=uring&queues=pool&depth=8&wait=poll").asked;
    let all = Asked {
        io: Some(IoChoice::By(Io::Uring)),
        discipline: Some(Discipline::Pool),
        queue_depth: Some(8),
        wait: Some(Wait::Poll),
    };
    assert_eq!(asked, all);
    assert_eq!(all.to_string(), "&io=uring&queues=pool&depth=8&wait=poll");
    let xnvme = parse("nvme:///d?db=a&io=xnvme:sync=nvme,async=libaio&depth=8").asked;
    assert_eq!(xnvme.to_string(), "&io=xnvme:async=libaio,sync=nvme&depth=8");
    let defaults = Asked::from_settings(&Settings::default()).expect("they are good");
    assert_eq!(defaults.io, Some(IoChoice::Auto));
    let mut settings = Settings::default();
    settings.set("nvme_queues", "pool").expect("a text");
    settings.set("nvme_wait", "poll").expect("a text");
    let set = Asked::from_settings(&settings).expect("it is known").unlike(defaults);
    let url = parse("nvme://x?depth=4&db=a").canonical(Path::new("/d"), set);
    assert_eq!(url.expect("a database"), "nvme:///d?db=a&queues=pool&depth=4&wait=poll");
}

#[test]
fn a_url_that_says_auto_wins_over_a_setting() {
    let mut settings = Settings::default();
    settings.set("nvme_io", "direct").expect("a text");
    let set = Asked::from_settings(&settings).expect("it is known");
    let form = |url: &str| {
        let unlike = set.unlike(Asked::from_settings(&Settings::default()).expect("good"));
        parse(url).canonical(Path::new("/d"), unlike).expect("a database")
    };
    assert_eq!(form("nvme://x?db=a"), "nvme:///d?db=a&io=direct");
    assert_eq!(form("nvme://x?io=auto&db=a"), "nvme:///d?db=a&io=auto");
    // Who opens it has the setting too, and no other place to look.
    assert_eq!(parse("nvme:///d?db=a&io=auto").asked.or(set).io, Some(IoChoice::Auto));
}

#[test]
fn all_urls_of_a_file_have_one_form_which_means_it_too() {
    for (urls, form) in [
        (["NVMe://x?db=a", "nvme://y?db=a"], "nvme:///d?db=a"),
        (["nvme://x.wal?depth=4&db=a", "nvme://x?db=a&depth=4.wal"], "nvme:///d.wal?db=a&depth=4"),
        (
            ["nvme://x?db=a.wal.recovery", "nvme://x.wal.recovery?db=a"],
            "nvme:///d.wal.recovery?db=a",
        ),
        (["nvme://x?temp", "nvme://x?temp="], "nvme:///d?temp"),
        (["nvme://x?temp=t&io=file", "nvme://x?io=file&temp=t/"], "nvme:///d?io=file&temp=t"),
        (["nvme://x?temp=t/f.wal", "nvme://x?temp=t/f.wal"], "nvme:///d?temp=t/f.wal"),
        (
            ["nvme://x/duckdb_temp_1?temp=t", "nvme://x?temp=t/duckdb_temp_1"],
            "nvme:///d?temp=t/duckdb_temp_1",
        ),
    ] {
        for url in urls {
            let address = Address::parse_any(url).expect(url);
            let canonical = address.canonical(Path::new("/d"), Asked::default()).expect(url);
            assert_eq!(canonical, form, "{url}");
            let again = parse(&canonical);
            assert_eq!((again.place, again.asked), (address.place, address.asked), "{url}");
        }
    }
    assert!(Address::parse_any("nvme://x?db=a.wal.wal").is_err());
}

#[test]
fn what_is_wrong_is_told() {
    for (url, told) in [
        ("s3://bucket?db=a", "nvme://"),
        ("nvme://?db=a", "names no device"),
        ("nvme:///d?db=", "1 to 233 bytes"),
        ("nvme:///d?db=a&db=b", "db twice"),
        ("nvme:///d?db=a.import", "not names of databases"),
        ("nvme:///d?db=a.wal", "names of databases"),
        ("nvme:///d?db=temp/a", "names of databases"),
        // What DuckDB asks for where `d?db=a.wal` and its like are attached.
        ("nvme:///d.wal.wal?db=a", "….wal are not names of databases"),
        ("nvme:///d.wal.checkpoint.wal?db=a", "….wal.checkpoint are not names of databases"),
        ("nvme:///d.wal.recovery.wal?db=a", "….wal.recovery are not names of databases"),
        ("nvme:///d?db=a&temp", "both db and temp"),
        ("nvme:///d?db=a&io=urin", "Did you mean uring"),
        ("nvme:///d?db=a&io=quantum", "passthrough, auto, xnvme:BACKEND"),
        ("nvme:///d?db=a&queues=threads", "Did you mean thread"),
        ("nvme:///d?db=a&queue=thread", "Did you mean queues"),
        ("nvme:///d?db=a&depth=many", "no number"),
        ("nvme:///d?db=a&wait=pol", "Did you mean poll"),
    ] {
        assert!(refusal(url).contains(told), "{url}: {}", refusal(url));
    }
    let address = parse("nvme:///d?db=a");
    for device in ["/x.wal", "/x?y", "/duckdb_temp_x"] {
        let refused = address.canonical(Path::new(device), Asked::default());
        assert!(refused.expect_err(device).to_string().contains("no URL leads here"), "{device}");
    }
}

proptest! {
    /// What may be imported can be attached: a URL with the name means a database of that name.
    #[test]
    fn a_name_that_a_database_may_have_is_one_that_a_url_can_say(
        name in prop_oneof![
            any::<String>(),
            "[a&=?/.%# '\"ü]{1,12}",
            "(temp/|temp|db=|io=)?[a-c/]{0,3}(\\.wal|\\.import|\\.wal\\.recovery)?",
        ]
    ) {
        let url = format!("nvme:///dev/ng0n1?db={name}");
        let place = Address::parse(&url).map(|address| address.place);
        match check_name(&name, &name) {
            Ok(()) => prop_assert_eq!(place.expect("it has a URL"), Place::Database(name)),
            Err(_) => prop_assert!(place.ok() != Some(Place::Database(name))),
        }
    }
}

#[test]
fn a_file_that_is_replaced_stays_on_its_volume() {
    for name in ["orders.parquet", "a/b", "a\\b", "//", "..", ".x.", "a b%2Fc", "tmp_x", "ü?=#"] {
        let url = format!("nvme://disk.img?io=file&db={name}&depth=8");
        let replaced = Address::replaced(&url).expect("it names a file");
        assert_eq!(parse(&replaced), parse(&url), "{replaced}");
        // As DuckDB 1.5 and 2.0 write beside it (GetFilePath and GetFileName of string_util.cpp).
        let (directory, file) = replaced.rsplit_once(['/', '\\']).expect("it has slashes");
        assert!(directory.ends_with('=') && !file.is_empty(), "{replaced}");
        let beside = parse(&format!("{directory}/tmp_{file}"));
        assert_eq!(beside, parse(&format!("nvme://disk.img?io=file&db=tmp_{name}&depth=8")));
        let told = Address::to_replace(&format!("{directory}/tmp_{file}"));
        assert_eq!(told.as_deref(), Some(name));
    }
    for other in ["db=tmp_a", "file=/a", "temp/tmp_a", "file=/a/tmp_b", "file=/tmp_%2"] {
        assert_eq!(Address::to_replace(&format!("nvme:///d?{other}")), None, "{other}");
    }
    assert_eq!(Address::to_replace("nvme:///file=/tmp_a"), None);
    assert_eq!(Address::replaced("nvme:///d?db=a").expect("a file"), "nvme:///d?file=/a");
    for wrong in ["nvme:///d?temp", "nvme:///d", "nvme:///d?db=a&file=/b", "nvme:///d?file=/b&db=a"]
    {
        Address::replaced(wrong).expect_err(wrong);
    }
    for wrong in
        ["file=a", "file=/", "file=/%2", "file=/%zz", "file=/%+1", "file=/a.wal", "file=/%FF"]
    {
        refusal(&format!("nvme:///d?{wrong}"));
    }
}
