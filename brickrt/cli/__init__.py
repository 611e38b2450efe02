"""Command line."""


def main() -> None:
    raise SystemExit(0)
