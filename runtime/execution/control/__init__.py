"""If, Loop and Scan: the host decides what runs next, and subgraphs run as programs."""
