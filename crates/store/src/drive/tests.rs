//! Waiting on the calling thread: who wakes it, and what it leaves alone.

use super::*;
use std::future::{pending, poll_fn, ready};
use std::io::Write;
use std::net::TcpListener;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;

const TICK: Duration = Duration::from_secs(60);

fn pair() -> (Arc<Watched>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (Arc::new(Watched::new(near)), listener.accept().unwrap().0)
}

/// Waits for the socket as its user does, once.
fn readable(socket: &Arc<Watched>) -> impl Future<Output = ()> {
    socket.clear_ready(Direction::Read);
    poll_fn(|context| {
        if socket.is_ready(Direction::Read) {
            return Poll::Ready(());
        }
        wait_here(socket, Direction::Read, context.waker());
        Poll::Pending
    })
}

#[test]
fn what_is_ready_needs_no_descriptor_and_asks_nobody() {
    assert!(!is_driving());
    let answer = block_on(ready(7), Duration::ZERO, || panic!("asked")).unwrap();
    assert_eq!(answer, Some(7));
    assert!(SIGNAL.with_borrow(|signal| signal.as_ref().unwrap().bell.get().is_none()));
    assert!(!is_driving());
}

#[test]
fn bytes_wake_the_thread_that_waits_for_them() {
    let (socket, mut far) = pair();
    let (idle, _far) = pair();
    let waiting = async {
        let quiet = readable(&idle);
        let loud = readable(&socket);
        far.write_all(b"x").unwrap();
        futures_util::future::select(pin!(quiet), pin!(loud)).await.factor_first().0
    };
    assert_eq!(block_on(waiting, TICK, || false).unwrap(), Some(()));
    assert!(!idle.is_ready(Direction::Read));
}

#[test]
fn other_threads_wake_it_asleep_or_not() {
    let (asked, questions) = mpsc::channel::<Waker>();
    let answering = std::thread::spawn(move || questions.iter().for_each(Waker::wake));
    for _ in 0..200 {
        let mut polls = 0;
        let twice = poll_fn(|context| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(());
            }
            asked.send(context.waker().clone()).unwrap();
            Poll::Pending
        });
        assert_eq!(block_on(twice, TICK, || false).unwrap(), Some(()));
    }
    drop(asked);
    answering.join().unwrap();
}

#[test]
fn a_future_that_never_ends_and_one_that_never_rests_are_ended() {
    let tick = Duration::from_millis(1);
    assert_eq!(block_on(pending::<()>(), tick, || true).unwrap(), None);
    let restless = poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    });
    assert_eq!(block_on(restless, tick, || true).unwrap(), None);
}

#[test]
fn a_socket_that_nobody_holds_is_closed_and_not_waited_for() {
    let (socket, far) = pair();
    let (other, mut other_far) = pair();
    let waiting = async {
        {
            let gone = pin!(readable(&socket));
            assert!(futures_util::poll!(gone).is_pending());
        }
        drop(socket);
        // The end of the stream has arrived: the socket is closed, though it was waited for.
        assert_eq!(far.peek(&mut [0]).unwrap(), 0);
        let next = readable(&other);
        other_far.write_all(b"x").unwrap();
        next.await;
    };
    assert_eq!(block_on(waiting, TICK, || false).unwrap(), Some(()));
}

#[test]
#[should_panic(expected = "inside another one")]
fn blocking_inside_is_refused() {
    let inside = async { block_on(ready(()), TICK, || false).unwrap() };
    let _ = block_on(inside, TICK, || false);
}

/// A moment in so many milliseconds.
fn in_ms(ms: u64) -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(ms)
}

