#include "unisono/base/gpus.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <optional>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/setting_checks.h"

namespace unisono {
namespace {

constexpr const char* kVariable = "CUDA_VISIBLE_DEVICES";

struct CudaUuid {
  std::array<unsigned char, 16> bytes;
};

// The functions of NVIDIA's libcuda.so.1 that this library calls. Each returns 0 on success.
struct Cuda {
  int (*init)(unsigned flags);
  int (*error_text)(int error, const char** text);
  int (*count)(int* n_devices);
  int (*device)(int* device, int index);
  int (*name)(char* name, int n_bytes, int device);
  int (*uuid)(CudaUuid* uuid, int device);
  int (*memory)(std::size_t* n_bytes, int device);
};

// Throws Error(kNotFound) if the library is not installed or lacks a function.
Cuda load_cuda() {
  const LoadedLibrary library("libcuda.so.1");
  Cuda cuda{};
  library.find("cuInit", cuda.init);
  library.find("cuGetErrorString", cuda.error_text);
  library.find("cuDeviceGetCount", cuda.count);
  library.find("cuDeviceGet", cuda.device);
  library.find("cuDeviceGetName", cuda.name);
  library.find("cuDeviceGetUuid", cuda.uuid);
  library.find("cuDeviceTotalMem_v2", cuda.memory);
  return cuda;
}

std::string describe_error(const Cuda& cuda, int error) {
  const char* text = nullptr;
  (void)cuda.error_text(error, &text);
  return fmt::format("{} (error {})", text == nullptr ? "unknown error" : text, error);
}

std::string format_uuid(const CudaUuid& uuid) {
  std::string text = "GPU-";
  for (std::size_t i = 0; i < uuid.bytes.size(); ++i) {
    const bool begins_group = i == 4 || i == 6 || i == 8 || i == 10;
    text += fmt::format("{}{:02x}", begins_group ? "-" : "", uuid.bytes[i]);
  }
  return text;
}

Gpu read_gpu(const Cuda& cuda, int index) {
  constexpr std::size_t kMaxName = 256;
  Gpu gpu{.index = index, .name = "GPU", .uuid = "", .n_bytes = 0};
  int device = 0;
  if (cuda.device(&device, index) != 0) {
    return gpu;
  }
  std::array<char, kMaxName> name{};
  if (cuda.name(name.data(), static_cast<int>(name.size() - 1), device) == 0) {
    gpu.name = name.data();
  }
  CudaUuid uuid{};
  if (cuda.uuid(&uuid, device) == 0) {
    gpu.uuid = format_uuid(uuid);
  }
  std::size_t n_bytes = 0;
  if (cuda.memory(&n_bytes, device) == 0) {
    gpu.n_bytes = n_bytes;
  }
  return gpu;
}

// Initializes the driver and lists its GPUs.
Gpus ask(const Cuda& cuda) {
  Gpus result;
  int n_devices = 0;
  const int error = cuda.init(0);
  if (error != 0) {
    result.explanation =
        fmt::format("NVIDIA's driver does not start: {}", describe_error(cuda, error));
    return result;
  }
  if (const int count_error = cuda.count(&n_devices); count_error != 0) {
    result.explanation =
        fmt::format("NVIDIA's driver can't count the GPUs: {}", describe_error(cuda, count_error));
    return result;
  }
  for (int index = 0; index < n_devices; ++index) {
    result.visible.push_back(read_gpu(cuda, index));
  }
  if (n_devices == 0) {
    result.explanation = "NVIDIA's driver is installed, but shows no GPU";
  }
  return result;
}

std::string describe_absence(const std::optional<std::string>& text,
                             const VisibleDevices& wanted,
                             const std::string& reason) {
  std::string absence = fmt::format("there is no NVIDIA driver ({})", reason);
  if (!text) {
    return absence;
  }
  const std::string problem = wanted.problem.empty() ? "" : wanted.problem + ", and ";
  return fmt::format("{}={} names GPUs, but {}{}", kVariable, *text, problem, absence);
}

std::string explain_fewer(const std::string& text,
                          const VisibleDevices& wanted,
                          const Gpus& found) {
  if (!wanted.problem.empty()) {
    return fmt::format("{}={}: {}; CUDA shows {} GPU{}",
                       kVariable,
                       text,
                       wanted.problem,
                       found.visible.size(),
                       found.visible.size() == 1 ? "" : "s");
  }
  if (found.visible.size() < wanted.names.size()) {
    return fmt::format(
        "{}={} names {} GPU{}, CUDA shows {}: {}",
        kVariable,
        text,
        wanted.names.size(),
        wanted.names.size() == 1 ? "" : "s",
        found.visible.size(),
        found.explanation.empty() ? "an unknown GPU hides all that follow" : found.explanation);
  }
  return found.explanation;
}

}  // namespace

Gpus find_gpus(const Environment& environment) {
  const std::optional<std::string> text = environment(kVariable);
  const VisibleDevices wanted = parse_visible_devices(text.value_or(""));
  if (text && wanted.names.empty() && wanted.problem.empty()) {
    return {.visible = {}, .explanation = fmt::format("{}=\"{}\" hides all", kVariable, *text)};
  }
  Gpus result;
  try {
    result = ask(load_cuda());
  } catch (const Error& error) {
    return {.visible = {}, .explanation = describe_absence(text, wanted, error.what())};
  }
  if (text) {
    result.explanation = explain_fewer(*text, wanted, result);
  }
  return result;
}

}  // namespace unisono
