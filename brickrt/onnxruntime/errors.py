"""Errors under the names that programs catch: each is brickrt's own class too, and so a ValueError."""

from __future__ import annotations

import os
from typing import Any

from google.protobuf.message import DecodeError

from brickrt.graph.errors import BrickError, Defect, InputError, ModelError


class Fail(BrickError):
    """What has no name of its own."""


class RuntimeException(BrickError):
    """A run could not be done, though its inputs are those of the model."""


class InvalidArgument(InputError):
    """Inputs or names of outputs are not those of the model."""


class NoSuchFile(ModelError):
    """There is no file of this name."""


class NoModel(ModelError):
    """Nothing was given to load."""


class InvalidProtobuf(ModelError):
    """The bytes are no model."""


class InvalidGraph(ModelError):
    """The model is none that ONNX allows, or has operators that nobody knows."""


class NotImplemented(BrickError):  # as it is called there
    """The model needs what is not there."""


class EPFail(BrickError):
    """A device failed."""


def load_error(error: BrickError, model: Any) -> BrickError:
    """What programs expect to catch for a model that cannot be loaded, with the same message."""
    if isinstance(error, Defect):
        return error
    if isinstance(model, str | os.PathLike) and not os.path.exists(model):
        return NoSuchFile(str(error))
    if isinstance(error.__cause__, DecodeError):
        return InvalidProtobuf(str(error))
    return InvalidGraph(str(error)) if isinstance(error, ModelError) else Fail(str(error))


def run_error(error: BrickError) -> BrickError:
    """What programs expect to catch for a run that cannot be done, with the same message."""
    if isinstance(error, Defect | InvalidArgument | Fail):
        return error
    return InvalidArgument(str(error)) if isinstance(error, InputError) else RuntimeException(str(error))
