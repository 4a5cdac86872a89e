"""The virtual-time network, and measurements beside peers; nothing of the library depends on it."""
