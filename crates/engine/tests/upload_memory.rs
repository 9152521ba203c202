//! Writing within the memory limit.

use crate::support::{Bench, Scripted, assert_clean, create, pattern};
use penstock_engine::Writer;
use std::time::Duration;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The limit holds although a hundred files are open, fed in turn by one thread that nothing else
/// would ever wake.
#[tokio::test(start_paused = true)]
async fn a_hundred_writers_stay_within_the_limit_where_blocks_may_be_small() {
    let bench = Bench::with(Scripted::like_azure(), &[("memory_limit_bytes", "64MiB")]);
    let query = bench.query();
    let mut writers: Vec<Writer> =
        (0..100).map(|index| create(&bench, &query, &format!("p/{index}"))).collect();
    let piece = pattern(100 * KIB);
    let mut most = 0;
    for _ in 0..20 {
        for writer in &mut writers {
            writer.write(&piece).await.unwrap();
            most = most.max(bench.engine.budget().held_bytes());
        }
    }
    assert!(most <= 64 << 20, "{most}");
    assert!(most > 48 << 20, "the limit was reached: {most}");
    for mut writer in writers {
        writer.finish_detached().unwrap();
    }
    query.barrier().await.unwrap();
    let expected = piece.repeat(20);
    for index in [0, 57, 99] {
        assert!(bench.store.content(&format!("p/{index}")).await.unwrap() == expected);
    }
    assert_clean(&bench).await;
}

/// Where parts have a smallest size, the limit is exceeded only by parts smaller than that.
#[tokio::test(start_paused = true)]
async fn a_hundred_writers_never_wait_for_each_other_for_ever() {
    let bench = Bench::with(Scripted::new(), &[("memory_limit_bytes", "64MiB")]);
    let query = bench.query();
    let mut writers: Vec<Writer> =
        (0..100).map(|index| create(&bench, &query, &format!("p/{index}"))).collect();
    let piece = pattern(100 * KIB);
    let mut most = 0;
    for _ in 0..80 {
        for writer in &mut writers {
            writer.write(&piece).await.unwrap();
            most = most.max(bench.engine.budget().held_bytes());
        }
    }
    assert!(most <= (64 + 100 * 6) << 20, "{most}");
    for mut writer in writers {
        writer.finish().await.unwrap();
    }
    assert!(bench.store.content("p/99").await.unwrap() == piece.repeat(80));
    assert_clean(&bench).await;
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_memory_on_its_way_and_goes_on_when_it_is_back() {
    let settings = [("memory_limit_bytes", "64MiB"), ("upload_concurrency", "64")];
    let bench = Bench::with(Scripted::new(), &settings);
    let query = bench.query();
    let gate = bench.store.hold("part");
    let mut writer = create(&bench, &query, "a");
    let data = pattern(100 * MIB);
    let open = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held = bench.engine.budget().held_bytes();
        assert_eq!(held, 64 << 20, "the writer fills the limit and then waits");
        gate.add_permits(100);
    };
    let (written, ()) = tokio::join!(writer.write(&data), open);
    written.unwrap();
    writer.finish().await.unwrap();
    assert!(bench.store.content("a").await.unwrap() == data);
    assert_clean(&bench).await;
}
