"""Verifies the tables of CUDA programs: from them and the task graph alone, before any kernel runs."""
