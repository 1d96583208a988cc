#include "unisono/torch/tensor/coalesced_broadcast.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{16} << 20;
constexpr std::int64_t kAlignBytes = 64;

// Of a tensor's place in a part.
std::int64_t n_bytes(const NamedTensor& named) {
  const auto n_bytes = static_cast<std::int64_t>(named.tensor.nbytes());
  return (n_bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
}

std::int64_t n_bytes(std::span<const NamedTensor> part) {
  std::int64_t sum = 0;
  for (const NamedTensor& named : part) {
    sum += n_bytes(named);
  }
  return sum;
}

// As many tensors as fit into a part, one at least.
std::size_t part_size(std::span<const NamedTensor> tensors) {
  std::size_t size = 1;
  std::int64_t sum = n_bytes(tensors[0]);
  while (size < tensors.size() && sum + n_bytes(tensors[size]) <= kPartBytes) {
    sum += n_bytes(tensors[size]);
    ++size;
  }
  return size;
}

void pack(std::span<const NamedTensor> part, std::byte* to) {
  for (const NamedTensor& named : part) {
    const at::Tensor source = named.tensor.contiguous();
    std::memcpy(to, source.const_data_ptr(), source.nbytes());
    to += n_bytes(named);
  }
}

void unpack(std::span<const NamedTensor> part, std::byte* from) {
  for (const NamedTensor& named : part) {
    const at::Tensor& to = named.tensor;
    // variable_data() has a version of its own: a forward pass may have saved the tensor for a
    // backward that does not need its values, which an in-place change would make fail.
    to.variable_data().copy_(at::from_blob(from, to.sizes(), at::TensorOptions(to.scalar_type())));
    from += n_bytes(named);
  }
}

std::string label_of(const std::string& what, std::span<const NamedTensor> part) {
  std::string label = what + " (" + part.front().name;
  if (part.size() > 1) {
    label += " and " + std::to_string(part.size() - 1) + " more";
  }
  return label + ")";
}

}  // namespace

CoalescedBroadcast::CoalescedBroadcast(std::vector<NamedTensor> tensors, std::string what)
    : tensors_(std::move(tensors)), what_(std::move(what)) {}

void CoalescedBroadcast::run(ProcessGroup& group,
                             std::optional<std::chrono::milliseconds> timeout,
                             int root) {
  const c10::NoGradGuard no_grad;
  std::span<const NamedTensor> rest = tensors_;
  while (!rest.empty()) {
    const std::size_t size = part_size(rest);
    run_part(group, rest.first(size), timeout, root);
    rest = rest.subspan(size);
  }
}

void CoalescedBroadcast::run_part(ProcessGroup& group,
                                  std::span<const NamedTensor> tensors,
                                  std::optional<std::chrono::milliseconds> timeout,
                                  int root) {
  const std::string label = label_of(what_, tensors);
  const std::int64_t size = n_bytes(tensors);
  if (size > kPartBytes && tensors.front().tensor.is_contiguous()) {
    group.broadcast(as_payload(tensors.front().tensor.variable_data()),
                    {.root = root, .timeout = timeout, .label = label});
    return;
  }
  if (staging_.n_bytes() < size) {
    staging_ = group.allocate(size, DType::kUInt8);
  }
  auto* const staging = static_cast<std::byte*>(staging_.data);
  if (group.rank() == root) {
    pack(tensors, staging);
  }
  Buffer part = staging_;
  part.count = size;
  group.broadcast(part, {.root = root, .timeout = timeout, .label = label});
  if (group.rank() != root) {
    unpack(tensors, staging);
  }
}

}  // namespace unisono
