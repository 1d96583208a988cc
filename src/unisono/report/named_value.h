#pragma once

#include <string>

namespace unisono {

/// What a training says of itself, such as {"loss", 0.31}.
struct NamedValue {
  std::string name;
  double value = 0;
};

}  // namespace unisono
