/* The treaty between the Rust engine and the C++ shim.
 *
 * Ownership: a handle returned through an out-parameter belongs to the caller and is given back with
 * the matching *_free. Strings inside returned structs are borrowed from the handle that returned
 * them and live as long as it does. Nothing here throws; no Rust panic crosses. A function that can
 * fail returns false and sets *error (never null then); the caller frees it with ps_error_free.
 * Handles are thread-safe except ps_writer and ps_message, which take one call at a time.
 */
#ifndef PENSTOCK_H
#define PENSTOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ps_engine ps_engine;   /* caches, counters, uploads of one database instance; shared runtime */
typedef struct ps_query ps_query;     /* one statement: settings snapshot, cancellation, counters, barrier */
typedef struct ps_reader ps_reader;   /* one open object, pinned to one version */
typedef struct ps_writer ps_writer;   /* one object being written; invisible until finished */
typedef struct ps_listing ps_listing; /* the result of a glob or list, or a page of a glob */
typedef struct ps_pages ps_pages;     /* a glob whose next page is fetched while one is used */
typedef struct ps_rows ps_rows;       /* a snapshot of an introspection table */
typedef struct ps_error ps_error;

typedef struct { const char *data; size_t len; } ps_str; /* UTF-8, not terminated */
typedef struct { ps_str key; ps_str value; } ps_pair;

/* ---- errors: kind numbers are those of penstock_base::Kind, or 0 for what is DuckDB's IO Error ---- */
int32_t ps_error_kind(const ps_error *error);
ps_str ps_error_message(const ps_error *error);
int32_t ps_error_http_status(const ps_error *error); /* 0 when no answer came */
bool ps_error_is_http(const ps_error *error);        /* the store answered, and refused or failed: DuckDB's HTTP error */
ps_str ps_error_http_reason(const ps_error *error);  /* `Not Found`; empty where there is none */
void ps_error_free(ps_error *error);

/* ---- the tables ---- */
typedef enum { PS_BOOL = 0, PS_NUMBER = 1, PS_BYTES = 2, PS_MILLIS = 3, PS_TEXT = 4, PS_URL = 5 } ps_setting_type;
typedef struct { ps_str name; ps_str doc; ps_str default_value; ps_setting_type type; bool has_range; bool read_once; uint64_t min, max; } ps_setting_info;
size_t ps_setting_count(void);
void ps_setting_describe(size_t index, ps_setting_info *out);
bool ps_setting_check(ps_str name, ps_str value, ps_error **error); /* for SET callbacks */
/* The value as it may be shown to anybody: one cell; a URL without its user name and password. Null for an unknown name. */
ps_rows *ps_setting_shown(ps_str name, ps_str value);
ps_str ps_version(void);

/* ---- the settings of httpfs, azure and aws; those that mean settings of ours are pairs of ps_query_new, too ---- */
/* Name, type of DuckDB, default (NULL unless has_default), meaning (option of the stores, shim, ours, fixed), doc, and
 * the variables of the environment, of which the first that is set wins over the default, unless it hides_variables:
 * then they hold credentials. The stores look at the variables themselves. */
ps_rows *ps_theirs(void);
/* For whoever moves from those extensions, and given the settings of theirs that somebody has set: area, name, finding and
 * cure of each that is followed otherwise here, and of each variable of the environment. No value is told. */
bool ps_differences(const ps_pair *settings, size_t count, ps_rows **out, ps_error **error);
bool ps_is_option(ps_str name); /* whether some store looks at this option, in lower case; a map's ends with a dot */
bool ps_flag(ps_str text, bool *out); /* a flag of the environment; false where it is none */
/* For SET callbacks: the value to be kept, in one cell. */
bool ps_theirs_taken(ps_str name, ps_str value, ps_rows **out, ps_error **error);
/* What is done instead of following a value, as the end of a sentence; empty where it is followed. Never freed. */
ps_str ps_theirs_instead(ps_str name, ps_str value);

/* ---- engine ---- */
bool ps_engine_new(const ps_pair *settings, size_t count, ps_engine **out, ps_error **error);
void ps_engine_free(ps_engine *engine);
/* SET: the limits of these settings hold from now on, as if a statement had begun with them. */
bool ps_engine_adopt(const ps_engine *engine, const ps_pair *settings, size_t count, ps_error **error);
/* A secret may be replaced while a statement runs. After a refusal the engine calls `current`, on any thread, for the
 * options that a new statement would use, given those in use: it adds each, and returns false where it has none. */
