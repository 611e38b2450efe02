"""From LLVM IR to machine code, and into this process."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from llvmlite import binding as llvm
from llvmlite import ir
from llvmlite.binding import ffi

from brickrt.ops.cpu.emit.line_builder import module_text
from brickrt.ops.cpu.isa import FEW_REGISTERS, Isa

THOROUGH, QUICK = 3, 1  # of LLVM's levels of optimization
_options = threading.RLock()  # LLVM's are those of the whole process


def _before_fork() -> None:
    """Waits for what other threads have LLVM do, and keeps them from more: a child needs its memory and locks whole."""
    _options.acquire()
    ffi.lib._lock.__enter__()


def _after_fork() -> None:
    ffi.lib._lock.__exit__()
    _options.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def _host() -> tuple[str, str]:
    """The processor that this process runs on, and its features."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _target_machine(cpu: str = "", features: str = "", level: int = THOROUGH) -> llvm.TargetMachine:
    _initialize()
    target = llvm.Target.from_default_triple()
    # Not "pic": the loader confuses the offset tables of several objects in one library, and constants are read astray.
    return target.create_target_machine(cpu=cpu, features=features, opt=level, reloc="default", jit=True)


@cache
def _compiler(isa: Isa, level: int) -> llvm.TargetMachine:
    """LLVM's code generator for a processor; the host's where `isa` names none."""
    cpu, features = _host()
    return _target_machine(isa.cpu or cpu, isa.features or features, level)


def to_object(module: ir.Module | str, isa: Isa, quick: bool = False) -> bytes:
    """Compiles a module to an object file.

    The emitter has unrolled, vectorized and hoisted already, and computes nothing twice. What is left for LLVM is to
    keep variables in registers and to simplify index arithmetic: these few passes take a tenth of the time of its own
    pipeline, and the code is equally quick.

    `quick`: indices are only computed where they are needed, and instructions not scheduled a second time. Long loops
    full of vectors are as fast, and compile in two thirds of the time; short ones on a few bytes may not be.
    """
    machine = _compiler(isa, QUICK if quick else THOROUGH)
    parsed = llvm.parse_assembly(module if isinstance(module, str) else module_text(module))
    passes = llvm.create_new_function_pass_manager()
    passes.add_sroa_pass()
    if quick:
        passes.add_sinking_pass()
    else:
        passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    for function in parsed.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    with _loops_as_they_are(isa.registers > FEW_REGISTERS):
        return machine.emit_object(parsed)


@contextmanager
def _loops_as_they_are(spare: bool) -> Iterator[None]:
    """LLVM's loop strength reduction takes longer than all else of code generation, and kernels are as quick without.
    Unless there are registers to `spare`, instructions stay in order: moved apart, they need more than there are.
    Whoever else compiles in this process has both still."""
    with _options:
        llvm.set_option("brickrt", "-disable-lsr=true")
        llvm.set_option("brickrt", f"-enable-misched={str(spare).lower()}")
        try:
            yield
        finally:
            llvm.set_option("brickrt", "-disable-lsr=false")
            llvm.set_option("brickrt", "-enable-misched=true")


class LoadedObjects:
    """Object files loaded into the process; their functions live as long as this object.

    Nothing is compiled here: LLVM's engine is of no processor in particular, which takes it a quarter of a millisecond
    less, and gives back the module it must begin with, which it would compile, though empty, for 0.7 ms.
    """

    def __init__(self) -> None:
        empty = llvm.parse_assembly("")
        self._engine = llvm.create_mcjit_compiler(empty, _target_machine())
        self._engine.remove_module(empty)

    def add(self, image: bytes) -> None:
        """Adds an object file, as `to_object` gives it."""
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(image))

    def address(self, name: str) -> int:
        """Address of a function. Raises KeyError where no object has it."""
        self._engine.finalize_object()
        address = self._engine.get_function_address(name)
        if not address:
            raise KeyError(name)
        return address

    def function(self, name: str, *args: type, ret: type | None = None):
        """A function as a ctypes callable of the given argument and result types."""
        return ctypes.CFUNCTYPE(ret, *args)(self.address(name))
