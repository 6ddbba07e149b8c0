// SPDX-License-Identifier: Apache-2.0
// Source of a layer that has none of its own yet.
