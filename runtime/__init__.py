"""Task graph, order, states and engines."""
