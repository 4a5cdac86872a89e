"""What ends a run and is told in one line: what is wrong and what to do.

A channel that cannot be played is no error of this kind; its row says so.

Spec: none of its own; a tool of this project.
"""

from __future__ import annotations


class LaboratoryError(Exception):
    """A run cannot begin or go on; the text is one clear line that says what to do."""
