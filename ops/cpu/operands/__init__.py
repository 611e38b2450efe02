"""How kernels reach their operands: broadcasts, joined rows, epilogues."""
