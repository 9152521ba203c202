//! Waiting on the calling thread: who wakes it, and what it leaves alone.

use super::*;
use std::future::{pending, poll_fn, ready};
use std::io::Write;
use std::net::TcpListener;
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