#[test]
fn a_thread_that_drives_keeps_time_limits_itself() {
    // No runtime is near, and nobody else wakes the thread.
    let began = Instant::now();
    let limited = async {
        let late = timeout_at(in_ms(20), pending::<()>());
        let later = timeout_at(in_ms(3_600_000), pending::<()>());
        assert_eq!(timeout_at(in_ms(3_600_000), ready(7)).await, Some(7));
        futures_util::future::select(pin!(later), pin!(late)).await.factor_first().0
    };
    assert_eq!(block_on(limited, TICK, || false).unwrap(), Some(None));
    assert!((Duration::from_millis(20)..TICK).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[test]
fn an_alarm_that_is_moved_wakes_only_who_asked_and_then_rings_again() {
    let mut alarm = Alarm::new();
    let (mut polls, mut last) = (0, None);
    let moved = poll_fn(|context| {
        polls += 1;
        // A moment that is named just before it is waited for is still to come, however busy the
        // machine is.
        let moment = if polls == 1 { in_ms(100) } else { *last.get_or_insert_with(|| in_ms(100)) };
        alarm.poll(context, moment)
    });
    // Children of such a set are polled only where their own waker was called.
    let mut all: futures_util::stream::FuturesUnordered<_> = std::iter::once(moved).collect();
    let ended = block_on(futures_util::StreamExt::next(&mut all), TICK, || false).unwrap();
    assert_eq!(ended, Some(Some(())));
    drop(all);
    assert!(last.is_some_and(|last| tokio::time::Instant::now() >= last));
    // At first, when the first moment came, and when the last one did.
    assert_eq!(polls, 3);
}

#[test]
fn alarms_of_futures_that_are_dropped_are_forgotten() {
    let dropped = async {
        for _ in 0..100 {
            let late = pin!(timeout_at(in_ms(60_000), pending::<()>()));
            assert!(futures_util::poll!(late).is_pending());
        }
        DRIVING.with_borrow(|driving| driving.as_ref().unwrap().alarms.first())
    };
    assert_eq!(block_on(dropped, TICK, || false).unwrap(), Some(None));
}

#[test]
fn an_alarm_changes_hands_with_its_connection() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut alarm = Alarm::new();
    let due = in_ms(60_000);
    let touched = |alarm: &mut Alarm, context: &mut Context<'_>| {
        assert!(alarm.poll(context, due).is_pending());
        Poll::Ready(())
    };
    block_on(poll_fn(|context| touched(&mut alarm, context)), TICK, || false).unwrap();
    runtime.block_on(poll_fn(|context| touched(&mut alarm, context)));
    block_on(poll_fn(|context| touched(&mut alarm, context)), TICK, || false).unwrap();
    let near = in_ms(10);
    runtime.block_on(poll_fn(|context| alarm.poll(context, near)));
    assert!(tokio::time::Instant::now() >= near);
}

/// Of two threads that run at the same time: one polls once more, since it was woken, while the
/// other does its work and wakes it. In which order they did is for the processors to decide, some
/// hundred thousand times; either the poll sees the work, or another one follows it.
#[test]
fn no_wake_is_lost_beside_a_poll_that_has_begun() {
    /// On a line of its own, so that each read and write takes its own time.
    #[repr(align(128))]
    #[derive(Default)]
    struct Round(AtomicU64);

    impl Round {
        fn begin(&self, number: u64) {
            self.0.store(number, Ordering::Release);
        }

        fn get(&self) -> u64 {
            self.0.load(Ordering::Acquire)
        }

        fn wait_for(&self, number: u64) {
            for turn in 1.. {
                if self.get() >= number {
                    return;
                }
                if turn % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
        }
    }

    let signal = Signal { state: AtomicU8::new(AT_REST), bell: OnceLock::new(), process: 0 };
    let signal = Arc::new(signal);
    let [woken, polled, worked, done] = <[Round; 4]>::default();
    let last = u64::MAX;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1.. {
                signal.wake_by_ref();
                woken.begin(number);
                polled.wait_for(number);
                if polled.get() == last {
                    return;
                }
                (0..number % 7).for_each(|_| std::hint::spin_loop());
                worked.begin(number);
                signal.wake_by_ref();
                done.begin(number);
            }
        });
        let began = Instant::now();
        let mut lost = 0;
        for number in 1.. {
            if began.elapsed() > Duration::from_secs(1) {
                break;
            }
            woken.wait_for(number);
            worked.get();
            polled.begin(number);
            (0..number % 23).for_each(|_| std::hint::spin_loop());
            signal.rest();
            let has_seen = worked.get() == number;
            done.wait_for(number);
            lost += u64::from(!has_seen && !signal.is_woken());
        }
        polled.begin(last);
        assert_eq!(lost, 0, "the thread would sleep for ever");
    });
}
