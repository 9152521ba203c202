//! libxnvme as it is loaded at run time: its functions and the layout of what they share with us
//! (0.7 on 64-bit Linux). It decides whether a library is one that we know.

use penstock_base::{Error, Kind, Result};
use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Where to look, unless the options or this variable say it.
const VARIABLE: &str = "XNVME_LIBRARY_PATH";
const NAME: &str = "libxnvme.so.0";
const KNOWN: (c_int, c_int) = (0, 7);

/// `struct xnvme_opts`, longer than any 0.7 has it.
#[repr(C)]
pub(super) struct Options {
    pub be: *const c_char,
    pub dev: *const c_char,
    pub mem: *const c_char,
    pub sync: *const c_char,
    pub asynchronous: *const c_char,
    pub admin: *const c_char,
    pub namespace: u32,
    pub read_only: u8,
    pub write_only: u8,
    pub read_write: u8,
    pub create: u8,
    pub truncate: u8,
    pub direct: u8,
    pub create_mode: u32,
    rest: [u64; 56],
}

/// `struct xnvme_cmd_ctx`.
#[repr(C)]
pub(super) struct Context {
    command: [u8; 64],
    /// The first word of the completion: bytes moved, where a backend tells them.
    pub result: u32,
    reserved: u32,
    queue_words: [u16; 3],
    /// Phase, status code (8 bits), its type (3 bits), more.
    pub status: u16,
    device: *mut c_void,
    queue: *mut c_void,
    pub callback: Option<Callback>,
    pub argument: *mut c_void,
    options: u32,
    rest: [u8; 12],
}

pub(super) type Callback = extern "C" fn(*mut Context, *mut c_void);

/// The beginning of `struct xnvme_geo`.
#[repr(C)]
pub(super) struct Geo {
    counts: [u32; 4],
    sectors: [u64; 2],
    pub total_bytes: u64,
    shift: u64,
    pub transfer_max_bytes: u32,
    pub block_bytes: u32,
}

const _: () = {
    assert!(size_of::<Context>() == 128);
    assert!(std::mem::offset_of!(Context, status) == 78);
    assert!(std::mem::offset_of!(Context, callback) == 96);
    assert!(std::mem::offset_of!(Options, namespace) == 48);
    assert!(std::mem::offset_of!(Options, direct) == 57);
    assert!(std::mem::offset_of!(Options, create_mode) == 60);
    assert!(std::mem::offset_of!(Geo, transfer_max_bytes) == 48);
};

type Transfer =
    unsafe extern "C" fn(*mut Context, u32, u64, u16, *mut c_void, *mut c_void) -> c_int;

/// The functions. They stay loaded until the process ends.
pub(super) struct Library {
    pub options: unsafe extern "C" fn() -> Options,
    pub open: unsafe extern "C" fn(*const c_char, *mut Options) -> *mut c_void,
    pub close: unsafe extern "C" fn(*mut c_void),
    pub geo: unsafe extern "C" fn(*const c_void) -> *const Geo,
    pub namespace: unsafe extern "C" fn(*const c_void) -> u32,
    pub queue_init: unsafe extern "C" fn(*mut c_void, u16, c_int, *mut *mut c_void) -> c_int,
    pub queue_term: unsafe extern "C" fn(*mut c_void) -> c_int,
    pub poke: unsafe extern "C" fn(*mut c_void, u32) -> c_int,
    pub get: unsafe extern "C" fn(*mut c_void) -> *mut Context,
    pub put: unsafe extern "C" fn(*mut c_void, *mut Context) -> c_int,
    pub read: Transfer,
    pub write: Transfer,
}

fn unknown(name: &str, message: impl Into<String>, hint: impl Into<String>) -> Error {
    Error::new(Kind::Unsupported, message)
        .with_operation("load libxnvme")
        .with_object(name)
        .with_hint(hint)
}

fn last_error() -> String {
    // SAFETY: the text is this thread's until its next call of the loader, and is copied at once.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".into();
    }
    // SAFETY: not null, so it is a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// A loaded file that has symbols.
struct Loaded {
    handle: *mut c_void,
    name: String,
}

