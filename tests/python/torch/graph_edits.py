# SPDX-License-Identifier: Apache-2.0
"""Changes of an imported graph in its text form: numbers, attributes, weights, and nodes or modules left out.

An edit is a function of a `Draft`. One that finds nothing to change raises, so that no list of edits goes stale.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import atb
import torch

Edit = Callable[["Draft"], None]

_CONSTANT = re.compile(r"  const @(\S+) : (\w+)(\[[^\]]*\])(?: = (.*))?")
_NODE = re.compile(r"  %(\S+) = (\w+)\((.*?)\)")
_SCOPE = re.compile(r'scope="([^"]*)"')


class Draft:
    """The text of a graph and the arrays of its constants, both free to change."""

    def __init__(self, graph: atb.Graph, model: torch.nn.Module) -> None:
        """Constants that the text gives no values of are the model's parameters and buffers of that name."""
        self.lines = str(graph).splitlines()
        self.arrays: dict[str, torch.Tensor] = {
            name: tensor.detach()
            for tensors in (model.named_parameters(remove_duplicate=False), model.named_buffers())
            for name, tensor in tensors
        }

    def copy(self) -> Draft:
        """A draft of its own; arrays are shared, and edits replace them rather than write to them."""
        twin = Draft.__new__(Draft)
        twin.lines, twin.arrays = list(self.lines), dict(self.arrays)
        return twin

    def graph(self) -> atb.Graph:
        """The graph as it is now."""
        absent = {match[1] for match in self.constants().values() if match[4] is None}
        return atb.Graph.parse("\n".join(self.lines), {name: self.arrays[name].contiguous() for name in absent})

    def constants(self) -> dict[str, re.Match[str]]:
        """Declarations of constants by name: groups name, dtype, shape, and values or None."""
        matches = map(_CONSTANT.fullmatch, self.lines)
        return {match[1]: match for match in matches if match}

    def substitute(self, where: str, old: str, new: str | Callable[[re.Match[str]], str]) -> None:
        """Substitutes regular expression `old` in the nodes that match `where`; at least one must hold it."""
        found = 0
        for number, line in enumerate(self.lines):
            if line.startswith("  %") and re.search(where, line):
                self.lines[number], count = re.subn(old, new, line)
                found += count
        assert found, f"no node that matches {where!r} holds {old!r}"

    def rename(self, result: str, replacement: str, after: int) -> None:
        """Lets nodes behind line `after` read another value."""
        name = re.compile(rf"%{re.escape(result)}(?=[,) ]|$)")
        self.lines[after + 1 :] = [name.sub(f"%{replacement}", line) for line in self.lines[after + 1 :]]

    def blocks(self, scope: str) -> list[range]:
        """Line numbers of each run of nodes in a module whose path ends so."""
        found: list[range] = []
        for number, line in enumerate(self.lines):
            match = _SCOPE.search(line)
            if match and match[1].endswith(scope):
                joined = found and found[-1].stop == number
                found[-1:] = (
                    [range(found[-1].start, number + 1)] if joined else [*found[-1:], range(number, number + 1)]
                )
        assert found, f"no module is called {scope!r}"
        return found

    def node(self, number: int) -> tuple[str, list[str]]:
        """Result and operands of a node, values without their `%`."""
        match = _NODE.match(self.lines[number])
        assert match, f"no node: {self.lines[number]}"
        return match[1], [operand.removeprefix("%") for operand in match[3].split(", ")]


def value(old: float, new: float, where: str) -> Edit:
    """Another number in place of the scalar constant `old`, in the nodes that match `where`."""

    def edit(draft: Draft) -> None:
        scalars = {name: match for name, match in draft.constants().items() if match[3] == "[]" and match[4]}
        names = [name for name, match in scalars.items() if abs(float(match[4]) - old) <= 1e-6 * abs(old)]
        assert names, f"no constant is {old}"
        draft.substitute(where, "@(" + "|".join(map(re.escape, names)) + r")(?=[,)])", r"@\1.wrong")
        used = [name for name in names if any(f"@{name}.wrong" in line for line in draft.lines)]
        draft.lines[2:2] = [f"  const @{name}.wrong : {scalars[name][2]}[] = {new}" for name in used]

    return edit


