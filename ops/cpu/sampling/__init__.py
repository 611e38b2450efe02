"""Functions that the host calls to read images between their pixels, at places that are data: no kernels of programs,
but compiled loops that all workers share."""