typedef void (*ps_option_fn)(void *into, ps_str key, ps_str value);
typedef bool (*ps_current_options_fn)(void *context, ps_str url, const ps_pair *used, size_t count, ps_option_fn add,
                                      void *into);
void ps_engine_renews_secrets(const ps_engine *engine, ps_current_options_fn current, void *context);
/* Exit handler: gives up the open uploads of all engines of this process, whose threads may still write, and waits up to
 * ten seconds for their parts to be aborted. */
void ps_process_ends(void);

/* ---- secrets ---- */
/* Length of the scope of a secret where it covers the URL, else -1. Names in a scope end at a boundary: scheme, host and
 * port, account, bucket, container, repository. */
int64_t ps_scope_covers(ps_str scope, ps_str url);

/* ---- query: `interrupted` is polled while a call blocks (at most every 20 ms), from the blocked thread ---- */
typedef bool (*ps_interrupted_fn)(void *context);
/* What the host has of a statement: its number, 0 for none, and, unless null, a function that tells whether to stop. */
typedef struct ps_statement {
	uint64_t number;
	ps_interrupted_fn interrupted;
	void *context;
} ps_statement;
/* `statement` may be null, for work that is no statement's. Requests and counters are shown under its number; two
 * queries of one number count together. */
bool ps_query_new(ps_engine *engine, const ps_pair *settings, size_t count, const ps_statement *statement,
                  ps_query **out, ps_error **error);
void ps_query_free(ps_query *query); /* detached uploads that were never waited for are aborted */
/* Waits for every upload that was finished detached; the first failure is the error, and its message tells of the others. */
bool ps_query_barrier(ps_query *query, ps_error **error);
/* Gives up every detached upload that is not durable yet. One whose last request is on its way is seen to its end in
 * the background, and its object removed. */
void ps_query_abort_uploads(ps_query *query);
/* Requests of this query that fail are sent again for so long at most, from now on. What is on its way goes on. */
void ps_query_repeats_for(const ps_query *query, uint64_t ms);
/* It may end before its files do (LIMIT): from now on little is fetched ahead. */
void ps_query_may_end_early(const ps_query *query);
/* Its rows go, as they are read, to somebody who may stop at any: no more is fetched ahead than is taken meanwhile. */
void ps_query_may_be_left(const ps_query *query);
/* From now on ps_open_write refuses a name that it has opened before, unless that was given up, removed or moved. */
void ps_query_writes_each_name_once(const ps_query *query);
/* The host fetches ahead the columns of its scans itself, in reads that begin and end at multiples of so many bytes:
 * only scans of ps_query_will_read are followed. */
void ps_query_host_reads_ahead(const ps_query *query, uint64_t grid_bytes);
ps_rows *ps_query_stats(const ps_query *query); /* area, name, unit, value, description; this query only */
/* What a profile says of the statement so far: name, type (uint64, string), value. What is zero is left out; no rows: it had
 * nothing to do with us. */
ps_rows *ps_query_profile(const ps_query *query);
ps_rows *ps_query_box(const ps_query *query); /* the same as the box of EXPLAIN ANALYZE: one cell, empty where no rows are */
ps_rows *ps_profile_values(void); /* every value that a profile may have: name, unit, type (uint64, string), description */
/* A thread has worked on the plan for so long; its waits, by ps_thread_waited_us, are not in it. */
void ps_query_worked(const ps_query *query, uint64_t micros);
uint64_t ps_thread_waited_us(void); /* what the calling thread has waited for links, stores, memory and devices */
/* What is remembered of objects: cache, url, object, etag, size_bytes, cached_bytes, blocks. */
bool ps_query_cache(const ps_query *query, ps_rows **out, ps_error **error);
bool ps_query_clear_cache(const ps_query *query, ps_error **error);
/* Requests finished since the last call, oldest first; for DuckDB's HTTP log. With a reason, and lines of `Name: value` of
 * the headers sent and received, which are there for requests that began after ps_query_logs_headers. */
ps_rows *ps_query_drain_requests(const ps_query *query);
void ps_query_logs_headers(const ps_query *query);

