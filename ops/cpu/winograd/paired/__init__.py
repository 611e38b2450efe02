"""Winograd convolutions whose products pair channels, for processors that add beside multiply-adds."""
