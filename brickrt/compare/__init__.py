"""Measuring beside other engines: contenders, turns, differences, rooflines. `brickrt bench` and `bench/` share it."""
