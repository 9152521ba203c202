//! An engine over a store that misbehaves, on the test's own runtime.

use super::Scripted;
use penstock_base::{Metric, Result, Settings};
use penstock_engine::{Engine, Location, Opener, Query, Reader, SeededRandom, StoreOption, Writer};
use penstock_store::{HttpOptions, PutOptions, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

#[derive(Debug)]
struct One(Arc<Scripted>);

impl Opener for One {
    fn root_of(&self, url: &str) -> Result<(String, String)> {
        let key = url.strip_prefix("mem://t/").expect("a test URL");
        Ok(("mem://t/".to_string(), key.to_string()))
    }

    fn open(
        &self,
        url: &str,
        _options: &[StoreOption],
        _http: Option<&HttpOptions>,
    ) -> Result<(Arc<dyn Store>, String)> {
        let key = url.strip_prefix("mem://t/").expect("a test URL");
        Ok((Arc::clone(&self.0) as Arc<dyn Store>, key.to_string()))
    }
}

/// An engine over one scripted store.
pub struct Bench {
    pub store: Arc<Scripted>,
    pub engine: Arc<Engine>,
}

impl Bench {
    pub fn new(store: Scripted) -> Self {
        Self::with(store, &[])
    }

    pub fn with(store: Scripted, settings: &[(&str, &str)]) -> Self {
        let mut all = Settings::default();
        for (name, value) in settings {
            all.set(name, value).unwrap();
        }
        Self::of(store, all)
    }

    /// With settings that may lie beyond the ranges of their table.
    pub fn of(store: Scripted, all: Settings) -> Self {
        let store = Arc::new(store);
        let opener = Arc::new(One(Arc::clone(&store)));
        let engine = Engine::on_runtime(
            all,
            Handle::current(),
            Arc::new(SeededRandom::new(1)),
            |observer| {
                *store.observer.lock().unwrap() = Some(observer);
                opener
            },
        );
        Bench { store, engine }
    }

    pub fn query(&self) -> Query {
        self.engine.query(self.engine.settings().clone(), None)
    }

    pub fn at(&self, key: &str) -> Location {
        self.engine.locate(&format!("mem://t/{key}"), &[]).unwrap()
    }
}

/// Bytes that differ from place to place.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// `len` bytes of an object from `offset` on.
pub async fn read(reader: &Reader, query: &Query, offset: usize, len: usize) -> Vec<u8> {
    let mut buf = vec![0; len];
    reader.read_at(query, &mut buf, offset as u64).await.unwrap();
    buf
}

pub fn create(bench: &Bench, query: &Query, key: &str) -> Writer {
    query.create(&bench.at(key), PutOptions::default()).unwrap()
}

/// Nothing is held and nothing is left to tidy up.
pub async fn assert_clean(bench: &Bench) {
    bench.engine.shutdown(Duration::from_secs(60)).await;
    assert_eq!(bench.engine.budget().held_bytes(), 0);
    assert_eq!(bench.engine.metrics().get(Metric::MemoryHeldNow), 0);
}
