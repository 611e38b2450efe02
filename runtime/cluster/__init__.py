"""Runs networks band by band on the workers of a Dask cluster, from files to files."""
