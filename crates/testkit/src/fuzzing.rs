//! What the tests of every build do with the bodies that `fuzz/` feeds: any bytes, seeds that were
//! changed, and the seeds themselves.

/// How a seed is changed.
#[derive(Clone, Debug)]
pub struct Changes {
    /// Where, and what stands there instead.
    pub bytes: Vec<(u16, u8)>,
    /// From where so many bytes stand twice, one behind the other.
    pub repeat: (u16, u8),
    /// And all bytes from there once more at the end.
    pub is_repeated_at_end: bool,
    /// How much of it is left.
    pub len: u16,
}

impl Changes {
    /// A changed seed, which must not be empty.
    pub fn apply(&self, seed: &[u8]) -> Vec<u8> {
        let mut input = seed.to_vec();
        for (at, byte) in &self.bytes {
            let at = usize::from(*at) % input.len();
            input[at] = *byte;
        }
        let at = usize::from(self.repeat.0) % input.len();
        if self.is_repeated_at_end {
            input.extend_from_within(at..);
        }
        let end = input.len().min(at + usize::from(self.repeat.1));
        let stretch = input[at..end].to_vec();
        input.splice(at..at, stretch);
        input.truncate(usize::from(self.len) % (2 * input.len()));
        input
    }
}

/// Makes the tests of a table of bodies: rows of a name, a function of bytes and a seed. The crate
/// that calls it has proptest.
#[macro_export]
macro_rules! fuzzed {
    ($bodies:expr) => {
        proptest::proptest! {
            #[test]
            fn any_bytes_are_borne(
                input in proptest::collection::vec(proptest::arbitrary::any::<u8>(), 0..300),
            ) {
                for (_, body, _) in $bodies {
                    body(&input);
                }
            }

            #[test]
            fn what_is_nearly_right_is_borne(
                (bytes, repeat, is_repeated_at_end, len) in (
                    proptest::collection::vec(proptest::arbitrary::any::<(u16, u8)>(), 0..6),
                    (proptest::arbitrary::any::<u16>(), 0u8..80),
                    proptest::arbitrary::any::<bool>(),
                    proptest::arbitrary::any::<u16>(),
                ),
            ) {
                let changes =
                    $crate::fuzzing::Changes { bytes, repeat, is_repeated_at_end, len };
                for (_, body, seed) in $bodies {
                    body(&changes.apply(seed));
                }
            }
        }

        #[test]
        fn every_seed_is_borne_and_every_body_has_a_target() {
            let targets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets");
            for (name, body, seed) in $bodies {
                body(seed);
                let target = std::path::Path::new(targets).join(format!("{name}.rs"));
                assert!(target.exists(), "fuzz/fuzz_targets/{name}.rs");
            }
        }
    };
}
