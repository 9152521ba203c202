//! Several databases of one process on one device.

use crate::shadow::{CREATE, Disk, VOLUME_BYTES, content};
use penstock_base::Kind;
use penstock_device::volume::Asked;
use penstock_device::{Io, IoChoice, Wait};
use std::sync::Arc;

#[test]
fn databases_of_a_process_share_the_volume_of_their_device() {
    let disk = Disk::new("two", VOLUME_BYTES);
    let first = disk.open(Io::Uring, true).expect("opens");
    let second = disk.open(Io::Uring, true).expect("joins");
    let file = first.open_file("a", CREATE).expect("creates");
    file.write_at(b"bytes", 0).expect("writes");
    assert_eq!(content(&second, "a"), b"bytes");
    let error = disk.open(Io::File, true).err().expect("it is open otherwise");
    assert_eq!(error.kind(), Kind::Conflict, "{error}");
    assert!(error.to_string().contains("this asks for io=file"), "{error}");
    drop(disk.open(Io::Uring, false).expect("a reader joins a writer"));
    drop((file, first));
    assert!(second.exists("a"), "one handle is left");
    drop(second.clone());
    drop(second);
    drop(disk.open(Io::File, false).expect("with the last handle the device is free"));
}

#[test]
fn opening_and_closing_side_by_side_never_meets_itself() {
    let disk = Disk::new("race", VOLUME_BYTES);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let volume = disk.open(Io::File, true).expect("nobody else has it");
                    assert!(volume.free_bytes() > 0);
                }
            });
        }
    });
}

#[test]
fn auto_takes_a_volume_as_it_is_open() {
    let disk = Disk::new("auto", VOLUME_BYTES);
    let file = || disk.join(Asked { io: Some(IoChoice::By(Io::File)), ..Asked::default() });
    let auto = || disk.join(Asked { io: Some(IoChoice::Auto), ..Asked::default() });
    let first = file().expect("opens");
    let joined = auto().expect("whatever it is");
    assert!(Arc::ptr_eq(&first, &joined));
    drop((first, joined));
    let own = auto().expect("opens");
    assert_eq!(file().err().expect("auto is not file").kind(), Kind::Conflict);
    drop(own);
}

#[test]
fn who_cannot_join_is_told_what_differs() {
    let disk = Disk::new("differs", VOLUME_BYTES);
    let asked = |wait, queue_depth| Asked { wait, queue_depth, ..Asked::default() };
    let first = disk.join(asked(None, None)).expect("opens");
    drop(disk.join(asked(Some(Wait::Sleep), Some(32))).expect("so it is"));
    let refused = disk.join(asked(Some(Wait::Poll), Some(8))).err().expect("so it is not");
    let told = refused.to_string();
    assert!(told.contains("queues=thread, depth=32 and wait=sleep;"), "{told}");
    assert!(told.contains("this asks for depth=8 and wait=poll"), "{told}");
    assert!(refused.hint().is_some_and(|hint| hint.contains("spills to it")), "{refused}");
    drop(first);
    let reader = disk.open(Io::File, false).expect("opens");
    let refused = disk.open(Io::Direct, true).err().expect("it is read-only").to_string();
    assert!(refused.contains("this asks for writing and io=direct"), "{refused}");
    drop(reader);
}
