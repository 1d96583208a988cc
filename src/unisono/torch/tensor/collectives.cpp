#include "unisono/torch/tensor/collectives.h"

#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/blocks.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/tensor/random_turn.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

// An undefined tensor stands for what only the root passes.
Buffer optional_payload(const at::Tensor& tensor) {
  return tensor.defined() ? as_payload(tensor) : Buffer();
}

Buffer optional_operand(const at::Tensor& tensor, const char* operation) {
  return tensor.defined() ? as_operand(tensor, operation) : Buffer();
}

// Of the tensors of one call.
class Buffers {
 public:
  // `operation` names one that computes; null: it moves elements.
  explicit Buffers(const TensorBlocks& tensors, const char* operation = nullptr)
      : is_list_(tensors.is_list()) {
    for (const at::Tensor& tensor : tensors.tensors()) {
      const bool is_absent = !is_list_ && !tensor.defined();
      buffers_.push_back(is_absent              ? Buffer()
                         : operation == nullptr ? as_payload(tensor)
                                                : as_operand(tensor, operation));
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
  group.reduce(optional_operand(in, "reduce"), optional_operand(out, "reduce"), options);
  note_write(out);
}

Work reduce_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const at::Tensor& out,
                  const ReduceOptions& options) {
  note_write(out);
  return group.reduce_async(
      optional_operand(in, "reduce"), optional_operand(out, "reduce"), options);
}

void reduce_scatter(ProcessGroup& group,
                    const TensorBlocks& in,
                    const at::Tensor& out,
                    const ReduceScatterOptions& options) {
  const RandomPause pause;
  group.reduce_scatter(
      Buffers(in, "reduce_scatter").blocks(), optional_operand(out, "reduce_scatter"), options);
  note_write(out);
}

Work reduce_scatter_async(ProcessGroup& group,
                          const TensorBlocks& in,
                          const at::Tensor& out,
                          const ReduceScatterOptions& options) {
  note_write(out);
  return group.reduce_scatter_async(
      Buffers(in, "reduce_scatter").blocks(), optional_operand(out, "reduce_scatter"), options);
}

void all_gather(ProcessGroup& group,
                const at::Tensor& in,
                const TensorBlocks& out,
                const AllGatherOptions& options) {
  const RandomPause pause;
  group.all_gather(optional_payload(in), Buffers(out).blocks(), options);
  note_write(out);
}

Work all_gather_async(ProcessGroup& group,
                      const at::Tensor& in,
                      const TensorBlocks& out,
                      const AllGatherOptions& options) {
  note_write(out);
  return group.all_gather_async(optional_payload(in), Buffers(out).blocks(), options);
}

void gather(ProcessGroup& group,
            const at::Tensor& in,
            const TensorBlocks& out,
            const GatherOptions& options) {
  const RandomPause pause;
  group.gather(optional_payload(in), Buffers(out).blocks(), options);
  note_write(out);
}

Work gather_async(ProcessGroup& group,
                  const at::Tensor& in,
                  const TensorBlocks& out,
                  const GatherOptions& options) {
  note_write(out);
  return group.gather_async(optional_payload(in), Buffers(out).blocks(), options);
}

void scatter(ProcessGroup& group,
             const TensorBlocks& in,
             const at::Tensor& out,
             const ScatterOptions& options) {
  const RandomPause pause;
  group.scatter(Buffers(in).blocks(), optional_payload(out), options);
  note_write(out);
}

Work scatter_async(ProcessGroup& group,
                   const TensorBlocks& in,
                   const at::Tensor& out,
                   const ScatterOptions& options) {
  note_write(out);
  return group.scatter_async(Buffers(in).blocks(), optional_payload(out), options);
}

void all_to_all(ProcessGroup& group,
                const TensorBlocks& in,
                const TensorBlocks& out,
                const AllToAllOptions& options) {
  const RandomPause pause;
  group.all_to_all(Buffers(in).blocks(), Buffers(out).blocks(), options);
  note_write(out);
}

Work all_to_all_async(ProcessGroup& group,
                      const TensorBlocks& in,
                      const TensorBlocks& out,
                      const AllToAllOptions& options) {
  note_write(out);
  return group.all_to_all_async(Buffers(in).blocks(), Buffers(out).blocks(), options);
}

void send(ProcessGroup& group, const at::Tensor& tensor, int to, const SendOptions& options) {
  const RandomPause pause;
  group.send(as_payload(tensor), to, options);
}

Work send_async(ProcessGroup& group, const at::Tensor& tensor, int to, const SendOptions& options) {
  return group.send_async(as_payload(tensor), to, options);
}

int recv(ProcessGroup& group, const at::Tensor& tensor, int from, const RecvOptions& options) {
  const RandomPause pause;
  const int source = group.recv(as_payload(tensor), from, options);
  note_write(tensor);
  return source;
}

Work recv_async(ProcessGroup& group,
                const at::Tensor& tensor,
                int from,
                const RecvOptions& options) {
  note_write(tensor);
  return group.recv_async(as_payload(tensor), from, options);
}

}  // namespace unisono
