// SPDX-License-Identifier: Apache-2.0
// What the shared library shows: it is built with hidden visibility, and only names marked ATB_API can be linked to.
#pragma once

#define ATB_API __attribute__((visibility("default")))
