"""Fuzz targets: bytes in, laws out. ``python -m tests.fuzz.fuzz_receive -max_total_time=60``."""
