//! What a careless or hostile caller passes: nulls, empty texts, bytes that are no UTF-8.
#![allow(unsafe_code, clippy::unwrap_used)] // this test is the C side of the treaty

use penstock_base::Kind;
use penstock_ffi::*;
use std::ffi::c_void;
use std::ptr::{null, null_mut};

/// The kind and message of an error, which is freed.
fn told(error: *mut PsError) -> (i32, String) {
    assert!(!error.is_null());
    // SAFETY: it came from the library.
    unsafe {
        let kind = ps_error_kind(error);
        let message = ps_error_message(error).text("the message").unwrap().to_string();
        ps_error_free(error);
        (kind, message)
    }
}

fn lend(text: &str) -> PsStr {
    PsStr::lend(text)
}

struct Opened {
    engine: *mut PsEngine,
    query: *mut PsQuery,
}

impl Opened {
    fn new() -> Self {
        let (mut engine, mut query, mut error) = (null_mut(), null_mut(), null_mut());
        // SAFETY: no settings, writable out-parameters.
        unsafe {
            assert!(ps_engine_new(null(), 0, &mut engine, &mut error));
            assert!(ps_query_new(engine, null(), 0, null(), &mut query, &mut error));
        }
        Opened { engine, query }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: both came from the library.
        unsafe {
            ps_query_free(self.query);
            ps_engine_free(self.engine);
        }
    }
}

#[test]
fn a_memory_object_goes_there_and_back() {
    let opened = Opened::new();
    let url = lend("mem://edges/there-and-back.bin");
    let data = b"0123456789";
    let (mut writer, mut reader, mut error) = (null_mut(), null_mut(), null_mut());
    // SAFETY: live handles, readable texts, writable out-parameters.
    unsafe {
        assert!(ps_open_write(opened.query, url, null(), 0, false, &mut writer, &mut error));
        assert!(ps_write(writer, data.as_ptr().cast(), data.len() as u64, &mut error));
        assert!(ps_write(writer, null(), 0, &mut error), "an empty write may come from nowhere");
        assert_eq!(ps_writer_position(writer), 10);
        assert!(ps_writer_finish(writer, &mut error));
        ps_writer_free(writer);

        assert!(ps_open_read(opened.query, url, null(), 0, null(), &mut reader, &mut error));
        let mut bytes = [0u8; 4];
        assert!(ps_read_at(
            reader,
            opened.query,
            bytes.as_mut_ptr().cast::<c_void>(),
            4,
            3,
            &mut error
        ));
        assert_eq!(&bytes, b"3456");
        assert!(ps_read_at(reader, opened.query, null_mut(), 0, 0, &mut error));
        let (mut latency_s, mut bytes_per_s, mut us) = (-1.0, -1.0, 7);
        ps_reader_link(reader, opened.query, &mut latency_s, &mut bytes_per_s);
        assert!((0.0..1.0).contains(&latency_s) && bytes_per_s > 1e6, "{latency_s} {bytes_per_s}");
        assert!(!ps_reader_valid_for(reader, opened.query, &mut us), "its tag tells its version");
        let beyond =
            ps_read_at(reader, opened.query, bytes.as_mut_ptr().cast::<c_void>(), 4, 8, &mut error);
        assert!(!beyond);
        assert_eq!(told(error).0, Kind::Invalid as i32);
        ps_reader_free(reader);
    }
}

#[test]
fn a_detached_upload_is_there_after_the_barrier() {
    let opened = Opened::new();
    let url = lend("mem://edges/detached.bin");
    let (mut writer, mut exists, mut error) = (null_mut(), false, null_mut());
    // SAFETY: live handles, readable texts, writable out-parameters.
    unsafe {
        assert!(ps_open_write(opened.query, url, null(), 0, false, &mut writer, &mut error));
        assert!(ps_write(writer, b"x".as_ptr().cast(), 1, &mut error));
        assert!(ps_writer_finish_detached(writer, &mut error));
        ps_writer_free(writer);
        assert!(ps_query_barrier(opened.query, &mut error));
        assert!(ps_exists(opened.query, url, null(), 0, &mut exists, &mut error));
        assert!(exists);
        assert!(ps_remove(opened.query, &url, 1, null(), 0, &mut error));
        assert!(ps_exists(opened.query, url, null(), 0, &mut exists, &mut error));
        assert!(!exists);
    }
}

