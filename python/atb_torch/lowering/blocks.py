# SPDX-License-Identifier: Apache-2.0
"""A declared block inside a module: its own plain graph takes the place of its operator."""

from __future__ import annotations

from atb._core import BuilderValue

from atb_torch.block_export import OPERATOR, Form, block_named, block_of
from atb_torch.context import Cached, Context
from atb_torch.errors import Refused
from atb_torch.lowering.registry import TABLE
from atb_torch.plugins import describe_plugins

POSITIONS = "cache_positions"  # the input that says where the tokens of a cached call stand


def graph_op(
    ctx: Context, inputs: list[BuilderValue], parameters: list[BuilderValue], block: str, form: str
) -> BuilderValue:
    """Splices the block's graph; attentions of a cached call are noted."""
    op, call = block_named(block), Form.parse(form)
    layer = op.layer if op.layer is not None else ctx.place.layer if ctx.place.layer >= 0 else None
    plugins = describe_plugins(op.active_plugins(), ctx.kernels, layer)
    core, _, cached, _ = block_of(op, ctx.kernels).build(call.listed(), call.dtype, plugins)
    operands = list(inputs)
    if call.placed:
        operands.append(_positions(ctx, inputs[0].shape[1]))
    held = dict(zip(op._block.parameter_names, parameters, strict=True))
    if call.cached:
        head = f"{ctx.place.scope}." if ctx.place.scope else ""
        for scope, heads, features in cached:
            if any(known.scope == head + scope for known in ctx.cached):
                raise Refused(f"the attention {head + scope} is called twice with one cache; it has one slot")
            ctx.cached.append(Cached(head + scope, op, heads, features, inputs[0].shape[1]))
    return ctx.builder.splice(core, operands, held, ctx.place.layer, ctx.place.scope)[0]


def _positions(ctx: Context, tokens: int | str) -> BuilderValue:
    if ctx.positions is None:
        ctx.positions = ctx.builder.add_input(POSITIONS, "i64", [tokens])
    elif ctx.positions.shape != (tokens,):
        raise Refused(f"blocks with a cache take {ctx.positions.shape[0]} and {tokens} tokens in one call")
    return ctx.positions


TABLE[OPERATOR] = graph_op
