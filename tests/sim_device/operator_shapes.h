#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include "unisono/base/mutex.h"

namespace sim {

using torch::jit::Stack;

/// Form of a tensor that an operator returns.
struct Shape {
  bool is_defined = false;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  at::ScalarType type{};
};

/// One return of an operator: an argument that the operator wrote, or fresh tensors.
struct Result {
  std::optional<std::size_t> argument;
  bool is_list = false;
  bool has_tensors = true;  ///< False for numbers and truth values.
  std::vector<Shape> shapes;
};

using Results = std::vector<Result>;

/// Returns the operator's returns without their shapes. Throws c10::Error for a view: the device
/// needs a kernel of its own for that operator.
Results results_of(const c10::FunctionSchema& schema);

/// Returns the shape of a tensor. A tensor with overlapping elements or gaps gets the strides of a
/// contiguous tensor.
Shape shape_of(const at::Tensor& tensor);

/// Adds the shapes of the returned tensors, which are the last values of `stack`.
void add_shapes(Results& results, const Stack& stack);

/// Returns true if the operator writes the argument. The schema of native_batch_norm conceals that
/// it writes the running statistics.
bool writes_argument(const c10::FunctionSchema& schema, std::size_t argument);

/// Returns true if values of tensors, not only their shapes, determine the shapes of the results,
/// or if results are no tensors.
bool needs_values(const c10::OperatorHandle& op, const Stack& arguments, const Results& results);

/// Results of earlier calls by operator, shapes, types and integers. Thread-safe.
class KnownResults {
 public:
  /// Returns a text that is equal for calls whose results have equal shapes.
  static std::string key_of(const c10::OperatorHandle& op, const Stack& arguments);

  [[nodiscard]] std::optional<Results> find(const std::string& key);
  void add(const std::string& key, const Results& results);

 private:
  unisono::Mutex mutex_;
  std::unordered_map<std::string, Results> results_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace sim
