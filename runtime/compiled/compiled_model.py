"""`CompiledModel`: a model from a compiled file. Neither LLVM nor ONNX is loaded for it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from brickrt.graph.errors import BrickError
from brickrt.graph.onnx_import.check_inputs import check_inputs, check_named
from brickrt.graph.onnx_import.tensor_info import TensorInfo
from brickrt.ops.types import TensorType
from brickrt.plan.geometry.arena_packing import aligned
from brickrt.runtime.compiled.code_image import CodeImage
from brickrt.runtime.compiled.compiled_file import HOW_TO_COMPILE_AGAIN, OpenedFile
from brickrt.runtime.compiled.file_header import CompiledHeader, words_digest
from brickrt.runtime.compiled.processor import lacking, machine
from brickrt.runtime.cpu.memory import HugePagePool
from brickrt.runtime.cpu.worker_program import ProgramMemory, WorkerCode, WorkerProgram, WorkerTables
from brickrt.runtime.cpu.workers.mailbox_words import MailboxFunctions
from brickrt.runtime.cpu.workers.thread_pool import thread_pool
from brickrt.runtime.cpu.working_memory import Need, WorkingMemory
from brickrt.runtime.execution.given_outputs import check_given, given_outputs
from brickrt.runtime.thread_count import thread_count
from brickrt.version import VERSION

_KEPT_CODE: list[CodeImage] = []  # that helper threads may be in until the process ends


class CompiledModel:
    """A model that `brickrt compile` made, ready to run: `path` is its file, `threads` one per core by default.

    The file has machine code in it, which runs in this process: load only files that you would run as a program. Raises
    BrickError, one line, where it is damaged, was compiled by another version, or for another processor.
    """

    def __init__(self, path: str | Path, *, threads: int | None = None) -> None:
        count = thread_count(threads)
        with OpenedFile(Path(path)) as opened:
            self.header = opened.header
            check_header(opened.path, opened.header)
            arrays = opened.read(count)
        self.threads = count
        self._program: WorkerProgram | None = _program(self.header, arrays, count)
        self._calls, self._settling = 0, threading.Lock()
        self._infos = {name: record.info for name, record in self.header.inputs.items()}
        self._made = [_type(self.header, name) for name in self.header.writes]

    @property
    def inputs(self) -> Mapping[str, TensorInfo]:
        """Type and shape of each input."""
        return self._infos

    @property
    def optional(self) -> Mapping[str, TensorInfo]:
        """No input may be left out, and none has a default any more."""
        return {}

    @property
    def outputs(self) -> Mapping[str, TensorInfo]:
        """Type and shape of each output."""
        return {name: record.info for name, record in self.header.outputs.items()}

    @property
    def program(self) -> WorkerProgram:
        """What runs. Raises BrickError once the model is closed."""
        if self._program is None:
            raise BrickError(f"the compiled model '{self.header.name}' is closed: open it again")
        return self._program

    def execute(self, inputs: Mapping[str, Any], *, outputs: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """The model's outputs by name; see `Runtime.execute`. May be called from several threads."""
        program = self.program
        check_named(inputs, self._infos)
        given = check_inputs(self, inputs)
        into = given_outputs(outputs, self.header.outputs, given.values())
        made = [
            check_given(name, into[name], kind) if name in into else np.empty(kind.shape, kind.dtype)
            for name, kind in zip(self.header.writes, self._made, strict=True)
        ]
        program.run([given[name] for name in self.header.reads], made)
        self.ran()
        by_name = dict(zip(self.header.writes, made, strict=True))
        return {name: by_name[name] for name in self.header.outputs}

    def ran(self) -> None:
        """Takes note of a call. After the second one constants move, in a thread: a process for one picture does
        without."""
        self._calls += 1
        program = self._program
        if self._calls > 1 and program is not None and self._settling.acquire(blocking=False):  # held from now on: once
            threading.Thread(target=settle, args=(program,), name="brickrt-settle", daemon=True).start()

    def cancel(self) -> None:
        """Ends the run under way: its `execute` raises Cancelled."""
        self.program.cancel()

    def close(self) -> None:
        """Gives up code, constants and memory: calls raise BrickError from now on."""
        self._program = None

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"CompiledModel({self.header.name!r}, target={self.header.target!r}, threads={self.threads})"


def check_header(path: Path, header: CompiledHeader) -> None:
    """Raises BrickError where the code of a file cannot run here."""
    if header.brickrt != VERSION or header.words != words_digest():
        raise BrickError(f"{path}: was compiled by brickrt {header.brickrt}, this is {VERSION}: {HOW_TO_COMPILE_AGAIN}")
    if header.machine != machine():
        raise BrickError(f"{path}: was compiled for {header.machine}, this is {machine()}: compile it here")
    missing = lacking(header.needs)
    if missing:
        told = f"{', '.join(missing[:4])}{' and more' if len(missing) > 4 else ''}"
        raise BrickError(f"{path}: was compiled for {header.target}, this processor lacks {told}: use another --target")


def _program(header: CompiledHeader, arrays: Mapping[str, np.ndarray], threads: int) -> WorkerProgram:
    """The program of a file, in this process. Its constants are the file's pages."""
    image = CodeImage(arrays["code"], arrays["rebase"].view(np.uint32), header.code.imports)
    pool = thread_pool(partial(_mailbox, header, image))
    worker = image.at(header.code.functions["worker"])
    code = WorkerCode([image.at(k) for k in header.code.kernels], worker, pool, image)
    tables = _tables(header, arrays)
    need = Need(header.arena_bytes, header.scratch_bytes, threads)
    constants = list(_constants(arrays["constants"], header.constants))
    return WorkerProgram(tables, ProgramMemory(constants, need, WorkingMemory()), code)


def _mailbox(header: CompiledHeader, image: CodeImage) -> MailboxFunctions:
    """The functions of mailboxes for all helpers of this process, where no other program has brought them."""
    _KEPT_CODE.append(image)
    return MailboxFunctions.at(lambda name: image.at(header.code.functions[name]))


def _tables(header: CompiledHeader, arrays: Mapping[str, np.ndarray]) -> WorkerTables:
    def words(name: str) -> np.ndarray:
        return arrays[name].view(np.int64).copy()

    return WorkerTables(
        words("first_step"),
        words("step_at"),
        words("records"),
        words("dep_offsets"),
        words("deps"),
        arrays["places"].view(np.float64).copy(),
        len(header.reads) + len(header.writes),
    )


def settle(program: WorkerProgram) -> None:
    """Moves constants from pages of a file into huge pages, where kernels read them faster."""
    memory = HugePagePool()
    program.move_constants([memory.copy([array]) for array in program.constants])


def _constants(whole: np.ndarray, sizes: tuple[int, ...]) -> list[np.ndarray]:
    """The packed constants, each of which begins at a multiple of the widest vector."""
    found, at = [], 0
    for nbytes in sizes:
        found.append(whole[at : at + nbytes])
        at += aligned(nbytes)
    return found


def _type(header: CompiledHeader, name: str) -> TensorType:
    record = header.outputs[name]
    return TensorType(record.shape, np.dtype(record.dtype))
