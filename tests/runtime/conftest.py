"""What tests of the runtime share."""

import pytest

from brickrt.runtime.session.fast_path import FastPath


@pytest.fixture
def fast(monkeypatch) -> list[bool]:
    """Whether each call of a runtime took the short way of calls alike."""
    taken: list[bool] = []
    original = FastPath.taken

    def noted(self, inputs):
        found = original(self, inputs)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(FastPath, "taken", noted)
    return taken
