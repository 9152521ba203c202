//! Settings that contradict each other, and what is told of them. Pure.
//!
//! A value by itself is judged where it is set. Two are judged when they are used: whoever changes
//! both has to change one first, in whichever order.
//!
//! Two contradict each other where what one asks for the other makes impossible. Of two bounds of
//! the same thing the lesser holds (the fan-out of one read and the helpers of all, a wait for one
//! byte and the deadline of the request, connections opened early and all of them): whoever lowers
//! one means just that. What has no effect without another setting says so in its description.

use super::{SERVE_TABLE, ServeSettings, SettingSpec, SettingType, Settings, TABLE};
use crate::door::setting;
use crate::{ByteSize, Error, Kind, Result};

impl Settings {
    /// Judges settings that cannot both be meant.
    ///
    /// # Errors
    /// `Invalid`, with both names and values.
    pub fn check_together(&self) -> Result<()> {
        let memory = ("memory_limit_bytes", self.memory_limit_bytes);
        for (one, most) in [
            (("retry_base_ms", self.retry_base_ms), ("retry_max_ms", self.retry_max_ms)),
            (("cache_memory_bytes", self.cache_memory_bytes), memory),
            (("part_size_bytes", self.part_size_bytes), memory),
        ] {
            check_order(TABLE, one, most)?;
        }
        Ok(())
    }
}

impl ServeSettings {
    /// Judges settings of a server that cannot both be meant.
    ///
    /// # Errors
    /// `Invalid`, with both names and values.
    pub fn check_together(&self) -> Result<()> {
        let form = ("form_size_max_bytes", self.form_size_max_bytes);
        check_order(SERVE_TABLE, form, ("body_size_max_bytes", self.body_size_max_bytes))?;
        // Of port 0 each gets another one.
        if self.listen == self.admin_listen && !self.listen.ends_with(":0") {
            let (listen, admin) = (setting("listen"), setting("admin_listen"));
            let why = format!(
                "the settings `{listen}` and `{admin}` contradict each other: both are {}",
                self.listen
            );
            let hint =
                format!("Give {admin} another port, or leave it empty, which serves no /metrics");
            return Err(Error::new(Kind::Invalid, why).with_hint(hint));
        }
        Ok(())
    }
}

/// That one value is no more than another.
fn check_order(table: &[SettingSpec], one: (&str, u64), most: (&str, u64)) -> Result<()> {
    match one.1 > most.1 {
        true => Err(contradiction(table, one, most)),
        false => Ok(()),
    }
}

#[cold]
fn contradiction(
    table: &[SettingSpec],
    (name, value): (&str, u64),
    (most_name, most): (&str, u64),
) -> Error {
    let shown = |name: &str, value: u64| {
        let row = table.iter().find(|row| row.name == name);
        match row.map(|row| row.setting_type) {
            Some(SettingType::Bytes) => ByteSize(value).to_string(),
            Some(SettingType::Millis) => format!("{value} ms"),
            _ => value.to_string(),
        }
    };
    let (value, most) = (shown(name, value), shown(most_name, most));
    let (one_called, most_called) = (setting(name), setting(most_name));
    let why = format!(
        "the settings `{one_called}` and `{most_called}` contradict each other: {value} is more \
         than {most}"
    );
    // One limit's default depends on the machine: who set nothing has to know where it is from.
    let default = match most_name {
        "memory_limit_bytes" => "its default, of memory half of the machine's or container's",
        _ => "its default",
    };
    let hint = format!(
        "Set {one_called} to {most} or less, or {most_called} to {value} or more; what is not set \
         has {default}"
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
        let told = "`penstock_retry_base_ms` and `penstock_retry_max_ms` contradict each other: \
                    100 ms is more than 50 ms";
        assert!(error.to_string().contains(told), "{error}");
        let hint =
            "Set penstock_retry_base_ms to 50 ms or less, or penstock_retry_max_ms to 100 ms";
        assert!(error.hint().unwrap().contains(hint), "{error}");
        let error = with(&[("cache_memory_bytes", "2GiB")]).check_together().unwrap_err();
        let told = "`penstock_cache_memory_bytes` and `penstock_memory_limit_bytes` contradict \
                    each other: 2GiB is more than 1GiB";
        assert!(error.to_string().contains(told), "{error}");
        let settings = [("part_size_bytes", "256MiB"), ("memory_limit_bytes", "128MiB")];
        let error = with(&settings).check_together().unwrap_err();
        let told = "`penstock_part_size_bytes` and `penstock_memory_limit_bytes` contradict each \
                    other: 256MiB is more than 128MiB";
        assert!(error.to_string().contains(told), "{error}");
    }

    #[test]
    fn those_of_a_server_are_judged_too() {
        let serve = ServeSettings { body_size_max_bytes: 1 << 20, ..ServeSettings::default() };
        let error = serve.check_together().unwrap_err();
        let told = "`form_size_max_bytes` and `body_size_max_bytes` contradict each other: \
                    16MiB is more than 1MiB";
        assert!(error.to_string().contains(told), "{error}");
        let hint = "Set form_size_max_bytes to 1MiB or less, or body_size_max_bytes to 16MiB";
        assert!(error.hint().unwrap().contains(hint), "{error}");
        let on = |listen: &str, admin_listen: &str| {
            let (listen, admin_listen) = (listen.to_string(), admin_listen.to_string());
            ServeSettings { listen, admin_listen, ..ServeSettings::default() }.check_together()
        };
        let error = on("0.0.0.0:9000", "0.0.0.0:9000").unwrap_err();
        assert!(error.to_string().contains("both are 0.0.0.0:9000"), "{error}");
        assert!(error.hint().unwrap().contains("admin_listen"), "{error}");
        assert!(on("0.0.0.0:9000", "0.0.0.0:9001").is_ok());
        assert!(on("127.0.0.1:0", "127.0.0.1:0").is_ok());
        assert!(ServeSettings::default().check_together().is_ok());
    }

    #[test]
    fn what_is_equal_or_in_order_is_none() {
        for settings in [
            &[][..],
            &[("retry_max_ms", "100")],
            &[("retry_base_ms", "1"), ("retry_max_ms", "1")],
            &[("cache_memory_bytes", "1GiB")],
            &[("cache_memory_bytes", "4GiB"), ("memory_limit_bytes", "8GiB")],
            &[("part_size_bytes", "64MiB"), ("memory_limit_bytes", "64MiB")],
            // The lesser of two bounds holds.
            &[("parallel_read_io_threads", "1"), ("parallel_read_max_fanout", "256")],
            &[("connections_per_host", "1"), ("warm_connections_max", "1024")],
            &[("request_deadline_ms", "1"), ("stall_timeout_ms", "3600000")],
        ] {
            assert!(with(settings).check_together().is_ok(), "{settings:?}");
        }
    }
}