/* ---- reading ----
 * `options` are the store options: the pairs of the matching secret (key `secret_type` names its type: s3, gcs, r2,
 * aws, azure, http; `secret_name` its name for error texts; `provider` its provider) and of DuckDB's s3_ and azure_
 * settings (same names as the settings). Keys inside a map follow a dot (`refresh_info.chain`). The store crate's
 * table decides which names exist. */
typedef struct {
	bool has_size; uint64_t size_bytes;
	bool has_modified; int64_t modified_us;  /* since the epoch */
	ps_str etag;                              /* empty: unknown */
	bool immutable;                           /* never validate again (DuckLake and friends) */
	bool host_keeps;                          /* the host is likely to keep in memory what it reads of it */
	uint64_t footer_size_bytes;               /* 0: unknown */
	uint64_t listed_us;                       /* ps_entry's, if a listing told the rest; 0: none did */
} ps_known;
bool ps_open_read(ps_query *query, ps_str url, const ps_pair *options, size_t option_count, const ps_known *known,
                  ps_reader **out, ps_error **error);
/* The files of one store that will be opened, in their order: what is read of the next ones is fetched ahead. */
bool ps_query_announce(ps_query *query, const ps_str *urls, const ps_known *known, size_t count,
                       const ps_pair *options, size_t option_count, ps_error **error);
/* All row groups of a Parquet file will be read for these of its columns, by their place in the footer; of the files of
 * the same glob or list too. `is_cached_ahead`: the host widens reads up to what it has of the file. */
bool ps_query_will_read(ps_query *query, ps_str url, const ps_pair *options, size_t option_count,
                        const uint32_t *columns, size_t column_count, bool is_cached_ahead, ps_error **error);
/* Values of a column, both ends included: eight bytes, the lowest first, or those of a text. */
typedef struct { bool has_min; ps_str min; bool has_max; ps_str max; } ps_range;
/* Values that rows must have in a column of a Parquet file, by its place in the footer: any of the ranges. `order`:
 * 0 signed, 1 unsigned, 2 floating, 3 text, 4 microseconds, 5 places of rows in their file (of no column). */
typedef struct { uint32_t column; uint32_t order; const ps_range *ranges; size_t range_count; } ps_filter;
/* A scan begins that wants rows which pass all of these filters, of this file and of those of the same glob or list: the
 * host leaves out row groups that have none, by their statistics. `moving`: a column whose bound is told later. */
bool ps_query_will_filter(ps_query *query, ps_str url, const ps_pair *options, size_t option_count,
                          const ps_filter *filters, size_t filter_count, const ps_filter *moving, ps_error **error);
/* The values that rows must have by now in the column whose bound moves. */
bool ps_query_bound_moved(ps_query *query, ps_str url, const ps_pair *options, size_t option_count,
                          const ps_filter *bound, ps_error **error);
uint64_t ps_reader_size(const ps_reader *reader);
/* Tag (empty: none) and time, for a host that asks since it may keep bytes; the tag lives as long as the reader. False:
 * it is to be told neither, and keeps nothing, since others still read another version. `host_keeps`: it does keep. */
typedef struct { bool has_modified; int64_t modified_us; ps_str etag; } ps_told;
bool ps_reader_version(const ps_reader *reader, const ps_query *query, bool host_keeps, ps_told *out);
/* The host asks the same of a file that another file system of its own has open: in `*out` what is to be held as long as
 * that is open. Null: it is to be told neither. */
typedef struct ps_kept ps_kept;
bool ps_told_elsewhere(const ps_engine *engine, ps_str url, const ps_known *version, ps_kept **out, ps_error **error);
void ps_kept_free(ps_kept *kept);
/* Exactly `len` bytes or an error. Any thread, many at once. */
bool ps_read_at(ps_reader *reader, ps_query *query, void *buffer, uint64_t len, uint64_t offset, ps_error **error);
/* How its store answers, as far as it is known: until the first byte, and what one connection brings. */
void ps_reader_link(const ps_reader *reader, const ps_query *query, double *latency_s, double *bytes_per_s);
/* For how long bytes of a file without a validator count in this query; false where nothing says so. UINT64_MAX: ever. */
bool ps_reader_valid_for(const ps_reader *reader, const ps_query *query, uint64_t *us);
void ps_reader_free(ps_reader *reader);

/* ---- writing ---- */
bool ps_open_write(ps_query *query, ps_str url, const ps_pair *options, size_t option_count, bool only_if_absent,
                   ps_writer **out, ps_error **error);
