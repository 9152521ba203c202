//! Ends that come in the middle of something else, step by step.

use super::*;
use crate::engine::Engine;
use crate::location::StoreOption;
use crate::random::SeededRandom;
use crate::{Opener, Query, Writer};
use bytes::Bytes;
use penstock_base::Settings;
use penstock_store::memory::MemoryStore;
use penstock_store::{GetRequest, HttpOptions, PutOptions, Store};
use std::future::Future;
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

const PART_BYTES: usize = 64 << 10;

/// No URL is opened: the store is mounted.
#[derive(Debug)]
struct Unopened;

impl Opener for Unopened {
    fn root_of(&self, url: &str) -> Result<(String, String)> {
        Err(Error::new(Kind::Unsupported, url.to_string()))
    }

    fn open(
        &self,
        url: &str,
        _: &[StoreOption],
        _: Option<&HttpOptions>,
    ) -> Result<(Arc<dyn Store>, String)> {
        Err(Error::new(Kind::Unsupported, url.to_string()))
    }
}

struct Bench {
    store: Arc<MemoryStore>,
    query: Query,
    at: Location,
}

impl Bench {
    /// A store where something stands under the name already.
    async fn new() -> Self {
        let settings = Settings { part_size_bytes: PART_BYTES as u64, ..Settings::default() };
        let random = Arc::new(SeededRandom::new(1));
        let none = |_| Arc::new(Unopened) as Arc<dyn Opener>;
        let engine = Engine::on_runtime(settings.clone(), Handle::current(), random, none);
        let store = Arc::new(MemoryStore::new("t"));
        store.put("k", Bytes::from("old").into(), &PutOptions::default()).await.unwrap();
        let at = engine.mount(store.clone()).at("k");
        Bench { store, query: engine.query(settings, None), at }
    }

    fn writer(&self) -> Writer {
        self.query.create(&self.at, PutOptions::default()).unwrap()
    }

    async fn content(&self) -> Vec<u8> {
        let mut body = self.store.get("k", GetRequest::default()).await.unwrap().body;
        body.read_to_bytes(1 << 20).await.unwrap().to_vec()
    }
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Memory is short, and another thread has taken the part that fills but not yet begun to send it.
#[tokio::test(start_paused = true)]
async fn a_part_that_was_taken_is_waited_for_before_it_is_sent() {
    for parts in [0, 1] {
        let bench = Bench::new().await;
        let data = vec![b'n'; parts * PART_BYTES + PART_BYTES / 2];
        let mut writer = bench.writer();
        writer.write(&data).await.unwrap();
        let upload = writer.upload();
        let _ = upload.parts.subscribe().wait_for(|known| known.in_flight == 0).await;
        // As `press` does.
        let taken = upload.take_part(&mut upload.filling());
        let mut finishing = pin!(upload.finish());
        for _ in 0..100 {
            assert!(poll(finishing.as_mut()).is_pending(), "{parts}: it ends without the part");
            tokio::task::yield_now().await;
        }
        assert_eq!(bench.content().await, b"old", "{parts}");
        upload.send_part(taken);
        finishing.await.unwrap();
        assert!(bench.content().await == data, "{parts}");
    }
}

/// Whatever takes bytes away, a defect of ours is an error and no shorter object.
#[tokio::test(start_paused = true)]
async fn an_object_that_lacks_bytes_is_not_placed() {
    for parts in [0, 1] {
        let bench = Bench::new().await;
        let mut writer = bench.writer();
        writer.write(&vec![b'n'; parts * PART_BYTES + 100]).await.unwrap();
        drop(std::mem::take(&mut writer.upload().filling().buffer));
        let error = writer.finish().await.unwrap_err();
        assert_eq!(error.kind(), Kind::Internal, "{error}");
        for told in [bench.at.url(), "bytes were written".into(), "was not made".into()] {
            assert!(error.to_string().contains(&told), "{error}");
        }
        assert_eq!(bench.content().await, b"old", "{parts}");
    }
}