#[test]
fn each_name_of_a_move_has_its_own_options() {
    let opened = Opened::new();
    let (from, to) = (lend("mem://edges/from.bin"), lend("mem://edges/to.bin"));
    let wrong = PsPair { key: lend("no_such_option"), value: lend("1") };
    let (mut writer, mut exists, mut error) = (null_mut(), false, null_mut());
    // SAFETY: live handles, readable texts, writable out-parameters.
    unsafe {
        assert!(ps_open_write(opened.query, from, null(), 0, false, &mut writer, &mut error));
        assert!(ps_writer_finish(writer, &mut error));
        ps_writer_free(writer);
        for (ours, theirs) in [(1, 0), (0, 1)] {
            assert!(!ps_move(opened.query, from, &wrong, ours, to, &wrong, theirs, &mut error));
            let (kind, message) = told(error);
            assert_eq!(kind, Kind::Invalid as i32);
            assert!(message.contains("no_such_option"), "{message}");
        }
        assert!(ps_move(opened.query, from, null(), 0, to, null(), 0, &mut error));
        assert!(ps_exists(opened.query, to, null(), 0, &mut exists, &mut error));
        assert!(exists);
    }
}

#[test]
fn an_unfinished_write_leaves_nothing() {
    let opened = Opened::new();
    let url = lend("mem://edges/unfinished.bin");
    let (mut writer, mut exists, mut error) = (null_mut(), true, null_mut());
    // SAFETY: live handles, readable texts, writable out-parameters.
    unsafe {
        assert!(ps_open_write(opened.query, url, null(), 0, false, &mut writer, &mut error));
        assert!(ps_write(writer, b"x".as_ptr().cast(), 1, &mut error));
        ps_writer_free(writer);
        assert!(ps_exists(opened.query, url, null(), 0, &mut exists, &mut error));
        assert!(!exists);
    }
}

#[test]
fn nulls_are_errors_and_never_crashes() {
    let opened = Opened::new();
    let url = lend("mem://edges/x");
    let mut error = null_mut();
    // SAFETY: null is what is tested; the rest is live.
    unsafe {
        let mut reader = null_mut();
        assert!(!ps_open_read(null(), url, null(), 0, null(), &mut reader, &mut error));
        assert_eq!(told(error).0, Kind::Internal as i32);
        assert!(!ps_open_write(opened.query, url, null(), 0, false, null_mut(), &mut error));
        assert_eq!(told(error).0, Kind::Internal as i32);
        assert!(!ps_write(null_mut(), null(), 0, &mut error));
        assert_eq!(told(error).0, Kind::Internal as i32);
        let nowhere = PsStr { data: null(), len: 3 };
        assert!(!ps_open_read(opened.query, nowhere, null(), 0, null(), &mut reader, &mut error));
        assert_eq!(told(error), (Kind::Internal as i32, "the URL is null, with a length".into()));
        assert!(!ps_open_read(opened.query, url, null(), 2, null(), &mut reader, &mut error));
        assert_eq!(told(error).0, Kind::Internal as i32);
        assert!(!ps_query_barrier(null(), null_mut()), "nowhere to put the error is fine too");

        assert_eq!(ps_error_kind(null()), Kind::Internal as i32);
        assert_eq!(ps_error_message(null()).len, 0);
        assert_eq!(ps_error_http_status(null()), 0);
        assert_eq!(ps_rows_count(null()), 0);
        assert_eq!(ps_rows_cell(null(), 0, 0).len, 0);
        assert_eq!(ps_listing_count(null()), 0);
        assert_eq!(ps_writer_position(null()), 0);
        assert!(ps_engine_stats(null()).is_null());
        ps_error_free(null_mut());
        ps_engine_free(null_mut());
        ps_query_free(null_mut());
        ps_reader_free(null_mut());
        ps_writer_free(null_mut());
        ps_listing_free(null_mut());
        ps_rows_free(null_mut());
        assert_eq!(ps_reader_size(null()), 0);
        assert!(!ps_reader_version(null(), null(), true, null_mut()));
        ps_listing_get(null(), 0, null_mut());
        ps_setting_describe(usize::MAX, null_mut());
        ps_query_abort_uploads(null());
        ps_query_may_end_early(null());
        ps_query_host_reads_ahead(null(), 4096);
        ps_query_writes_each_name_once(null());
        ps_engine_renews_secrets(null(), None, null_mut());
        ps_reader_link(null(), null(), null_mut(), null_mut());
        assert!(!ps_reader_valid_for(null(), opened.query, null_mut()));
        assert!(!ps_query_announce(null(), null(), null(), 0, null(), 0, null_mut()));
        assert!(ps_query_announce(opened.query, null(), null(), 0, null(), 0, &mut error));
        assert!(!ps_query_announce(opened.query, &url, null(), 1, null(), 0, &mut error));
        assert_eq!(told(error).0, Kind::Internal as i32);
        let (options, columns) = (null(), [7_u32]);
        let mut will_read = |columns, count| {
            ps_query_will_read(opened.query, url, options, 0, columns, count, true, &mut error)
        };
        assert!(will_read(columns.as_ptr(), 1), "nothing to note of a file that nobody opened");
        assert!(will_read(null(), 0) && !will_read(null(), 1));
        assert_eq!(told(error).0, Kind::Internal as i32);
        assert!(!ps_query_will_read(null(), url, options, 0, null(), 0, true, null_mut()));
        filters_are_checked(&opened, url);
        assert!(!ps_query_clear_cache(null(), null_mut()));
        assert!(!ps_query_cache(null(), null_mut(), null_mut()));
    }
}

