//! How many heaps the C library's allocator keeps for the threads of this process.

/// Lets the allocator keep at most so many heaps, from now on; it makes one for each thread that
/// comes, up to eight for each processor. What one thread frees, no other heap gives out again, so
/// that a process holds the most that each of them ever had. Only glibc is asked: other libraries
/// have no such heaps.
pub fn limit_heaps(most: usize) {
    #[cfg(target_env = "gnu")]
    {
        let most = libc::c_int::try_from(most).unwrap_or(libc::c_int::MAX).max(1);
        // SAFETY: it takes no memory and sets one number of the allocator under its own lock.
        let is_set = unsafe { libc::mallopt(libc::M_ARENA_MAX, most) };
        debug_assert_eq!(is_set, 1, "a number above 0 is taken");
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = most;
}
