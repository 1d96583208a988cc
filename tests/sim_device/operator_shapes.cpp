#include "sim_device/operator_shapes.h"

#include <sstream>
#include <utility>

#include <ATen/core/enum_tag.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/strides.h>

#include "sim_device/place.h"

namespace sim {
namespace {

bool is_tensor_type(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::ListType) {
    return type->castRaw<c10::ListType>()->getElementType()->kind() == c10::TypeKind::TensorType;
  }
  return type->kind() == c10::TypeKind::TensorType;
}

bool has_mask(const Stack& arguments) {
  bool found = false;
  for (const c10::IValue& value : arguments) {
    if (value.isOptionalTensorList()) {
      for_each_tensor(value, [&](const at::Tensor& t) {
        found |= t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
      });
    }
  }
  return found;
}

void describe_tensors(std::ostream& text, const c10::IValue& value) {
  if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& t : value.toOptionalTensorList()) {
      text << (t && t->defined());
    }
  }
  for_each_tensor(value, [&](const at::Tensor& t) {
    text << t.scalar_type() << t.sizes() << t.strides() << t.device().type() << ';';
  });
}

}  // namespace

Results results_of(const c10::FunctionSchema& schema) {
  Results results;
  for (const c10::Argument& returned : schema.returns()) {
    Result result;
    const c10::AliasInfo* alias = returned.alias_info();
    TORCH_CHECK(alias == nullptr || alias->isWrite(),
                "sim: the device has no kernel of the view ",
                schema,
                "; add one to storage_operators.cpp");
    for (std::size_t i = 0; alias != nullptr && i < schema.arguments().size(); ++i) {
      const c10::AliasInfo* other = schema.arguments()[i].alias_info();
      if (other != nullptr && *other == *alias) {
        result.argument = i;
      }
    }
    result.is_list = returned.type()->kind() == c10::TypeKind::ListType;
    result.has_tensors = is_tensor_type(returned.type());
    results.push_back(std::move(result));
  }
  return results;
}

Shape shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return {};
  }
  Shape shape{true, tensor.sizes().vec(), tensor.strides().vec(), tensor.scalar_type()};
  if (!tensor.is_non_overlapping_and_dense()) {
    const auto strides = c10::contiguous_strides(tensor.sizes());
    shape.strides.assign(strides.begin(), strides.end());
  }
  return shape;
}

void add_shapes(Results& results, const Stack& stack) {
  const std::size_t first = stack.size() - results.size();
  for (std::size_t i = 0; i < results.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (value.isTensor()) {
      results[i].shapes.push_back(shape_of(value.toTensor()));
    } else {
      for_each_tensor(value,
                      [&](const at::Tensor& t) { results[i].shapes.push_back(shape_of(t)); });
    }
  }
}

bool writes_argument(const c10::FunctionSchema& schema, std::size_t argument) {
  const c10::Argument& info = schema.arguments()[argument];
  if (info.alias_info() != nullptr && info.alias_info()->isWrite()) {
    return true;
  }
  return schema.name() == "aten::native_batch_norm" && info.name().rfind("running_", 0) == 0;
}

bool needs_values(const c10::OperatorHandle& op, const Stack& arguments, const Results& results) {
  for (const Result& result : results) {
    if (!result.has_tensors) {
      return true;
    }
  }
  if (op.operator_name().name == "aten::index") {
    return has_mask(arguments);
  }
  return op.hasTag(at::Tag::dynamic_output_shape);
}

std::string KnownResults::key_of(const c10::OperatorHandle& op, const Stack& arguments) {
  const std::string& name = op.operator_name().name;
  // The size of a range follows from its floating point bounds.
  const bool has_float_sizes =
      name.find("space") != std::string::npos || name.find("range") != std::string::npos;
  std::ostringstream text;
  text << name << '.' << op.operator_name().overload_name << c10::get_default_dtype().name();
  for (const c10::IValue& value : arguments) {
    text << '|';
    if (value.isTensor() || value.isTensorList() || value.isOptionalTensorList()) {
      describe_tensors(text, value);
    } else if (value.isDouble() && !has_float_sizes) {
      text << "double";
    } else if (value.isGenerator() || value.isStream() || value.isStorage()) {
      text << "object";
    } else {
      text << value;
    }
  }
  return std::move(text).str();
}

std::optional<Results> KnownResults::find(const std::string& key) {
  const unisono::MutexLock lock(mutex_);
  const auto found = results_.find(key);
  return found == results_.end() ? std::nullopt : std::optional<Results>(found->second);
}

void KnownResults::add(const std::string& key, const Results& results) {
  const unisono::MutexLock lock(mutex_);
  results_.emplace(key, results);
}

}  // namespace sim
