"""The protocol without I/O: state in, effects out, the same result for the same input.

Nothing below this package reads a clock, draws randomness or touches a file, a socket or an event
loop: time, seed and identifiers come in as arguments. It is open to drivers, simulations and
benchmarks; applications use the names that ``reliable_channel`` itself exports.
"""
