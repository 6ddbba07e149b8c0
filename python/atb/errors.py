# SPDX-License-Identifier: Apache-2.0
"""The exceptions that ATB raises. Every one is an `atb.Error`; its message is one line that starts with where."""

from __future__ import annotations

from atb._core import (
    Cancelled as CancelledError,
)
from atb._core import (
    DataLoss as DataLossError,
)
from atb._core import (
    Error,
)
from atb._core import (
    FailedPrecondition as FailedPreconditionError,
)
from atb._core import (
    Internal as InternalError,
)
from atb._core import (
    InvalidArgument as InvalidArgumentError,
)
from atb._core import (
    NotFound as NotFoundError,
)
from atb._core import (
    ResourceExhausted as ResourceExhaustedError,
)
from atb._core import (
    Unsupported as UnsupportedError,
)

__all__ = [
    "CancelledError",
    "DataLossError",
    "Error",
    "FailedPreconditionError",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "ResourceExhaustedError",
    "UnsupportedError",
]

for _name in __all__:  # they print as what users import, not as the native module calls them
    _class = globals()[_name]
    _class.__module__, _class.__name__, _class.__qualname__ = "atb", _name, _name
