"""What columnar tables are made of: versioned memory blocks, 16-byte ids, the index from id to row.

State, planner and everything above rest on this package, so a missing extension is noticed here, in one sentence.
"""

import importlib

try:
    importlib.import_module("fastplan.columns._blocks")
except ImportError as problem:
    raise ImportError(f"the compiled modules of fastplan are not usable ({problem}): build them with `make setup`") from problem
