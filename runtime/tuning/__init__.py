"""What the tuners of all devices share: which plans are tried, and how the parts of those that were timed are put
together."""
