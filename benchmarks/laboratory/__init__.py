"""The loss laboratory: thousands of channels with the real machines in virtual time, on Spark or in processes.

::

    grid ─► cells ─► plan ─► trial of each channel ─► Parquet ─► measures ─► report
                             (Spark or processes)

A trial is a function of its cell, the root seed and the channel's number, and of nothing else: any engine, partitioning
or order gives the same results, and one channel can be played again alone.

Spec: none of its own; a tool of this project.
"""
