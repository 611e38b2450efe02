"""Which PTX instructions there are: how each becomes C++ (see numbers.hpp, machine.hpp, warps.hpp)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.ptx.parse import Instruction

TYPES = frozenset(
    [
        "pred",
        "f16",
        "bf16",
        "f16x2",
        "bf16x2",
        "f32",
        "f64",
        "tf32",
        *(f"{k}{n}" for k in "bsu" for n in (8, 16, 32, 64)),
    ]
)
WIDE = {"s16": "s32", "u16": "u32", "s32": "s64", "u32": "u64"}

# Functions op_NAME of numbers.hpp and the types of their operands: T that of the instruction, W twice as wide, u of 32
# bits without a sign, p a predicate, c the carry, which the text does not name.
_ARITHMETIC = {
    "TT": "add sub mul mul.lo mul.hi mul.wide min max min.NaN max.NaN and or xor div rem div.rn div.full div.approx "
    "div.approx.ftz copysign add.rz",
    "TTT": "mad.lo mad.hi fma.rn fma.rm fma.rp fma.rz",
    "TTc": "add.cc addc addc.cc sub.cc subc subc.cc",
    "TTTc": "mad.lo.cc mad.hi.cc madc.lo madc.hi madc.lo.cc madc.hi.cc",
    "TTW": "mad.wide",
    "Tu": "shl shr",
    "uuu": "shf.l.wrap shf.r.wrap shf.l.clamp shf.r.clamp prmt",
    "uuuu": "lop3",
    "Tuu": "bfe",
    "TTuu": "bfi",
    "TTp": "selp",
    "T": "neg abs not mov brev popc clz bfind bfind.shiftamt rcp.rn sqrt.rn rcp.approx rcp.approx.ftz sqrt.approx "
    "rsqrt.approx rsqrt.approx.ftz ex2.approx ex2.approx.ftz lg2.approx lg2.approx.ftz tanh.approx sin.approx "
    "cos.approx",
}
OPERATIONS = {name: types for types, names in _ARITHMETIC.items() for name in names.split()}
_PLAIN = {"add.rn": "add", "sub.rn": "sub", "mul.rn": "mul"}  # to nearest is what is meant without a word
COMPARISONS = frozenset("eq ne lt le gt ge equ neu ltu leu gtu geu num nan".split()) | {"lo", "ls", "hi", "hs"}
_ROUNDS = frozenset("rn rz rm rp rni rzi rmi rpi".split())
SPECIAL = {
    **{f"%{name}.{axis}": "0" for name in ("tid", "ctaid") for axis in "yz"},
    **{f"%{name}.{axis}": "1" for name in ("ntid", "nctaid") for axis in "yz"},
    "%tid.x": "host::me().thread",
    "%ntid.x": "host::now().threads",
    "%ctaid.x": "host::now().block",
    "%nctaid.x": "host::now().blocks",
    "%laneid": "lane()",
    "%globaltimer": "globaltimer()",
}
ORDERS = {"relaxed": "RELAXED", "acquire": "ACQUIRE", "release": "RELEASE", "acq_rel": "ACQ_REL", "volatile": "RELAXED"}
SPACES = {"global": "GLOBAL", "shared": "SHARED", "local": "LOCAL", "param": "PARAM", "const": "CONSTANT"}
_ATOMS = {
    "add": "(T)(seen + b)",
    "max": "seen > b ? seen : b",
    "min": "seen < b ? seen : b",
    "exch": "b",
    "or": "(T)(seen | b)",
    "and": "(T)(seen & b)",
    "cas": "seen == b ? c : seen",
}


class Unknown(ValueError):
    """An instruction that this translator does not know."""


@dataclass(frozen=True)
class InstructionWords:
    """An instruction's opcode in parts, and its operands as C++ through `read` and `write` of the function it is in."""

    instruction: Instruction
    read: Callable[[str, str], str]  # (operand, type) → C++ value
    write: Callable[..., str]  # (operand, C++ value, its type where that is known) → C++ statement
    address: Callable[[str], str]  # "[a+4]" → C++ value
    text: str  # C++ literal that says where this is

    @property
    def root(self) -> str:
        return self.instruction.opcode.split(".")[0]

    @property
    def parts(self) -> list[str]:
        return self.instruction.opcode.replace("::", ".").split(".")[1:]

    @property
    def types(self) -> list[str]:
        return [part for part in self.parts if part in TYPES]

    @property
    def others(self) -> list[str]:
        return [part for part in self.parts if part not in TYPES]

    def unknown(self) -> Unknown:
        return Unknown(f"PTX instruction not known: {self.instruction}")


