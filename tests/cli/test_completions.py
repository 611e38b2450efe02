"""What the shell offers where no type lists the values."""

from __future__ import annotations

import os
import subprocess
import sys

from brickrt.cli.completions import compiled_targets, peer_names, zoo_names
from brickrt.compare.peers import PEERS
from brickrt.runtime.compiled.targets import TARGETS
from brickrt.zoo.registry import names


def test_offers_are_what_is_there():
    assert zoo_names("") == list(names()) and zoo_names("unet") == [n for n in names() if n.startswith("unet")]
    assert tuple(peer_names("")) == tuple(PEERS)
    assert peer_names("openvino,t") == ["openvino,torch"] and peer_names("torch,t") == []
    assert {*compiled_targets(""), "neon"} == set(TARGETS) and compiled_targets("avx") == ["avx512", "avx2"]


def test_the_shell_is_told_of_them():
    words = {"_BRICKRT_COMPLETE": "complete_bash", "COMP_WORDS": "brickrt zoo export une", "COMP_CWORD": "3"}
    code = "from brickrt.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | words)
    assert done.stdout.split() == zoo_names("une")