impl Loaded {
    fn open(path: &OsStr) -> Result<Self> {
        let name = path.to_string_lossy().into_owned();
        let Ok(text) = CString::new(path.as_bytes()) else {
            return Err(unknown(&name, "its name has a zero byte", "Name another file"));
        };
        // SAFETY: a C string; the library's own start is trusted by whoever names it.
        let handle = unsafe { libc::dlopen(text.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            let hint = format!("Install libxnvme 0.7, name it with {VARIABLE}, or choose io=uring");
            return Err(unknown(&name, format!("it cannot be loaded: {}", last_error()), hint));
        }
        Ok(Loaded { handle, name })
    }

    /// A function by its name.
    ///
    /// # Safety
    /// `F` is the type of the function of that name, a pointer.
    unsafe fn symbol<F: Copy>(&self, symbol: &CStr) -> Result<F> {
        // SAFETY: the handle is open and never closed.
        let address = unsafe { libc::dlsym(self.handle, symbol.as_ptr()) };
        if address.is_null() || size_of::<F>() != size_of::<*mut c_void>() {
            let message = format!("it has no {}", symbol.to_string_lossy());
            return Err(unknown(&self.name, message, "Install libxnvme 0.7"));
        }
        // SAFETY: a function's address, of the type that the caller vouches for.
        Ok(unsafe { std::mem::transmute_copy(&address) })
    }
}

impl Library {
    /// Loads the library: `path`, or what the environment names, or the usual one.
    ///
    /// # Errors
    /// `Unsupported` where there is none, or one that is not known.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let named = path.map(|path| path.as_os_str().to_os_string());
        let name = named.or_else(|| std::env::var_os(VARIABLE)).unwrap_or_else(|| NAME.into());
        let loaded = Loaded::open(&name)?;
        check_version(&loaded)?;
        // SAFETY: the types are those of `libxnvme.h` of the version that was checked.
        let library = unsafe {
            Library {
                options: loaded.symbol(c"xnvme_opts_default")?,
                open: loaded.symbol(c"xnvme_dev_open")?,
                close: loaded.symbol(c"xnvme_dev_close")?,
                geo: loaded.symbol(c"xnvme_dev_get_geo")?,
                namespace: loaded.symbol(c"xnvme_dev_get_nsid")?,
                queue_init: loaded.symbol(c"xnvme_queue_init")?,
                queue_term: loaded.symbol(c"xnvme_queue_term")?,
                poke: loaded.symbol(c"xnvme_queue_poke")?,
                get: loaded.symbol(c"xnvme_queue_get_cmd_ctx")?,
                put: loaded.symbol(c"xnvme_queue_put_cmd_ctx")?,
                read: loaded.symbol(c"xnvme_nvm_read")?,
                write: loaded.symbol(c"xnvme_nvm_write")?,
            }
        };
        let defaults = library.defaults();
        let is_known = defaults.read_write == 1
            && defaults.create_mode == 0o600
            && defaults.namespace <= 1
            && [defaults.read_only, defaults.write_only, defaults.direct] == [0; 3]
            && defaults.asynchronous.is_null();
        if !is_known {
            let message = "its options have another layout than those of libxnvme 0.7.2 and later";
            let hint = "Install libxnvme 0.7.2 or later, or choose io=uring";
            return Err(unknown(&loaded.name, message, hint));
        }
        Ok(library)
    }

    /// Options as the library makes them.
    pub fn defaults(&self) -> Options {
        // SAFETY: the function fills the structure, which is at least as long as the library's.
        unsafe { (self.options)() }
    }
}

fn check_version(loaded: &Loaded) -> Result<()> {
    type Number = unsafe extern "C" fn() -> c_int;
    // SAFETY: these functions take nothing and give a number, in every version.
    let numbers = unsafe {
        let major: Number = loaded.symbol(c"xnvme_ver_major")?;
        let minor: Number = loaded.symbol(c"xnvme_ver_minor")?;
        (major(), minor())
    };
    if numbers == KNOWN {
        return Ok(());
    }
    let message = format!("it is version {}.{}, known is 0.7", numbers.0, numbers.1);
    Err(unknown(&loaded.name, message, "Install libxnvme 0.7, or choose io=uring"))
}