def translate(w: InstructionWords) -> str:
    """C++ statements of an instruction that is no jump or call."""
    handler = _HANDLERS.get(w.root, _arithmetic)
    return handler(w)


def _arithmetic(w: InstructionWords) -> str:
    name = ".".join([w.root, *w.others])
    name = _PLAIN.get(name, name)
    kinds = OPERATIONS.get(name)
    if kinds is None or len(w.types) != 1:
        raise w.unknown()
    target, *operands = w.instruction.operands
    operands += ["%carry"] * kinds.count("c")
    if len(operands) != len(kinds):
        raise w.unknown()
    kind = "bool" if w.types[0] == "pred" else _unsigned(w.types[0])
    named = {"T": kind, "u": "u32", "p": "bool", "c": "bool", "W": WIDE.get(kind, "")}
    values = ", ".join(w.read(operand, named[k]) for operand, k in zip(operands, kinds, strict=True))
    own = "" if "T" not in kinds or _single(name) else f"<{kind}>"
    return w.write(target, values if name == "mov" else f"op_{name.replace('.', '_')}{own}({values})", kind)


def _single(name: str) -> bool:
    """Whether an approximate function is of 32-bit floats alone."""
    return name.split(".")[0] in ("ex2", "lg2", "tanh", "sin", "cos")


def _unsigned(name: str) -> str:
    return "u" + name[1:] if name[0] == "b" and name[1:].isdigit() else name


def _mov(w: InstructionWords) -> str:
    if len(w.types) != 1 or w.others:
        raise w.unknown()
    target, source = w.instruction.operands
    if target[0] != "{" and source[0] != "{":
        return _arithmetic(w)
    whole, parts = (source, target) if target[0] == "{" else (target, source)
    names = parts.strip("{}").split(",")
    width = int(w.types[0][1:]) // len(names)
    if source[0] == "{":
        value = " | ".join(f"(u64){w.read(n, f'u{width}')} << {k * width}" for k, n in enumerate(names))
        return w.write(whole, f"(u{width * len(names)})({value})")
    whole = f"(u64){w.read(whole, f'u{width * len(names)}')}"
    lines = (w.write(n, f"(u{width})(whole >> {k * width})") for k, n in enumerate(names))
    return f"{{ const u64 whole = {whole}; {' '.join(lines)} }}"


def _setp(w: InstructionWords) -> str:
    compare, *logic = w.others
    if compare not in COMPARISONS or len(w.types) != 1 or logic not in ([], ["and"], ["or"], ["xor"]):
        raise w.unknown()
    kind = "bool" if w.types[0] == "pred" else _unsigned(w.types[0])
    compare = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(compare, compare)
    target, a, b, *more = w.instruction.operands
    value = f"op_setp_{compare}<{kind}>({w.read(a, kind)}, {w.read(b, kind)})"
    signs = {"and": "&", "or": "|", "xor": "^"}
    end = f" {signs[logic[0]]} {w.read(more[0], 'bool')}" if logic else ""
    first, *second = target.split("|")
    lines = [w.write(one, f"(bool)({sign}seen{end})") for one, sign in zip((first, *second), ("", "!"))]
    return f"{{ const bool seen = {value}; {' '.join(lines)} }}"


def _cvt(w: InstructionWords) -> str:
    others, types = w.others, w.types
    target, *sources = w.instruction.operands
    if types == ["tf32", "f32"] and others == ["rna"]:
        return w.write(target, f"op_cvt_tf32({w.read(sources[0], 'f32')})")
    if len(sources) == 2 and types[0] in ("f16x2", "bf16x2") and others == ["rn"]:
        return w.write(target, f"op_cvt_two<{types[0]}>({w.read(sources[0], 'f32')}, {w.read(sources[1], 'f32')})")
    rounds = [o for o in others if o in _ROUNDS]
    if len(types) != 2 or len(rounds) > 1 or set(others) - _ROUNDS - {"sat"} or len(sources) != 1:
        raise w.unknown()
    mode = rounds[0].upper() if rounds else "NONE"
    to, of = map(_unsigned, types)
    sat = "true" if "sat" in others else "false"
    return w.write(target, f"op_cvt<{to}, {of}, {mode}, {sat}>({w.read(sources[0], of)})")


