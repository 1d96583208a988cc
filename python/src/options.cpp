#include "options.h"

#include <stdexcept>
#include <string>

#include "unisono/base/reduction.h"

namespace unisono::python {

void Options::set_algorithm(const std::string& name) {
  std::string known;
  for (const Algorithm algorithm : kAlgorithms) {
    if (name == to_string(algorithm)) {
      algorithm_ = algorithm;
      return;
    }
    known += (known.empty() ? "" : ", ") + std::string(to_string(algorithm));
  }
  throw std::invalid_argument("there is no algorithm '" + name + "'; there are: " + known);
}

}  // namespace unisono::python
