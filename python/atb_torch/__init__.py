# SPDX-License-Identifier: Apache-2.0
"""ATB for PyTorch: modules compiled into fused graphs.

import atb_torch
fast = atb_torch.compile(model)
logits = fast(input_ids).logits
"""

from atb_torch.compiler import CompiledModule, compile, import_module
from atb_torch.kv_cache import KVCache

__all__ = ["CompiledModule", "KVCache", "compile", "import_module"]
