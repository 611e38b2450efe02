"""Modelled times: the roofline of nodes, and the algorithm of each layer."""
