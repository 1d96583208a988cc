// A libcuda.so.1 for machines without GPUs. The library reports FAKE_CUDA_GPUS devices and applies
// CUDA_VISIBLE_DEVICES as the real library does, but only for numbers. With FAKE_CUDA_ERROR, cuInit
// fails. Without tests/nccl/fake_cuda.cpp the library has no contexts, as a driver that is too old.
// FAKE_CUDA_VERSION replaces the version of CUDA. The library tests its callers, not the behaviour
// of NVIDIA's library.
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace {

int number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::atoi(text);
}

// Returns the numbers of the visible devices in the machine.
std::vector<int> visible() {
  std::vector<int> devices;
  const char* const text = std::getenv("CUDA_VISIBLE_DEVICES");
  if (text == nullptr) {
    for (int i = 0; i < number("FAKE_CUDA_GPUS"); ++i) {
      devices.push_back(i);
    }
    return devices;
  }
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    char* end = nullptr;
    const long device = std::strtol(part.c_str(), &end, 10);
    if (*end != '\0' || device < 0 || device >= number("FAKE_CUDA_GPUS")) {
      break;
    }
    devices.push_back(static_cast<int>(device));
  }
  return devices;
}

bool is_initialized = false;

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): NVIDIA's names.
extern "C" {

__attribute__((visibility("default"))) int cuInit(unsigned /*flags*/) {
  is_initialized = number("FAKE_CUDA_ERROR") == 0;
  return number("FAKE_CUDA_ERROR");
}

__attribute__((visibility("default"))) int cuDriverGetVersion(int* version) {
  *version = number("FAKE_CUDA_VERSION") == 0 ? 13000 : number("FAKE_CUDA_VERSION");
  return 0;
}

__attribute__((visibility("default"))) int cuGetErrorString(int error, const char** text) {
  *text = error == 100 ? "no CUDA-capable device is detected" : "a failure of the test's";
  return 0;
}

__attribute__((visibility("default"))) int cuDeviceGetCount(int* n_devices) {
  *n_devices = static_cast<int>(visible().size());
  return is_initialized ? 0 : 3;
}

__attribute__((visibility("default"))) int cuDeviceGet(int* device, int index) {
  const std::vector<int> devices = visible();
  if (index < 0 || static_cast<std::size_t>(index) >= devices.size()) {
    return 101;
  }
  *device = devices[static_cast<std::size_t>(index)] + 1000;
  return 0;
}

__attribute__((visibility("default"))) int cuDeviceGetName(char* name, int n_bytes, int device) {
  std::snprintf(name, static_cast<std::size_t>(n_bytes), "Test GPU %d", device - 1000);
  return 0;
}

__attribute__((visibility("default"))) int cuDeviceGetUuid(void* uuid, int device) {
  std::array<unsigned char, 16> bytes{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0};
  bytes.back() = static_cast<unsigned char>(device - 1000);
  std::memcpy(uuid, bytes.data(), bytes.size());
  return 0;
}

__attribute__((visibility("default"))) int cuDeviceTotalMem_v2(std::size_t* n_bytes,
                                                               int /*device*/) {
  *n_bytes = std::size_t{80} << 30U;
  return 0;
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
