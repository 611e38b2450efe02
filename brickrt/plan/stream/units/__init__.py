"""The units that a band runs: subgraphs of the plan, cut and joined as a sweep needs them."""
