"""The brick operators, one file per family; `ops/base.py` explains their protocol."""