/// # Safety
/// A live query.
unsafe fn filters_are_checked(opened: &Opened, url: PsStr) {
    let (seven, no) = (7i64.to_le_bytes(), PsStr::EMPTY);
    let value = |len| PsStr { data: seven.as_ptr(), len };
    let range = |min| PsRange { has_min: true, min, has_max: false, max: no };
    let (good, short) = (range(value(8)), range(value(7)));
    let filter = |order, ranges, range_count| PsFilter { column: 1, order, ranges, range_count };
    let (of_good, of_short) = (filter(0, &raw const good, 1), filter(0, &raw const short, 1));
    let (of_none, strange) = (filter(0, null(), 0), filter(6, null(), 0));
    let mut error = null_mut();
    // SAFETY: a live query, and all that is lent stays.
    unsafe {
        let query = opened.query;
        let mut will_filter = |filters, count, moving| {
            ps_query_will_filter(query, url, null(), 0, filters, count, moving, &mut error)
        };
        assert!(will_filter(&raw const of_good, 1, &raw const of_none), "nobody opened it");
        assert!(will_filter(null(), 0, null()) && will_filter(&raw const of_none, 1, null()));
        assert!(!will_filter(null(), 1, null()) && !will_filter(&raw const of_short, 1, null()));
        assert!(!will_filter(&raw const strange, 1, null()));
        assert!(!will_filter(null(), 0, &raw const strange));
        assert!(!ps_query_will_filter(null(), url, null(), 0, null(), 0, null(), null_mut()));
        let mut moved = |bound| ps_query_bound_moved(query, url, null(), 0, bound, &mut error);
        assert!(moved(&raw const of_good) && moved(&raw const of_none));
        assert!(!moved(null()) && !moved(&raw const of_short));
        assert!(!ps_query_bound_moved(null(), url, null(), 0, &raw const of_good, null_mut()));
    }
}

#[test]
fn text_that_is_no_utf8_is_named_and_not_shown() {
    let opened = Opened::new();
    let bytes = b"mem://x/\xff\xfe";
    let broken = PsStr { data: bytes.as_ptr(), len: bytes.len() };
    let (mut reader, mut error) = (null_mut(), null_mut());
    // SAFETY: live handles, readable bytes.
    unsafe {
        assert!(!ps_open_read(opened.query, broken, null(), 0, null(), &mut reader, &mut error));
        assert_eq!(told(error), (Kind::Invalid as i32, "the URL is not valid UTF-8".into()));
        let option = PsPair { key: lend("secret"), value: broken };
        let url = lend("mem://x/y");
        assert!(!ps_open_read(opened.query, url, &option, 1, null(), &mut reader, &mut error));
        assert_eq!(told(error), (Kind::Invalid as i32, "`secret` is not valid UTF-8".into()));
    }
}

