"""The functions of mailboxes, compiled in this process or found in its cache."""

from __future__ import annotations

from functools import cache

from brickrt.ops.cpu.isa import Isa
from brickrt.runtime.cpu.compile.load import load_module
from brickrt.runtime.cpu.workers.mailbox import mailbox_module
from brickrt.runtime.cpu.workers.mailbox_words import MailboxFunctions

ANY_ISA = Isa(1, 16)  # no vectors in it


@cache
def compiled_mailbox() -> MailboxFunctions:
    """The functions for this process."""
    return MailboxFunctions.at(load_module("mailbox", mailbox_module, ANY_ISA).address)
