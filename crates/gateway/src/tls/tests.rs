//! What files can serve, and what a reload does with those that cannot.

use super::*;
use std::sync::atomic::{AtomicU64, Ordering};

struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("penstock-gateway-tls-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Dir(path)
    }

    fn files(&self) -> TlsFiles {
        TlsFiles { cert: self.0.join("cert.pem"), key: self.0.join("key.pem") }
    }

    fn write(&self, name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed(vec![name.to_string()]).unwrap();
        let (cert, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        std::fs::write(self.files().cert, &cert).unwrap();
        std::fs::write(self.files().key, &key).unwrap();
        (cert, key)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

fn served(tls: &Tls) -> Vec<u8> {
    tls.current.0.read().unwrap().cert[0].to_vec()
}

#[test]
fn a_reload_exchanges_the_certificate_and_a_bad_one_leaves_the_old() {
    let dir = Dir::new();
    dir.write("one.example");
    let tls = Tls::open(dir.files()).unwrap();
    let first = served(&tls);
    assert!(!tls.has_changed());
    let (second_cert, second_key) = dir.write("two.a-longer-name.example");
    assert!(tls.has_changed());
    tls.reload().unwrap();
    let second = served(&tls);
    assert!(!tls.has_changed() && first != second);
    // A certificate whose key has not come yet.
    dir.write("three.example");
    std::fs::write(dir.files().key, &second_key).unwrap();
    let error = tls.reload().unwrap_err();
    assert!(error.to_string().contains("not the key of the certificate"), "{error}");
    assert!(!error.to_string().contains("PRIVATE"), "{error}");
    assert_eq!(served(&tls), second);
    assert!(tls.has_changed(), "what could not be read is read again");
    std::fs::write(dir.files().cert, second_cert).unwrap();
    tls.reload().unwrap();
}

#[test]
fn files_that_cannot_serve_are_named() {
    let dir = Dir::new();
    let (cert, key) = dir.write("one.example");
    std::fs::write(dir.files().cert, "no certificate").unwrap();
    let error = check(&dir.files()).unwrap_err();
    assert!(error.to_string().contains("holds no certificate"), "{error}");
    std::fs::write(dir.files().cert, cert).unwrap();
    std::fs::write(dir.files().key, key.replace("PRIVATE", "PUBLIC")).unwrap();
    assert!(check(&dir.files()).unwrap_err().to_string().contains("key.pem"));
    std::fs::remove_file(dir.files().key).unwrap();
    assert_eq!(check(&dir.files()).unwrap_err().kind(), Kind::NotFound);
}
