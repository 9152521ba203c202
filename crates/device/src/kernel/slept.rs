//! Whether a thread slept.

/// How many times the calling thread has slept so far (`ru_nvcsw` of getrusage(2): it gave the
/// processor away itself); none where the kernel does not tell.
pub(crate) fn sleeps() -> Option<i64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call fills the structure, which is all numbers and so valid as zeros, too.
    let usage = unsafe {
        (libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) == 0).then(|| usage.assume_init())
    };
    usage.map(|usage| usage.ru_nvcsw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_counted() {
        let before = sleeps().expect("Linux tells");
        // Each of them has to begin before it can end.
        (0..100).for_each(|_| std::thread::spawn(|| ()).join().expect("it does nothing"));
        assert!(sleeps().expect("Linux tells") > before);
    }
}
