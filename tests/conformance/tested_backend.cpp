#include "tested_backend.h"

#include <string>

#include "support/ranks.h"

namespace unisono::test {

std::string tested_backend() {
  return World().backend;
}

}  // namespace unisono::test
