// SPDX-License-Identifier: Apache-2.0
// What every weight file becomes: constants by the name they have in the file. Front ends know no model.
#pragma once

#include <map>
#include <string>

#include "core/constant.h"

namespace atb {

using NamedTensors = std::map<std::string, ConstantRef, std::less<>>;

}  // namespace atb
