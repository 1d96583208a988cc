#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include <ATen/ops/from_blob.h>
#include <c10/core/GradMode.h>

#include "unisono/torch/tensor/random_state.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

// An undefined tensor becomes an empty buffer, for arguments that only the root passes.
Buffer optional_payload(const at::Tensor& tensor, TensorAccess access) {
  return tensor.defined() ? as_payload(tensor, access) : Buffer();
}

Buffer optional_operand(const at::Tensor& tensor, const char* operation, TensorAccess access) {
  return tensor.defined() ? as_operand(tensor, operation, access) : Buffer();
}

// The buffers of the tensors of one call.
class Buffers {
 public:
  // `operation` names a computing operation in errors; null for an operation that only moves
  // elements.
  explicit Buffers(const TensorBlocks& tensors,
                   TensorAccess access,
                   const char* operation = nullptr)
      : is_list_(tensors.is_list()) {
    for (const at::Tensor& tensor : tensors.tensors()) {
      const bool is_absent = !is_list_ && !tensor.defined();
      buffers_.push_back(is_absent              ? Buffer()
                         : operation == nullptr ? as_payload(tensor, access)
                                                : as_operand(tensor, operation, access));
    }
  }

  [[nodiscard]] Blocks blocks() const {
    return is_list_ ? Blocks(buffers_) : Blocks(buffers_.front());
  }

 private:
  bool is_list_;
  std::vector<Buffer> buffers_;
};

void note_write(const at::Tensor& tensor) {
  if (tensor.defined()) {
    bump_version(tensor);
  }
}

void note_write(const TensorBlocks& blocks) {
  for (const at::Tensor& tensor : blocks.tensors()) {
    note_write(tensor);
  }
}

}  // namespace

void reduce(ProcessGroup& group,
            const at::Tensor& in,
            const at::Tensor& out,
            const ReduceOptions& options) {
  const RandomPause pause;
  group.reduce(optional_operand(in, "reduce", TensorAccess::kRead),
               optional_operand(out, "reduce", TensorAccess::kWrite),
               options);
  note_write(out);
}

Work reduce_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const at::Tensor& out,
                  const ReduceOptions& options) {
  note_write(out);
  return group.reduce_async(optional_operand(in, "reduce", TensorAccess::kRead),
                            optional_operand(out, "reduce", TensorAccess::kWrite),
                            options);
}

void reduce_scatter(ProcessGroup& group,
                    const TensorBlocks& in,
                    const at::Tensor& out,
                    const ReduceScatterOptions& options) {
  const RandomPause pause;
  group.reduce_scatter(Buffers(in, TensorAccess::kRead, "reduce_scatter").blocks(),
                       optional_operand(out, "reduce_scatter", TensorAccess::kWrite),
                       options);
  note_write(out);
}

Work reduce_scatter_async(ProcessGroup& group,
                          const TensorBlocks& in,
                          const at::Tensor& out,
                          const ReduceScatterOptions& options) {
  note_write(out);
  return group.reduce_scatter_async(Buffers(in, TensorAccess::kRead, "reduce_scatter").blocks(),
                                    optional_operand(out, "reduce_scatter", TensorAccess::kWrite),
                                    options);
}

void all_gather(ProcessGroup& group,
                const at::Tensor& in,
                const TensorBlocks& out,
                const AllGatherOptions& options) {
  const RandomPause pause;
  group.all_gather(optional_payload(in, TensorAccess::kRead),
                   Buffers(out, TensorAccess::kWrite).blocks(),
                   options);
  note_write(out);
}

Work all_gather_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const TensorBlocks& out,
                      const AllGatherOptions& options) {
  note_write(out);
  return group.all_gather_async(optional_payload(in, TensorAccess::kRead),
                                Buffers(out, TensorAccess::kWrite).blocks(),
                                options);
}

void gather(ProcessGroup& group,
            const at::Tensor& in,
            const TensorBlocks& out,
            const GatherOptions& options) {
  const RandomPause pause;
  group.gather(optional_payload(in, TensorAccess::kRead),
               Buffers(out, TensorAccess::kWrite).blocks(),
               options);
  note_write(out);
}

Work gather_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const TensorBlocks& out,
                  const GatherOptions& options) {
  note_write(out);
  return group.gather_async(optional_payload(in, TensorAccess::kRead),
                            Buffers(out, TensorAccess::kWrite).blocks(),
                            options);
}

void scatter(ProcessGroup& group,
             const TensorBlocks& in,
             const at::Tensor& out,
             const ScatterOptions& options) {
  const RandomPause pause;
  group.scatter(Buffers(in, TensorAccess::kRead).blocks(),
                optional_payload(out, TensorAccess::kWrite),
                options);
  note_write(out);
}

Work scatter_async(ProcessGroup& group,
                   const TensorBlocks& in,
                   const at::Tensor& out,
                   const ScatterOptions& options) {
  note_write(out);
  return group.scatter_async(Buffers(in, TensorAccess::kRead).blocks(),
                             optional_payload(out, TensorAccess::kWrite),
                             options);
}

void all_to_all(ProcessGroup& group,
                const TensorBlocks& in,
                const TensorBlocks& out,
                const AllToAllOptions& options) {
  const RandomPause pause;
  group.all_to_all(Buffers(in, TensorAccess::kRead).blocks(),
                   Buffers(out, TensorAccess::kWrite).blocks(),
                   options);
  note_write(out);
}

Work all_to_all_async(ProcessGroup& group,
                      const TensorBlocks& in,
                      const TensorBlocks& out,
                      const AllToAllOptions& options) {
  note_write(out);
  return group.all_to_all_async(Buffers(in, TensorAccess::kRead).blocks(),
                                Buffers(out, TensorAccess::kWrite).blocks(),
                                options);
}

void send(ProcessGroup& group, const at::Tensor& tensor, int to, const SendOptions& options) {
  const RandomPause pause;
  group.send(as_payload(tensor, TensorAccess::kRead), to, options);
}

Work send_async(ProcessGroup& group, const at::Tensor& tensor, int to, const SendOptions& options) {
  return group.send_async(as_payload(tensor, TensorAccess::kRead), to, options);
}

int recv(ProcessGroup& group, const at::Tensor& tensor, int from, const RecvOptions& options) {
  const RandomPause pause;
  const int source = group.recv(as_payload(tensor, TensorAccess::kWrite), from, options);
  note_write(tensor);
  return source;
}

Work recv_async(ProcessGroup& group,
                const at::Tensor& tensor,
                int from,
                const RecvOptions& options) {
  note_write(tensor);
  return group.recv_async(as_payload(tensor, TensorAccess::kWrite), from, options);
}

namespace {

constexpr std::int64_t kPartBytes = std::int64_t{16} << 20;
constexpr std::int64_t kAlignBytes = 64;

// Returns the number of bytes of a tensor in a part, with padding.
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

// Returns the number of tensors that fit into a part, at least 1.
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
    const at::Tensor source = named.tensor.contiguous().cpu();
    std::memcpy(to, source.const_data_ptr(), source.nbytes());
    to += n_bytes(named);
  }
}

void unpack(std::span<const NamedTensor> part, std::byte* from) {
  for (const NamedTensor& named : part) {
    const at::Tensor& to = named.tensor;
    // variable_data() has a version counter of its own. A forward pass may have saved the tensor
    // for a backward pass that does not need the values; an in-place change with a counted version
    // would make that backward pass fail.
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
