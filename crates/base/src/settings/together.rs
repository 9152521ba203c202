//! Settings that contradict each other, and what is told of them. Pure.
//!
//! A value by itself is judged where it is set. Two are judged when they are used: whoever changes
//! both has to change one first, in whichever order.

use super::{SettingType, Settings, spec};
use crate::{ByteSize, Error, Kind, Result};

impl Settings {
    /// Judges settings that cannot both be meant.
    ///
    /// # Errors
    /// `Invalid`, with both names and values.
    pub fn check_together(&self) -> Result<()> {
        for (name, value, most_name, most) in [
            ("retry_base_ms", self.retry_base_ms, "retry_max_ms", self.retry_max_ms),
            (
                "cache_memory_bytes",
                self.cache_memory_bytes,
                "memory_limit_bytes",
                self.memory_limit_bytes,
            ),
        ] {
            if value > most {
                return Err(contradiction((name, value), (most_name, most)));
            }
        }
        Ok(())
    }
}

#[cold]
fn contradiction((name, value): (&str, u64), (most_name, most): (&str, u64)) -> Error {
    let shown = |name: &str, value: u64| match spec(name).map(|row| row.setting_type) {
        Ok(SettingType::Bytes) => ByteSize(value).to_string(),
        Ok(SettingType::Millis) => format!("{value} ms"),
        _ => value.to_string(),
    };
    let (value, most) = (shown(name, value), shown(most_name, most));
    let why = format!(
        "the settings `{name}` and `{most_name}` contradict each other: {value} is more than {most}"
    );
    let hint = format!(
        "Set {name} to {most} or less, or {most_name} to {value} or more; what is not set has its \
         default"
    );
    Error::new(Kind::Invalid, why).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(settings: &[(&str, &str)]) -> Settings {
        let mut all = Settings::default();
        for (name, value) in settings {
            all.set(name, value).unwrap();
        }
        all
    }

    #[test]
    fn a_contradiction_names_both_settings_and_their_values() {
        let error = with(&[("retry_max_ms", "50")]).check_together().unwrap_err();
        let told = "`retry_base_ms` and `retry_max_ms` contradict each other: \
                    100 ms is more than 50 ms";
        assert!(error.to_string().contains(told), "{error}");
        let hint = "Set retry_base_ms to 50 ms or less, or retry_max_ms to 100 ms or more";
        assert!(error.hint().unwrap().contains(hint), "{error}");
        let error = with(&[("cache_memory_bytes", "2GiB")]).check_together().unwrap_err();
        let told = "`cache_memory_bytes` and `memory_limit_bytes` contradict each other: \
                    2GiB is more than 1GiB";
        assert!(error.to_string().contains(told), "{error}");
    }

    #[test]
    fn what_is_equal_or_in_order_is_none() {
        for settings in [
            &[][..],
            &[("retry_max_ms", "100")],
            &[("retry_base_ms", "1"), ("retry_max_ms", "1")],
            &[("cache_memory_bytes", "1GiB")],
            &[("cache_memory_bytes", "4GiB"), ("memory_limit_bytes", "8GiB")],
        ] {
            assert!(with(settings).check_together().is_ok(), "{settings:?}");
        }
    }
}
