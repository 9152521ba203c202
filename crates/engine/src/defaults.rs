//! Defaults that depend on where the process runs. It decides how much of the machine's memory, or
//! its container's, the memory limit takes where nobody says how much.

use crate::budget::Machine;
use penstock_base::settings::{SettingSpec, spec};
use penstock_base::{ByteSize, Settings};
use std::sync::OnceLock;

/// The memory limit is one part in so many of the memory that there is, where its default is more:
/// the rest is for DuckDB, or the clients of a gateway.
const LIMIT_PARTS: u64 = 2;
/// Its unit: so much is told as a round number.
const STEP_BYTES: u64 = 1 << 20;
const MEMORY_LIMIT: &str = "memory_limit_bytes";

/// The memory limit where there is so much memory, if the kernel tells.
fn memory_limit(default: u64, least: u64, total: Option<u64>) -> u64 {
    let part = |total: u64| total / LIMIT_PARTS / STEP_BYTES * STEP_BYTES;
    total.map_or(default, |total| part(total).clamp(least, default.max(least)))
}

/// The default of a setting in this process, as text; it stays the same as long as that runs.
pub fn default_here(row: &SettingSpec) -> &'static str {
    static HERE: OnceLock<String> = OnceLock::new();
    if row.name != MEMORY_LIMIT {
        return row.default;
    }
    HERE.get_or_init(|| {
        let default = Settings::default().memory_limit_bytes;
        let least = row.range.map_or(0, |range| range.0);
        let total = Machine::now().map(|machine| machine.total);
        ByteSize(memory_limit(default, least, total)).to_string()
    })
}

/// The settings of this process as long as nobody changes any.
pub fn settings_here() -> Settings {
    let mut settings = Settings::default();
    let row = spec(MEMORY_LIMIT).expect("the table has a memory limit");
    settings.set(row.name, default_here(row)).expect("its default is a value that the table takes");
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_base::settings::TABLE;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_small_container_has_a_small_limit() {
        let limit = |mib: u64| memory_limit(1024 * MIB, 64 * MIB, Some(mib * MIB)) / MIB;
        assert_eq!([24_000, 2048, 1025, 512, 100].map(limit), [1024, 1024, 512, 256, 64]);
        assert_eq!(memory_limit(1024 * MIB, 64 * MIB, None), 1024 * MIB, "nobody tells");
    }

    #[test]
    fn the_defaults_of_this_process_are_those_of_the_table_but_for_memory() {
        let (here, table) = (settings_here(), Settings::default());
        assert!((64 * MIB..=table.memory_limit_bytes).contains(&here.memory_limit_bytes));
        assert_eq!(Settings { memory_limit_bytes: table.memory_limit_bytes, ..here }, table);
        let rows = TABLE.iter().filter(|row| default_here(row) != row.default);
        assert!(rows.map(|row| row.name).all(|name| name == MEMORY_LIMIT));
    }

    proptest! {
        #[test]
        fn the_limit_leaves_half_and_is_a_value_of_the_table(total: u64) {
            let limit = memory_limit(1024 * MIB, 64 * MIB, Some(total));
            prop_assert!((64 * MIB..=1024 * MIB).contains(&limit));
            prop_assert!(limit == 64 * MIB || limit <= total / 2);
            prop_assert!(limit == 1024 * MIB || limit + MIB > total / 2);
        }
    }
}
