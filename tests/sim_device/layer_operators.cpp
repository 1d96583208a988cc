#include <optional>
#include <tuple>
#include <vector>

#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gru_ops.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/rnn_relu_ops.h>
#include <ATen/ops/rnn_tanh_ops.h>
#include <torch/library.h>

#include "sim_device/place.h"
#include "sim_device/torch_device.h"

namespace sim {
namespace {

// The CPU multiplies by noise in dropout; at::dropout calls this operator for other devices.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input,
                                                  double p,
                                                  std::optional<bool> train) {
  if (!train.value_or(true) || p == 0) {
    return {input.clone(), at::ones_like(input, at::kBool)};
  }
  at::Tensor mask = at::empty_like(input, at::kBool, at::MemoryFormat::Contiguous);
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p == 1 ? 0.0 : 1.0 / (1.0 - p)), mask};
}

// Module::to() changes the data of a parameter in place if the types are compatible. LibTorch's own
// list of such devices lacks PrivateUse1.
bool has_compatible_type(const at::Tensor& self, const at::Tensor& other) {
  return self.layout() == at::kStrided && other.layout() == at::kStrided;
}

at::Tensor empty_on_cpu(const at::Tensor& like) {
  at::Tensor empty =
      at::detail::empty_strided_cpu(like.sizes(), like.strides(), like.scalar_type());
  return empty.requires_grad_(like.requires_grad());
}

// Chooses the kernel of scaled_dot_product_attention that the CPU would use. The choice depends on
// shapes and types only.
std::int64_t choose_attention(const at::Tensor& query,
                              const at::Tensor& key,
                              const at::Tensor& value,
                              const std::optional<at::Tensor>& mask,
                              double dropout,
                              bool is_causal,
                              std::optional<double> scale,
                              bool is_grouped) {
  std::optional<at::Tensor> cpu_mask;
  if (mask && mask->defined()) {
    cpu_mask = empty_on_cpu(*mask);
  }
  return at::_fused_sdp_choice(empty_on_cpu(query),
                               empty_on_cpu(key),
                               empty_on_cpu(value),
                               cpu_mask,
                               dropout,
                               is_causal,
                               scale,
                               is_grouped);
}

std::vector<at::Tensor> to_cpu(at::TensorList tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.cpu());
  }
  return copies;
}

// For devices, LibTorch's recurrent networks call fused cells that the CPU lacks, or add in another
// order. Here they run on the host: autograd differentiates the copies.
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(const at::Tensor& input,
                                                    at::TensorList state,
                                                    at::TensorList parameters,
                                                    bool has_biases,
                                                    std::int64_t n_layers,
                                                    double dropout,
                                                    bool is_training,
                                                    bool is_bidirectional,
                                                    bool is_batch_first) {
  const auto [output, hidden, cell] = at::lstm(input.cpu(),
                                               to_cpu(state),
                                               to_cpu(parameters),
                                               has_biases,
                                               n_layers,
                                               dropout,
                                               is_training,
                                               is_bidirectional,
                                               is_batch_first);
  const c10::Device device = input.device();
  return {output.to(device), hidden.to(device), cell.to(device)};
}

// The networks with a single state: `Network` is the function that LibTorch's dispatcher calls.
template <auto Network>
std::tuple<at::Tensor, at::Tensor> on_host(const at::Tensor& input,
                                           const at::Tensor& state,
                                           at::TensorList parameters,
                                           bool has_biases,
                                           std::int64_t n_layers,
                                           double dropout,
                                           bool is_training,
                                           bool is_bidirectional,
                                           bool is_batch_first) {
  const auto [output, hidden] = Network(input.cpu(),
                                        state.cpu(),
                                        to_cpu(parameters),
                                        has_biases,
                                        n_layers,
                                        dropout,
                                        is_training,
                                        is_bidirectional,
                                        is_batch_first);
  return {output.to(input.device()), hidden.to(input.device())};
}

}  // namespace

void add_layer_operators(torch::Library& aten, torch::Library& autograd) {
  aten.impl("native_dropout", native_dropout);
  for (torch::Library* library : {&aten, &autograd}) {
    library->impl("_has_compatible_shallow_copy_type", has_compatible_type);
    library->impl("lstm.input", lstm);
    library->impl("gru.input", on_host<&at::_ops::gru_input::call>);
    library->impl("rnn_tanh.input", on_host<&at::_ops::rnn_tanh_input::call>);
    library->impl("rnn_relu.input", on_host<&at::_ops::rnn_relu_input::call>);
  }
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&choose_attention);
}

}  // namespace sim