bool ps_write(ps_writer *writer, const void *data, uint64_t len, ps_error **error); /* may block on the memory limit */
uint64_t ps_writer_position(const ps_writer *writer);
bool ps_writer_finish(ps_writer *writer, ps_error **error);          /* durable on return; else given up */
bool ps_writer_finish_detached(ps_writer *writer, ps_error **error); /* durable after ps_query_barrier of its query */
/* After a failed statement: gives up what has not ended, and removes what the finished ones made, by their tags, so that
 * nothing that stood there before or was written since is touched. A store that cannot compare tags keeps them, unless
 * they were opened only_if_absent or `names_are_new` (nobody else has such names). `query` removes; it may be another. */
bool ps_query_retract(ps_query *query, const ps_writer *const *writers, size_t count, bool names_are_new, ps_error **error);
void ps_writer_free(ps_writer *writer);                               /* unfinished: aborted, nothing becomes visible */

/* ---- names ---- */
typedef struct { ps_str url; bool is_directory; bool has_size; uint64_t size_bytes; bool has_modified; int64_t modified_us; ps_str etag; uint64_t listed_us; } ps_entry;
bool ps_glob(ps_query *query, ps_str pattern, const ps_pair *options, size_t option_count, ps_listing **out, ps_error **error);
/* The first page has come when this returns. */
bool ps_glob_pages(ps_query *query, ps_str pattern, const ps_pair *options, size_t option_count, ps_pages **out, ps_error **error);
/* The next page, which is not empty; null behind the last. `query` is the one that began. Not for two threads at once. */
bool ps_pages_next(ps_query *query, ps_pages *pages, ps_listing **out, ps_error **error);
bool ps_pages_is_whole(const ps_pages *pages);                        /* no more requests are needed */
void ps_pages_free(ps_pages *pages);                                  /* ends its requests */
/* One level below a directory; names are full URLs. */
bool ps_list(ps_query *query, ps_str directory, const ps_pair *options, size_t option_count, ps_listing **out, ps_error **error);
/* All objects below a directory as they are now, whatever is remembered: for a statement that will change them. */
bool ps_list_below(ps_query *query, ps_str directory, const ps_pair *options, size_t option_count, ps_listing **out, ps_error **error);
size_t ps_listing_count(const ps_listing *listing);
void ps_listing_get(const ps_listing *listing, size_t index, ps_entry *out);
void ps_listing_free(ps_listing *listing);
bool ps_exists(ps_query *query, ps_str url, const ps_pair *options, size_t option_count, bool *out, ps_error **error);
bool ps_directory_exists(ps_query *query, ps_str url, const ps_pair *options, size_t option_count, bool *out, ps_error **error);
/* Removing what is not there succeeds. All URLs share one root and its options. Uploads of this query to them are
 * given up first. */
bool ps_remove(ps_query *query, const ps_str *urls, size_t url_count, const ps_pair *options, size_t option_count, ps_error **error);
bool ps_remove_directory(ps_query *query, ps_str url, const ps_pair *options, size_t option_count, ps_error **error);
/* Copies, then deletes the source. */
bool ps_move(ps_query *query, ps_str from, const ps_pair *from_options, size_t from_option_count, ps_str to,
             const ps_pair *to_options, size_t to_option_count, ps_error **error);

/* ---- wrap mode: reads of other file systems, split and run at once ----
 * The engine decides how many sub-reads a read becomes, and calls `read` for each: once on the calling thread, for the
 * others on threads of its own. `handle` says which open file to use: 0 is the reader's own, others are opened by the
 * shim when first asked for. All calls have ended when ps_parallel_read returns. A call that fails keeps its reason and
 * returns false; then so does the read. */
