from penstock_bench.called import Function, called, functions, ordered, plain

PROFILE = """
ob=/usr/lib/libc.so.6
fn=malloc
ob=/build/penstock
fn=_ZN1a1b17h0000000000000001E'2
1 2
cfn=_ZN1c1d17h0000000000000002E
fn=main
"""
SYMBOLS = """
Symbol table '.symtab' contains 9 entries:
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FILE    LOCAL  DEFAULT  ABS tokio.0a1b-cgu.2
     2: 0000000000001000    16 FUNC    LOCAL  DEFAULT   16 _ZN1a1b17h0000000000000001E
     3: 0000000000000000     0 FILE    LOCAL  DEFAULT  ABS curve25519.c
     4: 0000000000001010  0x20 FUNC    LOCAL  DEFAULT   16 fe_invert
     5: 0000000000001030     0 FUNC    LOCAL  DEFAULT   16 empty
     6: 0000000000001040     8 FUNC    GLOBAL DEFAULT   16 main
"""


def of(name: str, number: int, size: int, crate: str = "") -> Function:
    return Function(f"_ZN{name}17h{number:016x}E", size, crate)


def test_only_functions_of_the_binary_that_were_entered_count() -> None:
    assert list(called(PROFILE.splitlines(), "/penstock")) == [
        "_ZN1a1b17h0000000000000001E",
        "main",
    ]


def test_names_lose_what_differs_from_build_to_build() -> None:
    assert plain("_ZN5tokio4park17h0123456789abcdefE.llvm.77") == "_ZN5tokio4park"
    assert plain("_RNvNtCslNYArtu3iFV_5alloc6string3new") == "_RNvNtCs*_5alloc6string3new"
    assert plain("memcpy") is None


def test_functions_are_of_the_crate_whose_object_is_told_before_them() -> None:
    assert list(functions(SYMBOLS.splitlines())) == [
        Function("_ZN1a1b17h0000000000000001E", 16, "tokio"),
        Function("fe_invert", 32, ""),
        Function("main", 8, ""),
    ]


def test_what_every_run_calls_comes_first_and_what_hardly_is_called_last() -> None:
    every = [
        of("1a", 1, 10),
        of("1b", 2, 10),
        of("1c", 3, 10, "tokio"),
        of("1c", 4, 90, "tokio"),
        of("1c", 5, 90, "s3s"),
        of("1d", 6, 10),
        Function("memcpy", 50, ""),
    ]
    symbol = {function.symbol[3:5] + function.symbol[-2]: function.symbol for function in every[:6]}
    runs = [
        {symbol["1a1"], symbol["1b2"], symbol["1c3"], "memcpy"},
        {symbol["1b2"], symbol["1c3"]},
    ]
    assert ordered(runs, every) == ["_ZN1b", "_ZN1a", "_ZN1c tokio"]


def test_a_name_is_of_all_crates_where_most_of_it_is_called() -> None:
    every = [of("1a", 1, 60, "tokio"), of("1a", 2, 40, "s3s"), of("1b", 3, 9, "tokio")]
    assert ordered([{every[0].symbol}], every) == ["_ZN1a"]
    assert ordered([{every[1].symbol}], every) == ["_ZN1a s3s"]