def _memory(w: InstructionWords) -> tuple[str, int, str, str]:
    """Space, elements, order ("" where none is said) and way of a load or store."""
    space, count, order, way = "GENERIC", 1, "", "READ"
    for part in w.others:
        if part in SPACES:
            space = SPACES[part]
        elif part in ("v2", "v4"):
            count = int(part[1])
        elif part in ORDERS:
            order = ORDERS[part]
        elif part == "nc":
            way = "READ_ONCE"
        elif part not in ("gpu", "sys", "cta", "weak"):
            raise w.unknown()
    if len(w.types) != 1 or (order and count > 1):
        raise w.unknown()
    return space, count, order, way


def _load(w: InstructionWords) -> str:
    space, count, order, way = _memory(w)
    kind = _unsigned(w.types[0])
    target, address = w.instruction.operands
    at = w.address(address)
    if order:
        return w.write(target, f"load_ordered<{space}, {kind}>({at}, __ATOMIC_{order}, {w.text})")
    found = f"load<{space}, {kind}, {count}>({at}, {way}, {w.text})"
    if count == 1:
        return w.write(target, f"{found}.v[0]", kind)
    names = target.strip("{}").split(",")
    lines = (w.write(name, f"found.v[{k}]", kind) for k, name in enumerate(names) if name != "_")
    return f"{{ const auto found = {found}; {' '.join(lines)} }}"


def _store(w: InstructionWords) -> str:
    space, count, order, _ = _memory(w)
    kind = _unsigned(w.types[0])
    address, source = w.instruction.operands
    at = w.address(address)
    if order:
        return f"store_ordered<{space}, {kind}>({at}, {w.read(source, kind)}, __ATOMIC_{order}, {w.text});"
    values = ", ".join(w.read(name, kind) for name in source.strip("{}").split(","))
    return f"store<{space}, {kind}, {count}>({at}, {{{values}}}, {w.text});"


def _cvta(w: InstructionWords) -> str:
    target, source = w.instruction.operands
    to, space = "to" in w.others, next((o for o in w.others if o in SPACES), "")
    if w.types != ["u64"] or not space or set(w.others) - {"to", space}:
        raise w.unknown()
    shift = "reinterpret_cast<u64>(host::now().shared)" if space == "shared" else "0"
    return w.write(target, f"{w.read(source, 'u64')} {'-' if to else '+'} {shift}")


def _isspacep(w: InstructionWords) -> str:
    target, address = w.instruction.operands
    if w.others != ["shared"]:
        raise w.unknown()
    return w.write(target, f"in_shared({w.read(address, 'u64')}, 1)")


def _atom(w: InstructionWords) -> str:
    space, order, name = "GENERIC", "RELAXED", ""
    for part in w.others:
        if part in SPACES:
            space = SPACES[part]
        elif part in ORDERS:
            order = ORDERS[part]
        elif part in _ATOMS:
            name = part
        elif part not in ("gpu", "sys", "cta"):
            raise w.unknown()
    if not name or len(w.types) != 1 or w.types[0][0] == "f":
        raise w.unknown()
    kind = _unsigned(w.types[0])
    target, address, *values = w.instruction.operands if w.root == "atom" else ("_", *w.instruction.operands)
    names = "".join(f", {n} = {w.read(v, kind)}" for n, v in zip("bc", values))
    next_value = f"[{names[2:]}](T seen) {{ return {_ATOMS[name]}; }}"
    found = f"atomic<{space}, T>({w.address(address)}, __ATOMIC_{order}, {w.text}, {next_value})"
    return f"{{ using T = {kind}; {found + ';' if target == '_' else w.write(target, found)} }}"


def _fence(w: InstructionWords) -> str:
    if set(w.others) - {"sc", "acq_rel", "gpu", "sys", "cta", "gl"}:
        raise w.unknown()
    return "__atomic_thread_fence(__ATOMIC_SEQ_CST);"


