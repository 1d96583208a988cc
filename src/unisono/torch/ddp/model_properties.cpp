#include "unisono/torch/ddp/model_properties.h"

#include <algorithm>
#include <ios>
#include <sstream>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

void check_tensor(const std::string& what, const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu()) {
    throw Error(ErrorCode::kInvalidArgument,
                "DistributedDataParallel: " + what + " '" + named.name + "' is " +
                    (tensor.device().is_cpu() ? "sparse" : "on " + tensor.device().str()) +
                    "; only dense tensors in CPU memory can be wrapped");
  }
}

Property property_of(const std::string& what, const NamedTensor& named) {
  check_tensor(what, named);
  std::ostringstream value;
  value << describe(named.tensor);
  if (!named.tensor.is_contiguous()) {
    value << " with strides " << named.tensor.strides();
  }
  if (what == "parameter" && !named.tensor.requires_grad()) {
    value << " without gradient";
  }
  return {.what = what + " '" + named.name + "'", .value = value.str()};
}

template <class T>
Property option_property(const std::string& name, T value) {
  std::ostringstream text;
  text << std::boolalpha << value;
  return {.what = "option " + name, .value = text.str()};
}

}  // namespace

bool holds(const std::vector<at::Tensor>& tensors, const at::Tensor& tensor) {
  return std::ranges::any_of(tensors,
                             [&](const at::Tensor& other) { return other.is_same(tensor); });
}

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
  return properties;
}

}  // namespace unisono::ddp