#[test]
fn settings_are_checked_by_the_table() {
    let mut error = null_mut();
    // SAFETY: readable texts, writable out-parameter.
    unsafe {
        assert!(ps_setting_check(lend("penstock_io_threads"), lend("4"), &mut error));
        assert!(!ps_setting_check(lend("io_thread"), lend("4"), &mut error));
        let (kind, message) = told(error);
        assert_eq!(kind, Kind::Invalid as i32);
        assert!(message.contains("Did you mean `io_threads`?"), "{message}");
        assert!(!ps_setting_check(lend("io_threads"), PsStr::EMPTY, &mut error));
        assert_eq!(told(error).0, Kind::Invalid as i32);
        assert!(!ps_setting_check(lend("http_proxy"), lend("garbage:::"), &mut error));
        assert_eq!(told(error).0, Kind::Invalid as i32);
        let shown = ps_setting_shown(lend("http_proxy"), lend("http://u:hunter2@px:1"));
        assert_eq!(ps_rows_cell(shown, 0, 0).text("a cell").unwrap(), "http://***@px:1");
        ps_rows_free(shown);
        assert!(ps_setting_shown(lend("no_such"), PsStr::EMPTY).is_null());
    }
    assert_eq!(ps_setting_count(), penstock_base::settings::TABLE.len());
}

#[test]
fn settings_of_theirs_are_taken_told_or_refused() {
    let (mut rows, mut error) = (null_mut(), null_mut());
    // SAFETY: readable texts, writable out-parameters.
    unsafe {
        let table = ps_theirs();
        assert_eq!(ps_rows_count(table), penstock_base::settings::theirs::TABLE.len());
        assert_eq!(ps_rows_cell(table, 0, 0).text("a cell").unwrap(), "s3_region");
        ps_rows_free(table);
        let name = lend("httpfs_client_implementation");
        assert!(ps_theirs_taken(name, lend("curl"), &mut rows, &mut error));
        assert_eq!(ps_rows_cell(rows, 0, 0).text("a cell").unwrap(), "curl");
        ps_rows_free(rows);
        assert!(!ps_theirs_taken(name, lend("wget"), &mut rows, &mut error));
        assert_eq!(told(error).0, Kind::Invalid as i32);
        let instead = ps_theirs_instead(lend("force_download"), lend("true"));
        assert!(instead.text("a text").unwrap().contains("only what a query needs"));
        let nothing = ps_theirs_instead(lend("force_download"), lend("false"));
        assert_eq!(nothing.text("a text").unwrap(), "");
    }
}

#[test]
fn an_interrupted_wait_ends_as_cancelled() {
    unsafe extern "C" fn always(_context: *mut c_void) -> bool {
        true
    }
    let opened = Opened::new();
    let (mut query, mut reader, mut error) = (null_mut(), null_mut(), null_mut());
    // A port that accepts and says nothing, so that there is something to wait for.
    let deaf = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = deaf.local_addr().unwrap().to_string();
    let options = [
        PsPair { key: lend("endpoint"), value: lend(&endpoint) },
        PsPair { key: lend("use_ssl"), value: lend("false") },
        PsPair { key: lend("url_style"), value: lend("path") },
        PsPair { key: lend("key_id"), value: lend("k") },
        PsPair { key: lend("secret"), value: lend("s") },
        PsPair { key: lend("region"), value: lend("us-east-1") },
    ];
    // SAFETY: live handles, readable texts, writable out-parameters.
    unsafe {
        let statement = PsStatement { number: 0, interrupted: Some(always), context: null_mut() };
        assert!(ps_query_new(opened.engine, null(), 0, &statement, &mut query, &mut error));
        let url = lend("s3://bucket/key");
        let done = ps_open_read(
            query,
            url,
            options.as_ptr(),
            options.len(),
            null(),
            &mut reader,
            &mut error,
        );
        assert!(!done);
        assert_eq!(told(error).0, Kind::Cancelled as i32);
        ps_query_free(query);
    }
}

