"""Bricks, halos and bands of rows: which boxes a brick needs."""
