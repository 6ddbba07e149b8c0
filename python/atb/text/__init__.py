# SPDX-License-Identifier: Apache-2.0
"""Text: tokenizers, streaming detokenization and chat templates."""
