r"""Message definitions (``*.proto``) and what the protobuf compiler made of them.

A protobuf runtime reads code generated for its own and for the previous major version. Generating
with a compiler of version 6 therefore serves runtimes 6 (from 6.30) and 7; a newer compiler would
lock out runtime 6. After changing a definition, in an environment of its own (the compiler comes
with runtime 6) and from the root of the repository::

    python -m pip install "grpcio-tools==1.72.*"
    python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
        reliable_channel/core/wire/proto/*.proto

Paths are given from the root because the runtime registers each definition under its path: a bare
``sds.proto`` could collide with another package's.
"""