def _barrier(w: InstructionWords) -> str:
    operands = w.instruction.operands
    if w.others == ["warp", "sync"]:
        return f"warp_sync({w.read(operands[0], 'u32')}, {w.text}); path = 0;"
    if w.others not in (["sync"], ["cta", "sync", "aligned"]) or operands != ("0",):
        raise w.unknown()
    return "block_barrier(); path = 0;"


def _shuffle(w: InstructionWords) -> str:
    target, *sources = w.instruction.operands
    if w.others[0] != "sync" or w.types != ["b32"] or len(w.others) != 2:
        raise w.unknown()
    value = f"shuffle<{w.others[1].upper()}>({', '.join(w.read(s, 'u32') for s in sources)}, {w.text})"
    first, *inside = target.split("|")
    lines = [w.write(first, "found.value"), *(w.write(p, "found.inside") for p in inside)]
    return f"{{ const Shuffled found = {value}; {' '.join(lines)} }}"


def _vote(w: InstructionWords) -> str:
    target, source, mask = w.instruction.operands
    if w.others not in (["sync", "ballot"], ["sync", "any"], ["sync", "all"]):
        raise w.unknown()
    found = f"ballot({w.read(source, 'bool')}, {w.read(mask, 'u32')}, {w.text})"
    return w.write(target, found + {"ballot": "", "any": " != 0", "all": " == ~0u"}[w.others[1]])


def _matrices(w: InstructionWords) -> str:
    if ".".join(w.parts) != "sync.aligned.m8n8.x4.shared.b16":
        raise w.unknown()
    target, address = w.instruction.operands
    lines = (w.write(n, f"found.v[{k}]") for k, n in enumerate(target.strip("{}").split(",")))
    return f"{{ const auto found = load_matrices4({w.address(address)}, path, {w.text}); {' '.join(lines)} }}"


_PRODUCTS = {
    "sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "tf32",
    "sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "Halves<f16>",
    "sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": "Halves<bf16>",
}


def _multiply(w: InstructionWords) -> str:
    kind = _PRODUCTS.get(".".join(w.parts))
    if kind is None:
        raise w.unknown()
    target, *sources = w.instruction.operands
    vectors = (
        "{" + ", ".join(w.read(n, t) for n in source.strip("{}").split(",")) + "}"
        for source, t in zip(sources, ("u32", "u32", "f32"), strict=True)
    )
    lines = (w.write(n, f"found.v[{k}]") for k, n in enumerate(target.strip("{}").split(",")))
    return f"{{ const auto found = multiply<{kind}>({', '.join(vectors)}, path, {w.text}); {' '.join(lines)} }}"


def _copy(w: InstructionWords) -> str:
    operands, parts = w.instruction.operands, w.instruction.opcode.split(".")[1:]
    if parts == ["async", "commit_group"]:
        return "copy_commit();"
    if parts == ["async", "wait_all"]:
        return "copy_wait_all();"
    if parts == ["async", "wait_group"]:
        return f"copy_wait({w.read(operands[0], 'u32')});"
    if parts not in (["async", "ca", "shared", "global"], ["async", "cg", "shared", "global"]):
        raise w.unknown()
    to, source, size, *valid = operands
    bytes_ = w.read(size, "u32")
    count = w.read(valid[0], "u32") if valid else bytes_
    return f"copy_async({w.address(to)}, {w.address(source)}, {bytes_}, {count}, {w.text});"


def _sleep(w: InstructionWords) -> str:
    return "host::yield();"


def _trap(w: InstructionWords) -> str:
    return f'die({w.text}, "the kernel gave up", 0);'


_HANDLERS: dict[str, Callable[[InstructionWords], str]] = {
    "mov": _mov,
    "setp": _setp,
    "cvt": _cvt,
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "cvta": _cvta,
    "isspacep": _isspacep,
    "atom": _atom,
    "red": _atom,
    "membar": _fence,
    "fence": _fence,
    "bar": _barrier,
    "barrier": _barrier,
    "shfl": _shuffle,
    "vote": _vote,
    "ldmatrix": _matrices,
    "mma": _multiply,
    "cp": _copy,
    "nanosleep": _sleep,
    "trap": _trap,
}
