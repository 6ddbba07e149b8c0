# SPDX-License-Identifier: Apache-2.0
"""ATB runs transformer models fast by replacing many small operators with few fused ones.

For example:

    import atb
    llm = atb.LLM("path/to/model")
    print(llm.generate("The capital of France is", max_new_tokens=32)[0].text)
"""

from __future__ import annotations

from atb import native, ops
from atb._core import Tensor
from atb._core import version as _version
from atb.errors import (
    CancelledError,
    DataLossError,
    Error,
    FailedPreconditionError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnsupportedError,
)
from atb.generation import GenerationStream, SamplingOptions
from atb.graph import CompiledGraph, Graph
from atb.llm import LLM
from atb.node import Node
from atb.optimizer import GraphOptimizer
from atb.output import GenerationOutput, Timing
from atb.pattern import FusionOp, Pattern
from atb.plugins import get_include, load_library
from atb.profile import Profile, profiled

__version__ = _version()

__all__ = [
    "LLM",
    "CancelledError",
    "CompiledGraph",
    "DataLossError",
    "Error",
    "FailedPreconditionError",
    "FusionOp",
    "GenerationOutput",
    "GenerationStream",
    "Graph",
    "GraphOptimizer",
    "InternalError",
    "InvalidArgumentError",
    "Node",
    "NotFoundError",
    "Pattern",
    "Profile",
    "ResourceExhaustedError",
    "SamplingOptions",
    "Tensor",
    "Timing",
    "UnsupportedError",
    "__version__",
    "get_include",
    "load_library",
    "native",
    "ops",
    "profiled",
]
