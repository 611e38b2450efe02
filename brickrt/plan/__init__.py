"""Planning: layouts, algorithms, subgraphs and their strategies, bricks, by a cost model of the device."""