def text(where: str, old: str, new: str) -> Edit:
    """Another operator, attribute or operand: `old` becomes `new` in the nodes that match `where`."""
    return lambda draft: draft.substitute(where, re.escape(old), new)


def exchange(where: str, one: str, other: str) -> Edit:
    """`one` and `other` change places in the nodes that match `where`."""
    swap = {one: other, other: one}
    either = rf"({re.escape(one)}|{re.escape(other)})(?=[,)\]])"
    return lambda draft: draft.substitute(where, either, lambda found: swap[found[1]])


def weights(names: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Edit:
    """Other values in the constants whose names end in a match of the regular expression `names`."""

    def edit(draft: Draft) -> None:
        found = [match for name, match in draft.constants().items() if re.search(f"(?:{names})$", name)]
        assert found, f"no constant is called {names!r}"
        for match in found:
            before = draft.arrays[match[1]]
            draft.arrays[match[1]] = change(before.clone()).reshape(before.shape)
            line = draft.lines.index(match[0])
            draft.lines[line] = f"  const @{match[1]} : {match[2]}{match[3]}"

    return edit


def bypassed(where: str) -> Edit:
    """The nodes that match `where` are left out: their readers read their first operand."""

    def edit(draft: Draft) -> None:
        found = [number for number, line in enumerate(draft.lines) if re.search(where, line)]
        assert found, f"no node matches {where!r}"
        for number in found:
            result, operands = draft.node(number)
            draft.rename(result, operands[0], number)

    return edit


def module_becomes(scope: str, operator: str | None) -> Edit:
    """The modules whose paths end in `scope` compute one operator of their input; None: they give it unchanged."""

    def edit(draft: Draft) -> None:
        for block in draft.blocks(scope):
            entry = draft.node(block[0])[1][0]
            last = block[-1]
            if operator is None:
                draft.rename(draft.node(last)[0], entry, last)
            else:
                draft.lines[last] = re.sub(r"= \w+\(.*?\)", f"= {operator}(%{entry})", draft.lines[last])

    return edit


def beside(norm: str, residual: int) -> Edit:
    """The modules `norm` read what the sum before them adds to (its operand number `residual`), not the sum."""

    def edit(draft: Draft) -> None:
        for block in draft.blocks(norm):
            total = draft.node(block[0])[1][0]
            while "= add(" not in (line := next(x for x in draft.lines if x.startswith(f"  %{total} = "))):
                total = draft.node(draft.lines.index(line))[1][0]  # through a reshape
            before = draft.node(draft.lines.index(line))[1][residual]
            shape = line.rsplit(" : ", 1)[1].split("[", 1)[1]
            if not draft.lines[block[0]].endswith(shape):
                continue
            entry = draft.node(block[0])[1][0]
            for number in block:
                draft.lines[number] = re.sub(rf"%{entry}(?=[,)])", f"%{before}", draft.lines[number])

    return edit


def behind(norm: str, attention: str, first: str) -> Edit:
    """The modules `first` read the norm of input plus attention, where the graph has the norm of the input alone."""

    def edit(draft: Draft) -> None:
        for layer, block in reversed(list(enumerate(draft.blocks(first)))):
            normed, added = draft.blocks(norm)[layer][0], draft.blocks(attention)[layer][-1]
            result, operands = draft.node(normed)
            type_ = draft.lines[normed].rsplit(" : ", 1)[1]
            copied = draft.lines[normed].replace(f"%{result} =", f"%normed.{layer} =")
            copied = copied.replace(f"(%{operands[0]},", f"(%sum.{layer},")
            for number in block:
                draft.lines[number] = draft.lines[number].replace(f"(%{result},", f"(%normed.{layer},")
            draft.lines[block[0] : block[0]] = [
                f"  %sum.{layer} = add(%{operands[0]}, %{draft.node(added)[0]}) : {type_}",
                copied,
            ]

    return edit


def both(*edits: Edit) -> Edit:
    """Several edits, one after another."""

    def edit(draft: Draft) -> None:
        for one in edits:
            one(draft)

    return edit


def run(draft: Draft, ids: torch.Tensor) -> Any:
    """First output of the draft's graph, optimized and compiled as any other."""
    return torch.from_dlpack(draft.graph().compile(threads=1)(ids)[0])
