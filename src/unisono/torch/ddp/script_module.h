#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/api/module.h>

#include "unisono/comm/process_group.h"

namespace unisono {

/// A module of TorchScript with the members of torch::nn modules, for DistributedDataParallel.
/// Copies share the module.
///
///     unisono::ScriptModule script(torch::jit::load("model.pt"));
///     unisono::DistributedDataParallel model(script, group);
///     const at::Tensor result = model(images).toTensor();
///
/// A module made by torch::jit::freeze() has no trainable parameters.
class ScriptModule {
 public:
  /// A parameter or buffer, with the interface of an item of torch::nn's dictionaries.
  class Item {
   public:
    /// `key` is the name in the module, such as "fc.weight".
    Item(std::string key, at::Tensor value) : key_(std::move(key)), value_(std::move(value)) {}

    [[nodiscard]] const std::string& key() const { return key_; }

    [[nodiscard]] const at::Tensor& value() const { return value_; }

   private:
    std::string key_;
    at::Tensor value_;
  };

  /// Shares the parameters and buffers with `module`.
  explicit ScriptModule(torch::jit::Module module)
      : module_(std::make_shared<torch::jit::Module>(std::move(module))) {}

  /// The wrapped module of TorchScript.
  [[nodiscard]] torch::jit::Module& script() { return *module_; }

  [[nodiscard]] const torch::jit::Module& script() const { return *module_; }

  /// Calls the method "forward". Arguments may have any type that converts to an IValue.
  template <class... Args>
  c10::IValue forward(Args&&... args) {
    return module_->forward({c10::IValue(std::forward<Args>(args))...});
  }

  [[nodiscard]] std::vector<Item> named_parameters() const;

  [[nodiscard]] std::vector<Item> named_buffers() const;

  [[nodiscard]] std::vector<at::Tensor> parameters() const;

  [[nodiscard]] bool is_training() const { return module_->is_training(); }

  void train(bool on = true) { module_->train(on); }

  void eval() { module_->eval(); }

  void zero_grad(bool set_to_none = true);

  // Pointer-like access as in torch::nn module holders, so that DistributedDataParallel wraps both
  // in the same way.
  ScriptModule* operator->() { return this; }

  const ScriptModule* operator->() const { return this; }

  ScriptModule& operator*() { return *this; }

  const ScriptModule& operator*() const { return *this; }

 private:
  std::shared_ptr<torch::jit::Module> module_;  // shared by all copies
};

/// Writes the module on rank 0, in the format that torch::jit::load() reads in C++ and Python. The
/// file appears complete or not at all. A collective operation: if rank 0 fails to write the file,
/// every rank throws rank 0's error.
void save_on_rank_0(ProcessGroup& group,
                    const ScriptModule& module,
                    const std::filesystem::path& path);

}  // namespace unisono
