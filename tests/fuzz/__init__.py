"""Broken models: whatever a model's file says, brickrt gives a result or a BrickError; it neither dies nor hangs.

`python -m tests.fuzz --minutes 60` changes small models at random and keeps what goes wrong under `seeds/`.
"""
