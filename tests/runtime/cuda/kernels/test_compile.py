"""Modules compile without a driver; what ptxas tells is read; the disk remembers; what is missing is told."""

import json
import sys
from dataclasses import asdict

import pytest

from brickrt.graph.errors import BrickError
from brickrt.runtime.cache.disk_cache import DiskCache
from brickrt.runtime.cuda.kernels import compile as compiling
from brickrt.runtime.cuda.kernels.compile import (
    CompiledModule,
    Resources,
    compile_module,
    compile_modules,
    first_error,
    resources,
)
from brickrt.runtime.cuda.kernels.context_header import header

SCALE = """
struct Call {
    __device__ void operator()(int, const brick::Step& s, char* const* at, char*) const {
        for (int i = s.lo[0] + brick::thread(); i < s.hi[0]; i += brick::threads())
            reinterpret_cast<float*>(at[0])[i] = 2 * reinterpret_cast<const float*>(at[1])[i];
    }
};
BRICK_KERNEL(tickets, brick::Context, 256, 2) {
    BRICK_SHARED(shared);
    brick::run_by_tickets(c, first, count, launch, slot, shared, Call{});
}
BRICK_KERNEL(turn, brick::Context, 256, 2) {
    BRICK_SHARED(shared);
    brick::run_in_turn(c, first, count, launch, slot, shared, Call{});
}
"""
SOURCE = '#include "portable.cuh"\n' + header() + '#include "schedule.cuh"\n' + SCALE
SMALL = 'extern "C" __global__ void one(float* p) { *p = 1; }\n'

LOG = """
ptxas info    : 72 bytes gmem, 144 bytes cmem[4]
ptxas info    : Compiling entry function 'turn' for 'sm_80'
ptxas info    : Function properties for turn
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for _Z4calledf
ptxas         .     40 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 36 registers, used 1 barriers, 1024 bytes smem, 376 bytes cmem[0]
ptxas info    : Compiling entry function 'tickets' for 'sm_80'
ptxas info    : Function properties for tickets
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 376 bytes cmem[0]
"""


@pytest.fixture
def compiler():
    try:
        return compiling._compiler()
    except BrickError as e:
        pytest.skip(str(e))


@pytest.fixture
def empty_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("BRICKRT_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_what_ptxas_tells():
    assert resources(LOG) == (
        Resources("turn", 36, 1024, 16, 12, 8),
        Resources("tickets", 64),
        Resources("_Z4calledf", 0, 0, 40),
    )
    assert resources("") == ()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_scheduling_compiles_without_spills(arch, compiler):
    module = compile_module(SOURCE, arch)
    assert module.image[:4] == b"\x7fELF"
    assert [f.name for f in module.functions[:2]] in (["tickets", "turn"], ["turn", "tickets"])
    for kernel in module.functions:
        assert 0 < kernel.registers <= 128 and (kernel.stack, kernel.spill_stores, kernel.spill_loads) == (0, 0, 0)


def test_a_module_is_compiled_once(monkeypatch, compiler, empty_cache):
    first = compile_module(SMALL, "sm_80")
    monkeypatch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compile_module(SMALL, "sm_80") == first


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"[]",
        b"{}\n\x7fELF",
        b"[]\nPTX",
        b"[{}]\n\x7fELF",
        b"[3]\n\x7fELF",
        b"[[[\n\x7fELF",
        b"\xff\n\x7fELF",
        b"[" * 100_000 + b"\n\x7fELF",
        json.dumps([asdict(Resources("k")) | {"registers": -1}]).encode() + b"\n\x7fELF",
        json.dumps([asdict(Resources("k")) | {"name": 3}]).encode() + b"\n\x7fELF",
        json.dumps([asdict(Resources("k")) | {"surplus": 3}]).encode() + b"\n\x7fELF",
    ],
    ids=lambda blob: str(blob[:40]),
)
def test_what_is_no_module_is_compiled_again(monkeypatch, empty_cache, blob):
    """Even where it was kept with the caches' secret."""
    module = CompiledModule(b"\x7fELF code", (Resources("k", 8),))
    monkeypatch.setattr(compiling, "_digest", lambda *_: "name")
    monkeypatch.setattr(compiling, "_compile", lambda *_: module)
    store = DiskCache.open("cuda")
    store.put("name", blob)
    assert store.get("name") == blob
    assert compile_module(SMALL, "sm_80") == module
    monkeypatch.setattr(compiling, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compile_module(SMALL, "sm_80") == module


def test_text_architecture_compiler_and_headers_decide(monkeypatch, compiler):
    digests = [compiling._digest(SMALL, "sm_80"), compiling._digest(SMALL, "sm_90"), compiling._digest("", "sm_80")]
    monkeypatch.setattr(compiling, "_headers_digest", lambda: "others")
    digests.append(compiling._digest(SMALL, "sm_80"))
    assert len(set(digests)) == 4


def test_several_modules_side_by_side(compiler, empty_cache):
    told = []
    sources = [SMALL.replace("one", f"k{k}") for k in range(4)]
    modules = compile_modules(sources, "sm_90", lambda *at: told.append(at), 2)
    assert [m.functions[0].name for m in modules] == ["k0", "k1", "k2", "k3"]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_does_not_compile_is_told_in_one_line(compiler, empty_cache):
    with pytest.raises(BrickError, match=r"does not compile for sm_90: .*error: identifier \"x\" is undefined") as e:
        compile_module(SMALL.replace("= 1", "= x"), "sm_90")
    assert "\n" not in str(e.value)
    with pytest.raises(BrickError, match=r"NVRTC .* does not compile for sm_1: use a newer package nvidia-cuda-nvrtc"):
        compile_module(SMALL, "sm_1")


def test_a_gpu_newer_than_the_compiler_gets_code_for_the_latest_of_its_generation(compiler, empty_cache):
    assert compiling._known("sm_90") == "sm_90"
    assert compiling._known("sm_99") == "sm_90"
    assert compile_module(SMALL, "sm_99").functions == compile_module(SMALL, "sm_90").functions
    with pytest.raises(BrickError, match="use a newer package"):
        compiling._known("sm_990")


def test_first_error():
    log = (
        "NVRTC_ERROR_COMPILATION: 6\n\ncompilation log:\n\nk(3): warning: unused\nk(5): error: no such thing\n  x = y\n"
    )
    assert first_error(log) == "k(5): error: no such thing"
    assert first_error("") == ""


@pytest.mark.parametrize("missing", ["cuda.bindings"])
def test_a_missing_package_is_named(monkeypatch, missing):
    compiling._compiler.cache_clear()
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(BrickError, match=r"need the package cuda-bindings .*: pip install \"brickrt\[cuda13\]\""):
        compile_module(SMALL, "sm_80")
    compiling._compiler.cache_clear()


def test_what_the_compiler_looks_for_is_loaded_before_it(monkeypatch, compiler):
    """NVRTC 13.0 of a package does not find its other library by itself."""
    compiling._compiler.cache_clear()
    loaded: list[str] = []
    monkeypatch.setattr(compiling, "load_library", loaded.append)
    compiling._compiler()
    assert loaded == ["nvrtc-builtins", "nvrtc"]
    compiling._compiler.cache_clear()


def test_missing_headers_are_named(monkeypatch, compiler):
    compiling._compiler.cache_clear()
    monkeypatch.setattr(compiling, "folders", lambda kind: iter(()))
    with pytest.raises(BrickError, match=r"brickrt\[cuda13\]"):
        compile_module(SMALL, "sm_80")
    compiling._compiler.cache_clear()
