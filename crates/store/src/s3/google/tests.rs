use super::*;
use proptest::prelude::*;

#[test]
fn each_class_has_one_other_name() {
    for (name, own) in CLASSES {
        assert_eq!(class(name), Some(*own));
        assert_eq!(told_class(own), *name);
    }
    // Their own names would be told as others.
    for other in ["NEARLINE", "COLDLINE", "GLACIER", "DEEP_ARCHIVE", "standard", ""] {
        assert_eq!(class(other), None, "{other}");
    }
    assert_eq!(told_class("MULTI_REGIONAL"), "MULTI_REGIONAL");
}

#[test]
fn a_generation_is_a_number_written_in_one_way() {
    for id in ["1", "1791390110617942", "9999999999999999999"] {
        assert!(is_generation(id) && number(id) > 0, "{id}");
    }
    for id in ["", "0", "012", "+1", "-1", "1 ", "null", "12345678901234567890", "٣"] {
        assert!(!is_generation(id), "{id}");
    }
    assert!(check_version("k").is_ok() && check_version("k\u{0}12").is_ok());
    let error = check_version("k\u{0}null").unwrap_err();
    assert_eq!((error.kind(), error.service_code()), (Kind::NotFound, Some("NoSuchVersion")));
}

proptest! {
    #[test]
    fn what_a_client_writes_is_what_it_is_told(
        asked in "[A-Z_]{1,20}|STANDARD|STANDARD_IA|GLACIER_IR|ARCHIVE",
    ) {
        if let Some(own) = class(&asked) {
            prop_assert_eq!(told_class(own), asked);
        }
    }
}
