"""A writer of another extension: a function and file handles, by DuckDB's C API."""

from __future__ import annotations

import ctypes
import importlib
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import duckdb
from harness import EXTENSION, IS_DUCKDB_2, ROOT

BIGINT = 5
WRITE, CREATE = 2, 3
ERROR = 1


def library() -> ctypes.CDLL:
    """DuckDB's interface in C, which its Python module has from 2.0 on."""
    if IS_DUCKDB_2:
        return ctypes.CDLL(importlib.import_module("_duckdb").__file__)
    beside = EXTENSION.with_name("libduckdb.so")
    if beside.exists():
        return ctypes.CDLL(str(beside))
    command = [str(ROOT / "scripts/duckdb-sources.sh"), "library", duckdb.__version__]
    folder = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    return ctypes.CDLL(str(Path(folder) / "libduckdb.so"))


class Result(ctypes.Structure):
    """A `duckdb_result`, whose fields are DuckDB's own."""

    _fields_ = [("fields", ctypes.c_uint64 * 6)]


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)


class CWriter:
    """A database with a function `act()` that does what a test wants, inside a statement."""

    def __init__(self, secret: str) -> None:
        self.lib = library()
        for name in (
            "duckdb_create_file_open_options",
            "duckdb_client_context_get_file_system",
            "duckdb_create_logical_type",
            "duckdb_create_scalar_function",
            "duckdb_vector_get_data",
        ):
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.duckdb_result_error.restype = ctypes.c_char_p
        self.lib.duckdb_file_handle_write.restype = ctypes.c_int64
        self.action: Callable[[], None] = lambda: None
        config, database = ctypes.c_void_p(), ctypes.c_void_p()
        self.connection, context = ctypes.c_void_p(), ctypes.c_void_p()
        self.lib.duckdb_create_config(ctypes.byref(config))
        self.lib.duckdb_set_config(config, b"allow_unsigned_extensions", b"true")
        self.lib.duckdb_open_ext(None, ctypes.byref(database), config, None)
        self.lib.duckdb_connect(database, ctypes.byref(self.connection))
        self.run(f"LOAD '{EXTENSION}'")
        self.run(f"CREATE SECRET s ({secret})")
        self.run("SET penstock_retry_base_ms = 1; SET penstock_request_deadline_ms = 500")
        self.run("SET penstock_part_size_bytes = '5MiB'")
        self.lib.duckdb_connection_get_client_context(self.connection, ctypes.byref(context))
        self.files = ctypes.c_void_p(self.lib.duckdb_client_context_get_file_system(context))
        self.register()

    def register(self) -> None:
        """Adds `act(BIGINT)`."""
        bigint = ctypes.c_void_p(self.lib.duckdb_create_logical_type(BIGINT))
        function = ctypes.c_void_p(self.lib.duckdb_create_scalar_function())
        self.lib.duckdb_scalar_function_set_name(function, b"act")
        self.lib.duckdb_scalar_function_add_parameter(function, bigint)
        self.lib.duckdb_scalar_function_set_return_type(function, bigint)
        self.lib.duckdb_scalar_function_set_volatile(function)

        def call(_info: int, _input: int, output: int) -> None:
            self.action()
            data = self.lib.duckdb_vector_get_data(ctypes.c_void_p(output))
            ctypes.cast(data, ctypes.POINTER(ctypes.c_int64))[0] = 42

        self.callback = CALLBACK(call)
        self.lib.duckdb_scalar_function_set_function(function, self.callback)
        self.lib.duckdb_register_scalar_function(self.connection, function)

    def run(self, sql: str) -> str:
        """Runs statements; the error, or nothing."""
        result = Result()
        state = self.lib.duckdb_query(self.connection, sql.encode(), ctypes.byref(result))
        error = self.lib.duckdb_result_error(ctypes.byref(result)) if state == ERROR else b""
        text = (error or b"").decode()
        self.lib.duckdb_destroy_result(ctypes.byref(result))
        return text

    def act(self, action: Callable[[], None], behind: str = "") -> str:
        """A statement in which this is done; the error, or nothing."""
        self.action = action
        return self.run(f"SELECT act(i) {behind} FROM range(1) t(i)")

    def open(self, url: str, size: int = 100) -> ctypes.c_void_p:
        """A file with so many bytes written to it."""
        options = ctypes.c_void_p(self.lib.duckdb_create_file_open_options())
        for flag in (WRITE, CREATE):
            self.lib.duckdb_file_open_options_set_flag(options, flag, True)
        handle = ctypes.c_void_p()
        state = self.lib.duckdb_file_system_open(
            self.files, url.encode(), options, ctypes.byref(handle)
        )
        assert state != ERROR, url
        self.write(handle, size)
        return handle

    def write(self, handle: ctypes.c_void_p, size: int) -> None:
        """Writes so many bytes more."""
        block = b"x" * min(size, 1 << 20)
        for _ in range(size // len(block)):
            self.lib.duckdb_file_handle_write(handle, block, ctypes.c_int64(len(block)))

    def close(self, handle: ctypes.c_void_p) -> None:
        """Closes and destroys, where nothing would catch an exception."""
        self.lib.duckdb_destroy_file_handle(ctypes.byref(handle))

    def close_elsewhere(self, handle: ctypes.c_void_p) -> None:
        """The same, on another thread."""
        thread = threading.Thread(target=self.close, args=[handle])
        thread.start()
        thread.join()
