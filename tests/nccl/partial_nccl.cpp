// A libnccl.so.2 that has a version, by default a new version, but none of the other functions.
#include <cstdlib>

// NOLINTNEXTLINE(readability-identifier-naming): NCCL's name.
extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  const char* const text = std::getenv("FAKE_NCCL_VERSION");
  *version = text == nullptr ? 22703 : std::atoi(text);
  return 0;
}
