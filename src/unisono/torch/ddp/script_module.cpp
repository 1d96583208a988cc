#include "unisono/torch/ddp/script_module.h"

#include <exception>
#include <optional>
#include <span>
#include <sstream>

#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/module_call.h"

namespace unisono {
namespace {

template <class List>
std::vector<ScriptModule::Item> items_of(const List& list) {
  std::vector<ScriptModule::Item> items;
  for (const auto& named : list) {
    items.emplace_back(named.name, named.value);
  }
  return items;
}

// The contained value is shared with other values and may be changed in the same way.
void collect_within(const c10::IValue& value, std::vector<at::Tensor*>& tensors) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): LibTorch has no other access in place
  collect_tensors(const_cast<c10::IValue&>(value), tensors);
}

}  // namespace

void collect_tensors(c10::IValue& value, std::vector<at::Tensor*>& tensors) {
  if (value.isTensor()) {
    tensors.push_back(&value.toTensor());
  } else if (value.isTuple()) {
    for (const c10::IValue& element : value.toTupleRef().elements()) {
      collect_within(element, tensors);
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      collect_within(element, tensors);
    }
  } else if (value.isGenericDict()) {
    // A dictionary returns its values as copies.
    throw Error(
        ErrorCode::kInvalidArgument,
        "DistributedDataParallel: the script's forward() returns a dictionary, whose tensors "
        "can't be reached in place: return them as a tuple or list");
  }
}

std::vector<ScriptModule::Item> ScriptModule::named_parameters() const {
  return items_of(module_->named_parameters());
}

std::vector<ScriptModule::Item> ScriptModule::named_buffers() const {
  return items_of(module_->named_buffers());
}

std::vector<at::Tensor> ScriptModule::parameters() const {
  std::vector<at::Tensor> parameters;
  for (const at::Tensor& parameter : module_->parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

void ScriptModule::zero_grad(bool set_to_none) {
  for (const at::Tensor& parameter : module_->parameters()) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (set_to_none) {
      gradient.reset();
    } else if (gradient.defined()) {
      gradient.detach_().zero_();
    }
  }
}

void save_on_rank_0(ProcessGroup& group,
                    const ScriptModule& module,
                    const std::filesystem::path& path) {
  std::optional<Error> error;
  if (group.rank() == 0) {
    try {
      std::ostringstream archive;
      module.script().save(archive);
      AtomicFile file(path);
      file.write(std::as_bytes(std::span(archive.view())));
      file.commit();
    } catch (const Error& failure) {
      error = failure;
    } catch (const std::exception& failure) {
      // The other ranks wait for the outcome, so every exception must be shared.
      error =
          Error(ErrorCode::kInvalidArgument, "save " + path.string() + ": " + error_text(failure));
    }
  }
  share_outcome(group, error);
}

}  // namespace unisono
