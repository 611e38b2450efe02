"""Matrix products by Strassen's scheme, in one or two levels."""
