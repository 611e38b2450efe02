"""The house rules that a program can check: sizes of folders, files and functions, docstrings, names, mirrored tests.

Sources are only read and parsed; nothing of the package is imported.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from keyword import iskeyword
from pathlib import Path

import pytest

from tests.conftest import LONG

ROOT = Path(__file__).parents[1]
CODE = ("brickrt", "ops", "runtime", "tests", "bench", "scripts")
DOCUMENTED = ("brickrt", "ops", "runtime")
MOST_FILES = 15  # beside sub-folders
MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 40
# folders of tests that stand for no folder of the package: helpers, tests of the whole, and of what is no package
NO_MIRROR = ("support", "backend", "models", "docs", "bench", "fuzz")
# links in the package: brickrt.ops is ops, brickrt.runtime is runtime
AT_THE_TOP = ("ops", "runtime")
# the CPU's and the CUDA engine's halves of one design may name a class alike
TWINS = ("ops", "runtime")

# words of the glossary that no name has: they speak of several things at once, or names say them in part
PROSE_ALONE = {
    *("brick operator", "checked run", "collected tensor", "contributed operator", "coordinator", "in-place slice"),
    *("pointwise convolution", "resident tensor", "spilled tensor", "virtual origin", "warm-up", "weights of few bits"),
}
PROSE = re.compile(r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[^\n]*')
NAME, PART = re.compile(r"[^\W\d]\w*"), re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# where statements hold others
STATEMENTS = ("body", "handlers", "orelse", "finalbody", "cases")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = Function | ast.ClassDef


@cache
def folders() -> list[tuple[str, list[str]]]:
    """All folders of code, links left out, with the Python files in each; paths are relative to the repository."""
    found = []
    for top in CODE:
        for at, below, files in os.walk(ROOT / top):
            below[:] = sorted(d for d in below if d != "__pycache__" and not (Path(at) / d).is_symlink())
            path = Path(at).relative_to(ROOT).as_posix()
            found.append((path, sorted(f for f in files if f.endswith(".py"))))
    return found


@cache
def text(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


@cache
def tree(path: str) -> ast.Module:
    return ast.parse(text(path), path)


def files(*tops: str) -> list[str]:
    """Paths of the Python files below these top folders."""
    return [f"{at}/{name}" for at, names in folders() for name in names if at.partition("/")[0] in tops]


@cache
def defined(path: str) -> list[tuple[str, Documented, bool]]:
    """Functions, methods and classes of a file, with dotted names, and whether each is public: not private, not of a
    private class, not inside a function. Statements alone are looked through: expressions define none of them."""

    def below(parent: ast.AST, prefix: str, public: bool) -> Iterator[tuple[str, Documented, bool]]:
        for node in (one for field in STATEMENTS for one in getattr(parent, field, ())):
            if not isinstance(node, Documented):
                yield from below(node, prefix, public)
                continue
            seen = public and not node.name.startswith("_")
            yield prefix + node.name, node, seen
            yield from below(node, f"{prefix}{node.name}.", seen and isinstance(node, ast.ClassDef))

    return list(below(tree(path), "", True))


def none(wrong: Iterable[object]) -> None:
    """Fails with one line for each thing that is wrong."""
    lines = [str(one) for one in wrong]
    if lines:
        pytest.fail(f"{len(lines)} found\n" + "\n".join(lines), pytrace=False)


def test_no_folder_holds_too_many_files():
    none(f"{at}: {len(names)} Python files" for at, names in folders() if len(names) > MOST_FILES)


def test_no_file_is_too_long():
    none(f"{f}: {n} lines" for f in files(*CODE) if (n := text(f).count("\n")) > MOST_LINES)


def test_no_function_is_too_long():
    none(
        f"{f}:{node.lineno}: {name} has {n} lines"
        for f in files(*CODE)
        for name, node, _ in defined(f)
        if isinstance(node, Function) and (n := (node.end_lineno or 0) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
    )


def test_what_is_public_has_a_docstring():
    none(f"{f}: no docstring" for f in files(*DOCUMENTED) if text(f).strip() and ast.get_docstring(tree(f)) is None)
    none(
        f"{f}:{node.lineno}: {name}"
        for f in files(*DOCUMENTED)
        for name, node, public in defined(f)
        if public and not ast.get_docstring(node)
    )


def test_docstrings_are_sentences():
    """None begins with "Of …", as if its name were the first half of the sentence."""
    none(
        f"{f}: {name}: {said.partition(chr(10))[0]}"
        for f in files(*CODE)
        for name, node in (("the file", tree(f)), *((name, node) for name, node, _ in defined(f)))
        if (said := (ast.get_docstring(node) or "")).startswith("Of ")
    )


def half(path: str) -> str:
    """The path without the engine: of two twins the same."""
    top, engine, _ = [*Path(path).parts, ""][:3]
    return top if top in TWINS and engine in ("cpu", "cuda") else path


def test_a_class_name_means_one_thing():
    """Twins of the two engines share names, and so do private helpers of tests."""
    places = defaultdict(list)
    for f in files(*CODE):
        for name, node, _ in defined(f):
            helper = node.name.startswith("_") and f.startswith("tests/")
            if isinstance(node, ast.ClassDef) and not helper:
                places[node.name].append((f, name))
    none(f"{name}: {', '.join(f for f, _ in at)}" for name, at in sorted(places.items()) if not may_share(at))


def may_share(places: list[tuple[str, str]]) -> bool:
    """Alone, or one in each of two twins."""
    paths = [Path(f).parts[:2] for f, _ in places]
    return len(places) == 1 or (len({half(f) for f, _ in places}) == 1 and len(set(paths)) == len(paths))


def mirrored(path: str) -> str:
    """The folder of the package that a folder of tests stands for."""
    inside = path.partition("/")[2]
    return inside if inside.partition("/")[0] in AT_THE_TOP else f"brickrt/{inside}"


def test_tests_mirror_the_package():
    known = {at for at, _ in folders()}
    tests = [at for at, _ in folders() if at.startswith("tests/") and at.split("/")[1] not in NO_MIRROR]
    none(f"{at}: no {mirrored(at)}" for at in tests if mirrored(at) not in known)


def parts_of_names() -> set[str]:
    """The names in the code and those of its files, each with its parts in small letters, spaced: Kept_tilesOf2 is
    " kept tiles of 2 ". Comments, docstrings and other text are left out, and so are keywords."""
    found = {name for path in files(*DOCUMENTED) for name in NAME.findall(PROSE.sub(" ", text(path)))}
    found |= {part for path in files(*DOCUMENTED) for part in Path(path).with_suffix("").parts}
    return {f" {' '.join(PART.findall(name)).lower()} " for name in found if not iskeyword(name)}


def test_the_words_of_the_glossary_are_used():
    """Each is a name in the code or part of one, singular or plural, but for those that only prose has."""
    words = re.findall(r"^- \*\*(.+?)\*\*", (ROOT / "docs" / "glossary.md").read_text("utf-8"), re.MULTILINE)
    code = "".join(sorted(parts_of_names()))
    singular = {word: re.sub(r"[ -]", " ", word.lower()) for word in words}
    forms = {word: (one, f"{one}s", re.sub("is$", "es", one)) for word, one in singular.items()}
    unused = {word for word, all_forms in forms.items() if not any(f" {form} " in code for form in all_forms)}
    assert words and unused == PROSE_ALONE


def test_the_tests_that_go_first_are_there():
    assert [path for path in LONG if not (ROOT / path).exists()] == []
