#include "unisono/comm/arguments.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"

namespace unisono::comm {

Error invalid(std::string_view operation, const std::string& label, const std::string& problem) {
  return {ErrorCode::kInvalidArgument,
          label.empty() ? fmt::format("{}: {}", operation, problem)
                        : fmt::format("{} of {}: {}", operation, label, problem)};
}

void check_buffer(const Buffer& buffer, std::string_view operation, const std::string& label) {
  if (buffer.count < 0) {
    throw invalid(operation, label, fmt::format("the buffer's count is {}", buffer.count));
  }
  if (buffer.data == nullptr && buffer.count > 0) {
    throw invalid(operation, label, "the buffer's data is null");
  }
  if (static_cast<int>(buffer.dtype) >= kDTypeCount) {
    throw invalid(operation, label, "the buffer's dtype is none");
  }
  if (buffer.device.type != DeviceType::kCpu) {
    throw invalid(operation, label, "the buffer is on a CUDA device; copy it to the CPU first");
  }
}

}  // namespace unisono::comm
