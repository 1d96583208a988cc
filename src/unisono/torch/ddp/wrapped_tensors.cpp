#include "unisono/torch/ddp/wrapped_tensors.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "unisono/torch/tensor/tensor.h"

namespace unisono::ddp {
namespace {

std::string describe_with_device(const at::Tensor& tensor) {
  return describe(tensor) + (tensor.device().is_cpu() ? "" : " on " + tensor.device().str());
}

std::string quote(const std::string& kind, const NamedTensor& named) {
  return kind + " '" + named.name + "'";
}

bool requires_gradient(const NamedTensor& parameter) {
  return parameter.tensor.requires_grad();
}

bool holds(const std::vector<NamedTensor>& all, const at::Tensor& tensor) {
  return std::ranges::any_of(
      all, [&](const NamedTensor& other) { return other.tensor.is_same(tensor); });
}

}  // namespace

WrappedTensors::WrappedTensors(std::vector<NamedTensor> parameters,
                               const std::vector<NamedTensor>& buffers)
    : parameters_(std::move(parameters)) {
  for (const NamedTensor& parameter : parameters_) {
    forms_.push_back(form_of("parameter", parameter));
    if (!parameter.tensor.requires_grad()) {
      frozen_.push_back(parameter);
    }
  }
  for (const NamedTensor& buffer : buffers) {
    forms_.push_back(form_of("buffer", buffer));
  }
}

WrappedTensors::Form WrappedTensors::form_of(const std::string& kind, const NamedTensor& named) {
  const at::Tensor& tensor = named.tensor;
  return {.what = quote(kind, named),
          .tensor = tensor,
          .type = tensor.scalar_type(),
          .device = tensor.device(),
          .sizes = tensor.sizes().vec(),
          .description = describe_with_device(tensor)};
}

std::optional<std::string> WrappedTensors::find_conversion() const {
  for (const Form& form : forms_) {
    const at::Tensor& tensor = form.tensor;
    if (tensor.scalar_type() != form.type || tensor.device() != form.device ||
        tensor.sizes() != form.sizes) {
      return form.what + " is " + describe_with_device(tensor) + ", but was " + form.description +
             " when the module was wrapped";
    }
  }
  return std::nullopt;
}

bool WrappedTensors::has_thawed() const {
  return std::ranges::any_of(frozen_, requires_gradient);
}

std::vector<NamedTensor> WrappedTensors::thawed() const {
  std::vector<NamedTensor> result;
  std::ranges::copy_if(frozen_, std::back_inserter(result), requires_gradient);
  return result;
}

void WrappedTensors::take_thawed() {
  std::erase_if(frozen_, requires_gradient);
}

bool WrappedTensors::are_all_of(const std::vector<at::Tensor>& parameters) const {
  std::size_t n_found = 0;
  for (const at::Tensor& parameter : parameters) {
    if (n_found < parameters_.size() && parameters_[n_found].tensor.is_same(parameter)) {
      ++n_found;
    } else if (parameter.defined() && !holds(parameters_, parameter)) {
      return false;
    }
  }
  return n_found == parameters_.size();
}

std::optional<std::string> WrappedTensors::find_replacement(
    const std::vector<NamedTensor>& parameters) const {
  for (const NamedTensor& wrapped : parameters_) {
    if (!holds(parameters, wrapped.tensor)) {
      const bool has_name = std::ranges::any_of(
          parameters, [&](const NamedTensor& other) { return other.name == wrapped.name; });
      return quote("parameter", wrapped) +
             (has_name ? " was replaced by another tensor" : " was removed") +
             " after the module was wrapped";
    }
  }
  for (const NamedTensor& parameter : parameters) {
    if (!holds(parameters_, parameter.tensor)) {
      return quote("parameter", parameter) + " was added after the module was wrapped";
    }
  }
  return std::nullopt;
}

}  // namespace unisono::ddp