/// Counts its calls; fails for every second.
unsafe extern "C" fn fail_second(context: *mut c_void, _: u64, _: u64, len: u64) -> bool {
    // SAFETY: the caller lends a counter, and sub-reads of one part do not run at once.
    let count = unsafe { &mut *context.cast::<u64>() };
    *count += 1;
    len > 0 && *count != 2
}

const OWN_FILE: PsOwnFile =
    PsOwnFile { is_shared: false, is_connected: true, files_used: 1, bytes_read: 0 };

#[test]
fn wrapped_reads_survive_nulls_and_tell_failures() {
    let opened = Opened::new();
    let (mut parallel, mut error) = (null_mut(), null_mut());
    let mut count = 0_u64;
    let context = (&raw mut count).cast::<c_void>();
    // SAFETY: handles from the library or null, a counter that lives, writable out-parameters.
    unsafe {
        assert!(!ps_parallel_new(lend("x"), null_mut(), &mut error));
        assert!(told(error).1.contains("null"));
        assert!(ps_parallel_new(lend("S3FileSystem"), &mut parallel, &mut error));
        assert!(ps_parallel_opened(null(), 7));
        assert!(!ps_parallel_opened(parallel, 7) && ps_parallel_opened(parallel, 7_000));
        assert!(!ps_parallel_may_split(null(), opened.query, 1 << 30));
        assert!(ps_parallel_may_split(parallel, opened.query, 1 << 30));
        let read = Some(fail_second as PsSubReadFn);
        assert!(!ps_parallel_read(null(), opened.query, 0, 9, OWN_FILE, read, context, &mut error));
        assert_eq!(told(error).0, Kind::Internal as i32);
        assert!(!ps_parallel_read(
            parallel,
            opened.query,
            0,
            9,
            OWN_FILE,
            None,
            context,
            &mut error
        ));
        assert!(told(error).1.contains("null"));
        let past = u64::MAX;
        assert!(!ps_parallel_read(
            parallel,
            opened.query,
            past,
            9,
            OWN_FILE,
            read,
            context,
            &mut error
        ));
        assert_eq!(told(error).0, Kind::Invalid as i32);
        assert!(ps_parallel_read(
            parallel,
            opened.query,
            0,
            9,
            OWN_FILE,
            read,
            context,
            &mut error
        ));
        assert!(!ps_parallel_read(
            parallel,
            opened.query,
            0,
            9,
            OWN_FILE,
            read,
            context,
            &mut error
        ));
        assert_eq!(told(error).0, Kind::Internal as i32);
        ps_parallel_free(parallel);
        ps_parallel_free(null_mut());
        ps_wrap_system_get(usize::MAX, null_mut());
        ps_wrap_system_get(0, null_mut());
    }
    assert_eq!(count, 2);
}

#[test]
fn what_other_file_systems_do_survives_nulls() {
    let opened = Opened::new();
    let (mut kept, mut error) = (null_mut(), null_mut());
    let url = lend("mem://edges/elsewhere.bin");
    // SAFETY: handles from the library or null, readable texts, writable out-parameters.
    unsafe {
        assert!(!ps_told_elsewhere(null(), url, null(), &mut kept, &mut error));
        assert!(told(error).1.contains("null"));
        assert!(ps_told_elsewhere(opened.engine, url, null(), &mut kept, &mut error));
        assert!(!kept.is_null());
        ps_kept_free(kept);
        ps_kept_free(null_mut());
        assert!(ps_changed_by_others(opened.query, &url, 1, null(), 0, true, &mut error));
        assert!(ps_changed_by_others(opened.query, &url, 1, null(), 0, false, &mut error));
        assert!(!ps_changed_by_others(null(), &url, 1, null(), 0, true, &mut error));
        assert!(told(error).1.contains("null"));
        let unknown = lend("s4://edges/elsewhere.bin");
        assert!(!ps_changed_by_others(opened.query, &unknown, 1, null(), 0, true, &mut error));
        assert!([Kind::Invalid as i32, Kind::Unsupported as i32].contains(&told(error).0));
    }
}
