"""From plans to results: lowering to task graphs, the engines that run them, and `Runtime`."""
