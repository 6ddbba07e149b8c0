# SPDX-License-Identifier: Apache-2.0
"""The mixed strings of the tokenizer golden: digits, many scripts, emoji, whitespace runs, code, control-token text.

Only `random()` of the generator is used, whose sequence Python keeps the same between versions.
"""

# ruff: noqa: E501, SIM905
from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

WORDS = (
    "the of and capital France is Hello world model token Straße naïve café über señor fiancé İstanbul œuvre ﬁne "
    "I'm you're we've they'll he'd it's DON'T can't ISN'T o'clock rock'n'roll x y2k 3rd A1B2 CamelCase snake_case "
    "антон привет мир ёлка Ελλάδα καλημέρα שלום עולם مرحبا بالعالم हिन्दी भाषा ไทยแลนด์ tiếng Việt 한국어 안녕하세요 "
    "日本語 東京 こんにちは カタカナ 中文 北京 你好世界 繁體字 ქართული հայերեն አማርኛ"
).split()
NUMBERS = "0 1 7 42 007 123 1234 12345 1234567890 3.14159 1,000,000 -17 1e-9 0x1F ٣٤٥ १२३ Ⅷ ½ x² ①② 二〇二四 2024-01-31".split()
EMOJI = "😀 🎉 👍🏽 👨‍👩‍👧‍👦 🇫🇷 ❤️ ✨ 🏳️‍🌈 ☕ 🤖 ⌨️ 🫠".split()
SPACES = [
    " ",
    "  ",
    "   ",
    " " * 7,
    " " * 33,
    "\t",
    "\t\t ",
    "\n",
    "\n\n",
    "\n\n\n ",
    "\r\n",
    " \n ",
    "\u00a0",
    "\u3000",
    "\u2028",
    "\u200b",
]
MARKS = (
    list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
    + "… — “ ” « » ¿ ¡ € £ ° § ∑ → ≠ √ ∞ 。 、 「 」 ！ ․ • ™".split()
    + ["...", "!!", "?!", "--", "=="]
)
CODE = [
    "def f(x):\n    return x ** 2\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 1.5f; }",
    "#include <vector>\n\nint main() { return 0; }\n",
    "SELECT * FROM t WHERE id = 10 AND name LIKE '%x%';",
    '<div class="a b">text &amp; more</div>',
    '{"key": [1, 2.5, null, true], "k2": "v"}',
    'if x != y and z >= 10:\n\t\tprint(f"{x:>8.3f}")\n',
    "https://example.org/a/b?c=d&e=%20#frag",
    "git commit -m \"fix: bug\" && ls -la | grep '^d'\r\n",
    'let s: &\'static str = r#"raw"#; // comment',
    "\\frac{a}{b} + \\sum_{i=0}^{n} x_i^2",
]
CONTROL = [
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|im_start|>user\n",
    "<repo_name>",
    "<|im_end",
    "<s>",
    "</s>",
    "[INST]",
]
# Blocks from which single code points are drawn (first, count).
BLOCKS = [
    (0x01, 31), (0x20, 95), (0x7F, 33), (0xA0, 96), (0x100, 128), (0x250, 90), (0x300, 112), (0x370, 7), (0x400, 256), (0x5D0, 27),
    (0x621, 26), (0x660, 10), (0x905, 50), (0xE01, 58), (0x1100, 90), (0x1E00, 250), (0x2010, 30), (0x20A0, 20), (0x2150, 40),
    (0x2190, 112), (0x2500, 128), (0x3041, 86), (0x30A1, 90), (0x4E00, 20000), (0xAC00, 11000), (0xFF01, 94), (0x1F300, 200), (0x1D400, 80),
]  # fmt: skip


class _Draw:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def below(self, count: int) -> int:
        return int(self._random.random() * count)

    def one(self, items: Sequence[str]) -> str:
        return items[self.below(len(items))]

    def code_point(self) -> str:
        first, count = BLOCKS[self.below(len(BLOCKS))]
        return chr(first + self.below(count))


def mixed_strings(count: int, seed: int = 20240607) -> list[str]:
    """`count` strings; the first ones do not depend on `count`."""
    draw = _Draw(seed)
    return [_one_string(draw) for _ in range(count)]


def _one_string(draw: _Draw) -> str:
    parts = []
    for _ in range(1 + draw.below(14)):
        kind = draw.below(20)
        if kind < 7:
            parts.append(draw.one(WORDS) + (" " if draw.below(3) else ""))
        elif kind < 10:
            parts.append(draw.one(NUMBERS))
        elif kind < 13:
            parts.append(draw.one(SPACES))
        elif kind < 15:
            parts.append(draw.one(MARKS))
        elif kind == 15:
            parts.append(draw.one(EMOJI))
        elif kind == 16:
            parts.append(draw.one(CODE))
        elif kind == 17:
            parts.append("".join(draw.code_point() for _ in range(1 + draw.below(6))))
        elif kind == 18:
            parts.append(draw.one(CONTROL) if draw.below(2) else "")
        else:
            parts.append(draw.one(WORDS) * (1 + draw.below(4)))
    return "".join(parts)


def hash_ids(ids: Sequence[int]) -> bytes:
    """Four bytes that stand for one list of ids."""
    return hashlib.sha256(",".join(map(str, ids)).encode()).digest()[:4]


def hash_strings(strings: Sequence[str]) -> str:
    """Tells whether golden and test speak of the same strings."""
    return hashlib.sha256("\x00".join(strings).encode("utf-8")).hexdigest()
