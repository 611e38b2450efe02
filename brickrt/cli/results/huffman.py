"""Deflate without repeats: each byte by a code as long as it is rare. Of photographs little repeats, and looking for it
takes zlib most of its time."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from brickrt.ops.cpu.fixed_function import fixed_function

LONGEST_CODE = 14  # bits: four codes, and what is left of a byte, are in one word
SAMPLED = 8  # of so many bytes one is counted
END = 256  # the symbol behind the last byte
ORDER = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)  # of the lengths of lengths, RFC 1951 §3.2.7
FLUSHED = b"\0\0\xff\xff"  # a block of no bytes, which ends at a whole byte

# packed(bytes, count, table, out, state): state has the bits of a byte that is not full, and their number
TEXT = """
define i64 @packed(ptr noalias %bytes, i64 %count, ptr noalias %table, ptr noalias %out, ptr noalias %state) {
start:
  %number.at = getelementptr i64, ptr %state, i64 1
  %word.0 = load i64, ptr %state
  %number.0 = load i64, ptr %number.at
  br label %check
check:
  %k = phi i64 [0, %start], [%k.next, %four]
  %at = phi i64 [0, %start], [%at.next, %four]
  %word = phi i64 [%word.0, %start], [%word.next, %four]
  %number = phi i64 [%number.0, %start], [%number.next, %four]
  %more = icmp slt i64 %k, %count
  br i1 %more, label %four, label %end
four:
""" + "".join(f"""
  %k.{n} = add i64 %k, {n}
  %p.{n} = getelementptr i8, ptr %bytes, i64 %k.{n}
  %byte.{n} = load i8, ptr %p.{n}
  %index.{n} = zext i8 %byte.{n} to i64
  %q.{n} = getelementptr i32, ptr %table, i64 %index.{n}
  %entry.{n} = load i32, ptr %q.{n}
  %both.{n} = zext i32 %entry.{n} to i64
  %code.{n} = and i64 %both.{n}, 65535
  %bits.{n} = lshr i64 %both.{n}, 16
""" for n in range(4)) + """
  %high.0 = shl i64 %code.1, %bits.0
  %low = or i64 %code.0, %high.0
  %low.bits = add i64 %bits.0, %bits.1
  %high.1 = shl i64 %code.3, %bits.2
  %upper = or i64 %code.2, %high.1
  %upper.bits = add i64 %bits.2, %bits.3
  %high.2 = shl i64 %upper, %low.bits
  %all = or i64 %low, %high.2
  %all.bits = add i64 %low.bits, %upper.bits
  %placed = shl i64 %all, %number
  %full = or i64 %word, %placed
  %now = add i64 %number, %all.bits
  %to = getelementptr i8, ptr %out, i64 %at
  store i64 %full, ptr %to, align 1
  %whole = lshr i64 %now, 3
  %at.next = add i64 %at, %whole
  %gone = and i64 %now, 56
  %word.next = lshr i64 %full, %gone
  %number.next = and i64 %now, 7
  %k.next = add i64 %k, 4
  br label %check
end:
  store i64 %word, ptr %state
  store i64 %number, ptr %number.at
  ret i64 %at
}
"""  # fmt: skip


Packer = Callable[..., int]


def deflated(plain: bytes, last: bool, pack: Packer) -> bytes:
    """Bytes as blocks of deflate that end at a whole byte, for the `last` of a stream or others."""
    lengths = code_lengths(np.bincount(np.frombuffer(plain, np.uint8)[::SAMPLED], minlength=END))
    codes = reversed_codes(lengths)
    table = (codes | lengths.astype(np.uint32) << 16)[:END].copy()
    head, bits = _header(lengths, last)
    state = np.array([head >> (bits & ~7), bits & 7], np.int64)
    inside = len(plain) & ~3
    out = np.empty(inside * LONGEST_CODE // 8 + 8, np.uint8)
    count = pack(plain, inside, table.ctypes.data, out.ctypes.data, state.ctypes.data)
    tail, bits_left = int(state[0]), int(state[1])
    for symbol in (*plain[inside:], END):
        tail |= int(codes[symbol]) << bits_left
        bits_left += int(lengths[symbol])
    bits_left += 0 if last else 3  # the head of a stored block
    ending = tail.to_bytes(-(-bits_left // 8), "little") + (b"" if last else FLUSHED)
    return head.to_bytes(-(-bits // 8), "little")[: bits // 8] + out[:count].tobytes() + ending


@cache
def packer() -> Packer | None:
    """What puts codes side by side, compiled in about 50 ms. None where LLVM is not installed. Not for threads."""
    address, count = ctypes.c_void_p, ctypes.c_int64
    return fixed_function(TEXT, "packed", ctypes.c_char_p, count, address, address, address, ret=count)


def code_lengths(counts: Sequence[int] | np.ndarray) -> np.ndarray:
    """How many bits each byte, and the end, has, at most `LONGEST_CODE`: by Huffman of how often each was counted.
    All have some, as not all are counted."""
    weights = [int(count) * SAMPLED + 1 for count in counts] + [1]
    while True:
        lengths = _huffman(weights)
        if max(lengths) <= LONGEST_CODE:
            return np.array(lengths, np.uint8)
        weights = [weight // 2 + 1 for weight in weights]


def _huffman(weights: Sequence[int]) -> list[int]:
    """How deep each weight is in the tree that joins the two lightest again and again: of single ones in order, and of
    joined ones, which come in order by themselves."""
    single, joined = sorted((weight, k) for k, weight in enumerate(weights)), list[tuple[int, int]]()
    parents, s, j = [0] * (2 * len(weights) - 1), 0, 0
    for made in range(len(weights), len(parents)):
        total = 0
        for _ in range(2):
            alone = j == len(joined) or (s < len(single) and single[s] < joined[j])
            weight, k = single[s] if alone else joined[j]
            s, j = s + alone, j + (not alone)
            parents[k], total = made, total + weight
        joined.append((total, made))
    depths = [0] * len(parents)
    for k in range(len(parents) - 2, -1, -1):
        depths[k] = depths[parents[k]] + 1
    return depths[: len(weights)]


def reversed_codes(lengths: np.ndarray) -> np.ndarray:
    """The codes of these lengths, which RFC 1951 §3.2.2 derives from them, their first bit lowest."""
    codes, code, before = np.zeros(len(lengths), np.uint32), 0, 0
    for k in np.argsort(lengths, kind="stable").tolist():
        bits = int(lengths[k])
        code <<= bits - before
        codes[k] = int(f"{code:0{bits}b}"[::-1], 2)
        code, before = code + 1, bits
    return codes


def _header(lengths: np.ndarray, last: bool) -> tuple[int, int]:
    """The bits before the first byte's code, and their number: all lengths, four bits each, highest first."""
    fields = [(int(last), 1), (2, 2), (0, 5), (1, 5), (len(ORDER) - 4, 4)]  # 257 codes of bytes, 2 of distances
    fields += [(4 if length < 16 else 0, 3) for length in ORDER]
    fields += [(int(f"{length:04b}"[::-1], 2), 4) for length in (*lengths.tolist(), 1, 1)]
    word = bits = 0
    for value, width in fields:
        word |= value << bits
        bits += width
    return word, bits
