#include "unisono/torch/ddp/check_devices.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

[[noreturn]] void reject(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "DistributedDataParallel: " + problem);
}

std::string describe_options(const std::vector<int>& device_ids, std::optional<int> output_device) {
  std::string text;
  for (const int id : device_ids) {
    text += (text.empty() ? "device_ids is {" : ", ") + std::to_string(id);
  }
  text += text.empty() ? "" : "}";
  if (output_device) {
    text += (text.empty() ? "" : " and ") + ("output_device is " + std::to_string(*output_device));
  }
  return text;
}

std::string describe_place(const NamedTensor& parameter) {
  return "'" + parameter.name + "' on " + parameter.tensor.device().str();
}

}  // namespace

void check_devices(const std::vector<int>& device_ids,
                   std::optional<int> output_device,
                   const std::vector<NamedTensor>& parameters) {
  if (device_ids.empty() && !output_device) {
    return;
  }
  const std::string options = describe_options(device_ids, output_device);
  if (device_ids.size() > 1) {
    reject(options + ", but a rank trains on one device: start a rank for each");
  }
  const auto elsewhere = std::ranges::find_if(parameters, [&](const NamedTensor& parameter) {
    return parameter.tensor.device() != parameters.front().tensor.device();
  });
  if (elsewhere != parameters.end()) {
    reject(options + ", but the module is on several devices (" +
           describe_place(parameters.front()) + ", " + describe_place(*elsewhere) +
           "); the options are for a module on one GPU: leave them out");
  }
  if (parameters.empty() || !parameters.front().tensor.device().is_cpu()) {
    return;  // what a module must be besides is looked at for all
  }
  reject(options +
         ", but the module is in CPU memory, where there is no device to choose: leave "
         "device_ids and output_device out");
}

}  // namespace unisono::ddp
