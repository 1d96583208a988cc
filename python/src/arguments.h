#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/refused_call.h"

#include "errors.h"

namespace unisono::python {

/// What torch.distributed demands of the arguments of one call. Each throws RuntimeError that
/// begins with the rank and the call's name in Python; ranks that wait for this one hear of it.
class Arguments {
 public:
  /// Both outlive it.
  Arguments(ProcessGroup& group, const char* call);

  /// What the function returns. A call that the core refuses is refused as above; other errors are
  /// translated.
  template <class Function>
  decltype(auto) checked(Function&& function) const {
    try {
      return function();
    } catch (const RefusedCall& error) {
      reject(error.problem());
    } catch (const Error& error) {
      throw_translated(error);
    }
  }

  /// What the function returns, which torch refuses in its own words.
  template <class Function>
  decltype(auto) checked_by_torch(Function&& function) const {
    try {
      return function();
    } catch (const c10::Error& error) {
      reject(error.what_without_backtrace());
    }
  }

  void require_root(std::int64_t root) const;
  void require_peer(int peer) const;

  /// Of a list, as every call passes, only `index` is there; `list` names it: "tensor list".
  void require_single(at::TensorList tensors, const char* list) const;
  void require_some(at::TensorList tensors, const char* list) const;

  /// One of the list, which is so not empty; `index` is of the options.
  void require_root_tensor(std::int64_t index, at::TensorList tensors) const;

  void require_dense(at::TensorList tensors) const;

  /// All dense, or all sparse; `tensors` is not empty.
  void require_same_layout(at::TensorList tensors) const;

  /// The same dtype everywhere.
  void require_same_type(const at::Tensor& first, at::TensorList tensors) const;

  /// Also the same sizes.
  void require_alike(const at::Tensor& first, at::TensorList tensors) const;

  /// This rank's entry of `blocks`, which may have different sizes, has the size of `tensor`.
  void require_own_block(const at::Tensor& tensor, at::TensorList blocks) const;

  /// `lists` has one entry, with a tensor for each rank.
  void require_one_list_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                                const char* which) const;
  void require_empty(const std::vector<std::vector<at::Tensor>>& lists, const char* which) const;

  /// `lists` has an entry for each input, each with a tensor for each input of each rank.
  void require_lists_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                             at::TensorList inputs) const;

  /// As many outputs as inputs, and some; all dense and of one dtype.
  void require_pairs(at::TensorList outputs, at::TensorList inputs) const;

  [[noreturn]] void reject(const std::string& problem) const;

 private:
  void require_size(const at::Tensor& expected, at::TensorList tensors, std::size_t index) const;

  ProcessGroup* group_;
  const char* call_;
  int world_size_;
};

}  // namespace unisono::python
