"""What a kernel needs to know of the processor it is compiled for."""

from __future__ import annotations

from dataclasses import dataclass

UNPACED = ("znver", "skylake-avx512")
"""How names of processors begin that have AVX-512 and do not pace weights: AMD's, on which it is not measured, and the
one that portable code is for. Of Intel's any may be meant: virtual machines tell names of others."""
DOUBLE_PUMPED = frozenset({"znver4"})  # processors, as LLVM names them, that split operations on 512 bits in two
NARROW_DOUBLE_PUMPED = frozenset({"znver1"})  # the same of 256 bits

ONE_MULTIPLIER = frozenset({"haswell", "broadwell", "znver1", "znver2"})
"""Processors, as LLVM names them, that have one unit for products of integers and several for their sums."""

AVX2_LANES = 8  # of float32
FEW_REGISTERS = 16  # vector registers that the sums of a tile leave no room in for what is loaded early
AMX_FEATURES = "+amx-tile", "+amx-int8", "+amx-bf16"  # as LLVM names them


@dataclass(frozen=True)
class Isa:
    """`registers` vector registers of `lanes` float32 elements; `cpu` and `features` as LLVM names them."""

    lanes: int
    registers: int
    cpu: str = ""
    features: str = ""

    @property
    def multiplies_bytes(self) -> bool:
        """Whether an instruction adds the products of four bytes each to the lanes of a vector (VNNI)."""
        wide, narrow = ("+avx512vnni",), ("+avxvnni",)
        return any(name in self.features.split(",") for name in (wide if self.lanes == 16 else narrow))

    @property
    def multiplies_bfloat16(self) -> bool:
        """Whether instructions add the products of two bfloat16 each to float32 lanes, and round to bfloat16."""
        return self.lanes == 16 and "+avx512bf16" in self.features.split(",")

    @property
    def multiplies_tiles(self) -> bool:
        """Whether instructions multiply tiles of bytes and of bfloat16 (AMX)."""
        return self.lanes == 16 and set(AMX_FEATURES) <= set(self.features.split(","))

    @property
    def permutes_bytes(self) -> bool:
        """Whether an instruction permutes the bytes of two vectors of 512 bits (VBMI)."""
        return self.lanes == 16 and "+avx512vbmi" in self.features.split(",")

    @property
    def multiplies_words(self) -> bool:
        """Whether an instruction adds the products of two 16-bit integers each, exactly (AVX2, AVX-512)."""
        return self.lanes in (8, 16)

    @property
    def pairs_bytes(self) -> bool:
        """Whether products of bytes are faster with half as many multiplications and more additions
        (`products/words/paired_bytes.py`)."""
        return self.lanes == AVX2_LANES and self.cpu in ONE_MULTIPLIER and not self.multiplies_bytes

    @property
    def paces_weights(self) -> bool:
        """Whether whatever weights come from memory are asked for at an even pace: two multiply-adds a cycle outrun it,
        and every prefetch takes one of two loads a cycle."""
        return self.lanes == 16 and bool(self.cpu) and not self.cpu.startswith(UNPACED)

    @property
    def shares_chunks(self) -> bool:
        """Whether tiles of pixels share chunks of weights in L1 and ask for later ones at an even pace. By vectors of
        eight lanes tiles are small, so that all weights would come from L2 again and again."""
        return self.paces_weights or self.lanes == AVX2_LANES

    @property
    def double_pumped(self) -> bool:
        """Whether operations on a vector are split in two: one multiply-add a cycle, where others do two."""
        return self.lanes == 16 and self.cpu in DOUBLE_PUMPED