typedef struct ps_parallel ps_parallel; /* what is learned of one wrapped file system */
typedef struct { ps_str extension; ps_str file_system; } ps_wrap_system;
size_t ps_wrap_system_count(void); /* the file systems that can be wrapped by their extension's name */
void ps_wrap_system_get(size_t index, ps_wrap_system *out);
bool ps_parallel_new(ps_str file_system, ps_parallel **out, ps_error **error);
void ps_parallel_free(ps_parallel *parallel);
/* Opening a file took so long; whether the store was asked. */
bool ps_parallel_opened(const ps_parallel *parallel, uint64_t took_us);
/* The reader's own open file, and what was read of the object. */
typedef struct {
  bool is_shared;      /* it may be read by several threads at once */
  bool is_connected;   /* opening it asked the store */
  uint64_t files_used; /* open files that reads have used, its own among them; 0 before a read has succeeded */
  uint64_t bytes_read; /* so far */
} ps_own_file;
bool ps_parallel_may_split(const ps_parallel *parallel, const ps_query *query, uint64_t len);
typedef bool (*ps_sub_read_fn)(void *context, uint64_t handle, uint64_t offset, uint64_t len);
bool ps_parallel_read(const ps_parallel *parallel, const ps_query *query, uint64_t offset, uint64_t len, ps_own_file own,
                      ps_sub_read_fn read, void *context, ps_error **error);
/* Another file system of this process is about to write or remove objects of one store, or has: what is remembered of
 * them ends. `is_heard`: whoever does knows what became of them; else nothing is remembered of them for a while. */
bool ps_changed_by_others(ps_query *query, const ps_str *urls, size_t url_count, const ps_pair *options,
                          size_t option_count, bool is_heard, ps_error **error);

/* ---- databases on devices: files of volumes, at nvme://PATH?db=NAME[&io=IO][&queues=QUEUES][&depth=N][&wait=WAIT] ----
 * The volume of a device is opened with the first file or spilling directory on it and closed with the last; all of a
 * process share it. `settings` are those that differ from the engine's. An ending of DuckDB's before the `?` (`.wal`)
 * names a companion of the database. */
typedef struct ps_volumes ps_volumes; /* what one database instance asks of volumes: its settings, where it spills */
typedef struct ps_file ps_file;       /* one open file; reads and writes of different ranges from any thread */
bool ps_volumes_new(const ps_engine *engine, ps_volumes **out, ps_error **error);
void ps_volumes_free(ps_volumes *volumes);
/* One cell: the URL with *** for the secrets in it, for error texts and logs. */
bool ps_shown_url(ps_str url, ps_rows **out, ps_error **error);
/* One cell: the name of the database that a URL names; empty if it names none. Touches no device. */
bool ps_volume_database(ps_str url, ps_rows **out, ps_error **error);
/* Whether the volume that a URL names is kept in a file, and not on a device. What is not there counts as a file, and so
 * does what is no URL of a volume. */
bool ps_volume_is_file(ps_str url);
/* One cell: the URL of the same file under which COPY may replace it: with "tmp_" behind its last slash it names another
 * file of the same volume. Touches no device. */
bool ps_volume_replaced(ps_str url, ps_rows **out, ps_error **error);
/* One cell: the one URL of all that mean the same database, companion or place to spill; also of a URL with the ending of
 * a companion at its end. */
bool ps_volume_url(const ps_volumes *volumes, ps_str url, const ps_pair *settings, size_t count, ps_rows **out, ps_error **error);
/* Rows of one cell: the URLs of the databases whose names fit the one that a URL names, sorted; the URL itself where that
 * has no wildcard, or is the name of a database. A device is named, never matched. */
bool ps_volume_glob(const ps_volumes *volumes, ps_str url, const ps_pair *settings, size_t count, ps_rows **out, ps_error **error);
enum {
	PS_FILE_WRITE = 1, PS_FILE_CREATE = 2, PS_FILE_TRUNCATE = 4, PS_FILE_EXCLUSIVE = 8,
	PS_FILE_NULL_IF_ABSENT = 16, /* on a volume that is there; then *out is null */
	PS_FILE_READ_LOCK = 32, PS_FILE_WRITE_LOCK = 64
};
bool ps_file_open(const ps_volumes *volumes, ps_str url, const ps_pair *settings, size_t count, uint32_t flags, ps_file **out,
                  ps_error **error);
