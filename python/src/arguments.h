#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"

#include "errors.h"

namespace unisono::python {

/// Checks the arguments of a call by the rules of torch.distributed. Each check throws RuntimeError
/// with a message that begins with the rank and the call's name in Python; ranks that wait for this
/// rank name the refused call in reports. Lives during the call, on the caller's thread.
class Arguments {
 public:
  /// `group` and `call` must outlive the object.
  Arguments(ProcessGroup& group, const char* call);

  /// Returns the result of `function`. A call that the core refuses is rejected by reject(); other
  /// errors are translated to PyTorch's exceptions.
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

  /// Returns the result of `function`. An error of torch is rejected with torch's own message.
  template <class Function>
  decltype(auto) checked_by_torch(Function&& function) const {
    try {
      return function();
    } catch (const c10::Error& error) {
      reject(error.what_without_backtrace());
    }
  }

  /// Requires a rank of the group.
  void require_root(std::int64_t root) const;
  /// Requires a rank of the group.
  void require_peer(int peer) const;

  /// Requires a list with exactly one element. `list` names the list in the message: "tensor list".
  void require_single(at::TensorList tensors, const char* list) const;
  void require_some(at::TensorList tensors, const char* list) const;

  /// Requires an index within the list, which is then not empty. `index` comes from the call's
  /// options.
  void require_root_tensor(std::int64_t index, at::TensorList tensors) const;

  /// Requires dense tensors.
  void require_dense(at::TensorList tensors) const;

  /// Requires that all tensors are dense or all are sparse. `tensors` must not be empty.
  void require_same_layout(at::TensorList tensors) const;

  /// Requires the dtype of `first` for all tensors.
  void require_same_type(const at::Tensor& first, at::TensorList tensors) const;

  /// Requires the dtype and the sizes of `first` for all tensors.
  void require_alike(const at::Tensor& first, at::TensorList tensors) const;

  /// Requires the size of `tensor` for this rank's entry of `blocks`; the other entries may have
  /// other sizes.
  void require_own_block(const at::Tensor& tensor, at::TensorList blocks) const;

  /// Requires that `lists` has one entry, with a tensor for each rank.
  void require_one_list_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                                const char* which) const;
  void require_empty(const std::vector<std::vector<at::Tensor>>& lists, const char* which) const;

  /// Requires that `lists` has an entry for each input, each with one tensor per input and rank.
  void require_lists_for_all(const std::vector<std::vector<at::Tensor>>& lists,
                             at::TensorList inputs) const;

  /// Requires equally many outputs and inputs, at least 1, all dense and of the same dtype.
  void require_pairs(at::TensorList outputs, at::TensorList inputs) const;

  /// Throws the RuntimeError of this call.
  [[noreturn]] void reject(const std::string& problem) const;

 private:
  void require_size(const at::Tensor& expected, at::TensorList tensors, std::size_t index) const;

  ProcessGroup* group_;
  const char* call_;
  int world_size_;
};

}  // namespace unisono::python
