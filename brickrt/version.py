"""The version of this package, said once."""

VERSION = "0.1.0"
