#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono::python {

/// What torch.distributed demands of the arguments of an operation; each throws RuntimeError that
/// begins with the operation's name.
class Arguments {
 public:
  Arguments(const char* operation, int rank, int world_size)
      : operation_(operation), rank_(rank), world_size_(world_size) {}

  void require_root(std::int64_t root) const;
  void require_peer(int peer) const;

  /// Of a list, as every call passes, only `index` is there; `list` names it: "tensor list".
  void require_single(at::TensorList tensors, const char* list) const;
  void require_some(at::TensorList tensors, const char* list) const;

  void require_dense(at::TensorList tensors) const;

  /// The same dtype everywhere.
  void require_same_type(const at::Tensor& first, at::TensorList tensors) const;

  /// Also the same sizes.
  void require_alike(const at::Tensor& first, at::TensorList tensors) const;

  /// `lists` has one entry, with a tensor for each rank, like `tensor`.
  void require_one_list_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                                const char* which) const;
  void require_empty(const std::vector<std::vector<at::Tensor>>& lists, const char* which) const;

  /// As many outputs as inputs, and some; all dense and of one dtype.
  void require_pairs(at::TensorList outputs, at::TensorList inputs) const;

  [[noreturn]] void reject(const std::string& problem) const;

 private:
  const char* operation_;
  int rank_;
  int world_size_;
};

}  // namespace unisono::python
