#include "conformance/tested_backend.h"

#include <string>

namespace unisono::test {

std::string tested_backend() {
  return "mpi";
}

}  // namespace unisono::test
