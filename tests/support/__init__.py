"""Tools for tests, imported as ``tests.support.…``; what they do is itself tested here."""
