#include "unisono/torch/ddp/model_check.h"

#include <algorithm>
#include <ios>
#include <sstream>

#include "unisono/base/error.h"
#include "unisono/torch/device/host_copies.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {

void check_wide_types(const std::vector<NamedTensor>& parameters,
                      const std::string& option,
                      const std::string& reason) {
  for (const NamedTensor& parameter : parameters) {
    const at::ScalarType type = parameter.tensor.scalar_type();
    if (type != at::kFloat && type != at::kDouble) {
      throw Error(ErrorCode::kInvalidArgument,
                  "DistributedDataParallel: parameter '" + parameter.name + "' is " +
                      describe(parameter.tensor) + "; with " + option +
                      " parameters must be f32 or f64, " + reason +
                      "; compute in 16 bits under Autocast");
    }
  }
}

namespace {

[[noreturn]] void reject_model(const std::string& problem) {
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
    reject_model(options + ", but a rank trains on one device: start a rank for each");
  }
  const auto elsewhere = std::ranges::find_if(parameters, [&](const NamedTensor& parameter) {
    return parameter.tensor.device() != parameters.front().tensor.device();
  });
  if (elsewhere != parameters.end()) {
    reject_model(options + ", but the module is on several devices (" +
                 describe_place(parameters.front()) + ", " + describe_place(*elsewhere) +
                 "); the options are for a module on one GPU: leave them out");
  }
  if (parameters.empty() || !has_elements(parameters.front().tensor.device())) {
    return;  // other requirements are checked for all modules
  }
  const at::Device device = parameters.front().tensor.device();
  if (!device.is_cpu()) {
    const bool is_other = (!device_ids.empty() && device_ids.front() != device.index()) ||
                          (output_device && *output_device != device.index());
    if (is_other) {
      reject_model(options + ", but the module is on " + device.str() +
                   ": move it by module.to(device), or leave device_ids and output_device out");
    }
    return;
  }
  reject_model(options +
               ", but the module is in CPU memory, where there is no device to choose: leave "
               "device_ids and output_device out");
}

namespace {

void check_tensor(const std::string& what, const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  const bool is_real = has_elements(tensor.device());
  if (tensor.layout() != at::kStrided || !is_real) {
    reject_model(what + " '" + named.name + "' is " +
                 (is_real ? "sparse" : "on " + tensor.device().str()) +
                 "; only dense tensors on the CPU or an accelerator can be wrapped");
  }
}

// Throws unless all tensors of the module are on one device.
void check_one_device(const std::vector<NamedTensor>& parameters,
                      const std::vector<NamedTensor>& buffers) {
  for (const auto* const tensors : {&parameters, &buffers}) {
    for (const NamedTensor& named : *tensors) {
      const NamedTensor& first = parameters.empty() ? buffers.front() : parameters.front();
      if (named.tensor.device() != first.tensor.device()) {
        reject_model("the module is on several devices (" + describe_place(first) + ", " +
                     describe_place(named) +
                     "); a rank trains on one: move the module there by module.to(device) before "
                     "it is wrapped, and divide a larger model among ranks by "
                     "unisono::parallel");
      }
    }
  }
}

Property property_of(const std::string& what, const NamedTensor& named) {
  check_tensor(what, named);
  std::ostringstream value;
  value << describe(named.tensor);
  if (!named.tensor.is_contiguous()) {
    value << " with strides " << named.tensor.strides();
  }
  if (!named.tensor.is_cpu()) {
    value << " on " << at::DeviceTypeName(named.tensor.device().type(), /*lower_case=*/true);
  }
  if (what == "parameter" && !named.tensor.requires_grad()) {
    value << " without gradient";
  }
  return {.what = what + " '" + named.name + "'", .value = value.str()};
}

bool holds(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::ranges::any_of(tensors,
                             [&](const at::Tensor& other) { return other.is_same(tensor); });
}

template <class T>
Property option_property(const std::string& name, T value) {
  std::ostringstream text;
  text << std::boolalpha << value;
  return {.what = "option " + name, .value = text.str()};
}

}  // namespace

std::vector<bool> find_sparse(const std::vector<NamedTensor>& parameters,
                              const std::vector<at::Tensor>& sparse,
                              int logical_ranks) {
  std::vector<bool> is_sparse;
  for (const NamedTensor& parameter : parameters) {
    is_sparse.push_back(holds(sparse, parameter.tensor));
    if (logical_ranks > 0 && is_sparse.back()) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "DistributedDataParallel: with logical_ranks gradients must be dense, but that of "
          "parameter '" +
              parameter.name + "' is sparse: build the layer with sparse(false)");
    }
  }
  return is_sparse;
}

std::vector<Property> properties_of(const std::vector<NamedTensor>& parameters,
                                    const std::vector<NamedTensor>& buffers,
                                    const std::vector<at::Tensor>& sparse,
                                    const DistributedDataParallelOptions& options) {
  std::vector<Property> properties{
      option_property("bucket_cap_mb", options.bucket_cap_mb),
      option_property("first_bucket_cap_mb", options.first_bucket_cap_mb),
      option_property("broadcast_buffers", options.broadcast_buffers),
      option_property("find_unused_parameters", options.find_unused_parameters),
      option_property("non_finite_gradients", static_cast<int>(options.non_finite_gradients)),
      option_property("weigh_samples", options.weigh_samples),
      option_property("logical_ranks", options.logical_ranks),
      option_property("shard_seed", options.shard_seed),
      option_property("shard_buffers", static_cast<int>(options.shard_buffers)),
      option_property("parameter_drift", static_cast<int>(options.parameter_drift)),
  };
  for (const NamedTensor& parameter : parameters) {
    properties.push_back(property_of("parameter", parameter));
    if (holds(sparse, parameter.tensor)) {
      properties.back().value += " with sparse gradient";
    }
  }
  for (const NamedTensor& buffer : buffers) {
    properties.push_back(property_of("buffer", buffer));
  }
  check_one_device(parameters, buffers);
  return properties;
}

}  // namespace unisono::ddp
