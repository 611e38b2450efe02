"""Machine code of compiled modules as instructions, by NVIDIA's disassembler (package nvidia-cuda-nvdisasm)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from brickrt.runtime.cuda.kernels.packages import folders

INSTRUCTION = 16  # bytes


@dataclass(frozen=True)
class MachineInstruction:
    """One instruction: where it is in its function, in bytes; "LDG.E.128", "R4,[R2.64]", "@!P0" or nothing."""

    at: int
    opcode: str
    operands: str
    predicate: str

    @property
    def family(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def bytes(self) -> int:
        """What an access to memory moves for one thread: by its modifiers, 4 where none says otherwise."""
        if self.family == "LDSM":
            return 4 * int(self.opcode[-1])
        sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}
        return next((sizes[part] for part in self.opcode.split(".")[1:] if part in sizes), 4)

    @property
    def never(self) -> bool:
        """Whether it does nothing: loads that stand before asynchronous copies and are switched off."""
        return self.predicate == "@!PT"

    @property
    def conditional(self) -> bool:
        """Whether threads may pass it over: by its predicate, or by one that is an operand."""
        return bool(self.predicate) or self.operands.lstrip("!U").startswith("P")

    @property
    def target(self) -> int | None:
        """Where a branch goes to, None for what is no branch. Far ones, out of loops, are written as calls."""
        to = self.operands.split(",")[-1]
        return int(to, 16) if self.family in ("BRA", "CALL") and to.startswith("0x") else None


@dataclass(frozen=True)
class MachineFunction:
    """The instructions of a kernel or of a function that kernels call."""

    name: str
    code: tuple[MachineInstruction, ...]


def disassembler() -> str | None:
    """The path of nvdisasm, of a package, of a toolkit or on the search path; None where there is none."""
    found = [str(folder / "nvdisasm") for folder in folders("bin")]
    return next((path for path in found if os.access(path, os.X_OK)), shutil.which("nvdisasm"))


def disassemble(image: bytes) -> list[MachineFunction]:
    """The functions of a module."""
    tool = disassembler()
    assert tool is not None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "module.cubin")
        path.write_bytes(image)
        done = subprocess.run([tool, "--print-code", "--emit-json", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _, functions = json.loads(done.stdout)
    return [
        MachineFunction(f["function-name"], tuple(map(_instruction, enumerate(f["sass-instructions"]))))
        for f in functions
    ]


def _instruction(numbered: tuple[int, dict[str, str]]) -> MachineInstruction:
    k, words = numbered
    return MachineInstruction(k * INSTRUCTION, words["opcode"], words.get("operands", ""), words.get("predicate", ""))
