//! How many objects the engine remembers size and ETag of: none where no answer comes of it.
//!
//! A gateway that keeps no bytes asks its back end for each read, and each write is a name more. As
//! many as an engine remembers otherwise were memory that grows with the names that pass, for
//! nothing.

use penstock_base::Settings;
use penstock_base::settings::Validation;

/// Whether a disk or memory keeps bytes.
pub(crate) fn keeps_bytes(settings: &Settings) -> bool {
    !settings.cache_dir.is_empty() || settings.cache_memory_bytes > 0
}

/// Most objects that are remembered with these settings.
pub(crate) fn objects_max(settings: &Settings) -> u64 {
    let is_told_unasked = matches!(settings.cache_validation, Validation::Time | Validation::Never);
    match is_told_unasked || keeps_bytes(settings) {
        true => settings.metadata_cache_entries,
        false => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_remembered_where_answers_come_of_it() {
        let plain = Settings::default();
        let most = plain.metadata_cache_entries;
        assert!(most > 0);
        assert_eq!(objects_max(&plain), 0);
        let asked = Settings { cache_validation: Validation::Always, ..plain.clone() };
        assert_eq!(objects_max(&asked), 0);
        for cache_validation in [Validation::Time, Validation::Never] {
            assert_eq!(objects_max(&Settings { cache_validation, ..plain.clone() }), most);
        }
        let on_disk = Settings { cache_dir: "/cache".into(), ..asked.clone() };
        let in_memory = Settings { cache_memory_bytes: 1, ..asked };
        assert_eq!([objects_max(&on_disk), objects_max(&in_memory)], [most; 2]);
    }
}