void ps_file_free(ps_file *file);
/* Fills `buffer`; fewer bytes only at the end of the file. `query`: for which statement, or null. */
bool ps_file_read(const ps_file *file, const ps_query *query, void *buffer, uint64_t len, uint64_t offset, uint64_t *got, ps_error **error);
bool ps_file_write(const ps_file *file, const void *data, uint64_t len, uint64_t offset, ps_error **error);
bool ps_file_sync(const ps_file *file, ps_error **error); /* bytes and size are durable on return */
bool ps_file_truncate(const ps_file *file, uint64_t size_bytes, ps_error **error);
bool ps_file_trim(const ps_file *file, uint64_t offset, uint64_t len, ps_error **error); /* the bytes are not needed any more */
uint64_t ps_file_size(const ps_file *file);
/* One cell: the same for every handle to the same file, and another once that was replaced. */
bool ps_file_version(const ps_file *file, ps_rows **out, ps_error **error);
bool ps_file_exists(const ps_volumes *volumes, ps_str url, const ps_pair *settings, size_t count, bool *out, ps_error **error);
bool ps_file_remove(const ps_volumes *volumes, ps_str url, const ps_pair *settings, size_t count, bool *was_there, ps_error **error);
/* In place of the file that may be there; at no moment is there none. */
bool ps_file_move(const ps_volumes *volumes, ps_str from, ps_str to, const ps_pair *settings, size_t count, ps_error **error);
/* Directories for spilling, at nvme://PATH?temp; each belongs to this instance and is gone with it, or with the process. */
bool ps_spill_exists(const ps_volumes *volumes, ps_str url, bool *out, ps_error **error);
bool ps_spill_create(const ps_volumes *volumes, ps_str url, const ps_pair *settings, size_t count, ps_error **error);
bool ps_spill_list(const ps_volumes *volumes, ps_str url, ps_rows **out, ps_error **error); /* name */
bool ps_spill_remove(const ps_volumes *volumes, ps_str url, ps_error **error); /* with the files in it */

/* ---- encryption: AES in GCM (with a tag) or CTR (without), a message at a time; DuckDB makes and keeps keys and nonces ---- */
typedef struct ps_message ps_message; /* being encrypted or decrypted; its key is wiped with it */
typedef struct { const uint8_t *data; size_t len; } ps_bytes;
typedef struct {
	bool is_gcm; bool encrypts;
	ps_bytes key;   /* 16, 24 or 32 bytes */
	ps_bytes nonce; /* CTR: 16 bytes; GCM: usually 12 */
	ps_bytes also;  /* GCM: what else the tag answers for */
} ps_sealing;
bool ps_message_new(const ps_sealing *sealing, ps_message **out, ps_error **error);
/* Its next `len` bytes; `from` and `to` may overlap in any way. */
bool ps_message_apply(ps_message *message, const uint8_t *from, uint8_t *to, size_t len, ps_error **error);
/* The end of a message of GCM: its tag of up to 16 bytes, or whether this is the tag of what was decrypted. */
bool ps_message_tag(ps_message *message, uint8_t *tag, size_t len, ps_error **error);
bool ps_message_check_tag(ps_message *message, ps_bytes tag, ps_error **error);
void ps_message_free(ps_message *message);
bool ps_random(uint8_t *to, size_t len, ps_error **error); /* of the system's generator */
bool ps_sha256(ps_bytes bytes, uint8_t *digest, ps_error **error); /* 32 bytes, as the next one's */
bool ps_hmac_sha256(ps_bytes key, ps_bytes bytes, uint8_t *digest, ps_error **error);

/* ---- introspection: every cell is text; the shim casts by column name. Requests: number, started_us (since the
 * epoch), statement, cause, attempt, method, url (as its user spelt it), range, status (0: no answer), first_byte_us,
 * duration_us, sent_bytes, received_bytes, new_connection, error, request_url ---- */
/* area, name, unit, value, description; of a device's queue also device, queue ("closed": all that are), and of a count of
 * commands by their time upto_us */
ps_rows *ps_engine_stats(const ps_engine *engine);
/* The last statements that counted something: statement, started_us, elapsed_us, and the columns of ps_query_stats; what
 * is 0 is left out. */
ps_rows *ps_engine_statements(const ps_engine *engine);
/* Counts anew, and forgets the statements; gauges and the counters of devices, which are the process's, stay. */
void ps_engine_reset_stats(const ps_engine *engine);
ps_rows *ps_engine_requests(const ps_engine *engine); /* see ps_rows_column_name */
size_t ps_rows_count(const ps_rows *rows);
size_t ps_rows_column_count(const ps_rows *rows);
ps_str ps_rows_column_name(const ps_rows *rows, size_t column);
ps_str ps_rows_cell(const ps_rows *rows, size_t row, size_t column);
void ps_rows_free(ps_rows *rows);

#ifdef __cplusplus
}
#endif
#endif
