"""What the shell offers for words whose values no type lists."""

from __future__ import annotations


def zoo_names(incomplete: str) -> list[str]:
    """The networks of the zoo whose names begin like this."""
    from brickrt.zoo.registry import names  # here: nothing else of the command line needs it to start

    return [name for name in names() if name.startswith(incomplete)]


def peer_names(incomplete: str) -> list[str]:
    """The peers that may come next in a list with commas."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    known = ("onnxruntime", "openvino", "torch")
    return [f"{before}{comma}{name}" for name in known if name.startswith(last) and name not in given]


def compiled_targets(incomplete: str) -> list[str]:
    """The targets that compiled files may have; others are known by name, to be refused with the reason."""
    return [name for name in ("host", "avx512", "avx2", "generic") if name.startswith(incomplete)]
