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

/// A module of TorchScript with the members that torch::nn's modules have, for
/// DistributedDataParallel. Copies share the module.
///
///     unisono::ScriptModule script(torch::jit::load("model.pt"));
///     unisono::DistributedDataParallel model(script, group);
///     const at::Tensor result = model(images).toTensor();
///
/// A module that torch::jit::freeze() made has no parameters left to be trained.
class ScriptModule {
 public:
  /// A parameter or buffer, as an item of torch::nn's dictionaries.
  class Item {
   public:
    Item(std::string key, at::Tensor value) : key_(std::move(key)), value_(std::move(value)) {}

    [[nodiscard]] const std::string& key() const { return key_; }

    [[nodiscard]] const at::Tensor& value() const { return value_; }

   private:
    std::string key_;
    at::Tensor value_;
  };

  explicit ScriptModule(torch::jit::Module module)
      : module_(std::make_shared<torch::jit::Module>(std::move(module))) {}

  /// The module itself.
  [[nodiscard]] torch::jit::Module& script() { return *module_; }

  [[nodiscard]] const torch::jit::Module& script() const { return *module_; }

  /// The method "forward". Arguments are whatever an IValue can be made of.
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

  // As torch::nn's holders of modules, so that both can be wrapped alike.
  ScriptModule* operator->() { return this; }

  const ScriptModule* operator->() const { return this; }

  ScriptModule& operator*() { return *this; }

  const ScriptModule& operator*() const { return *this; }

 private:
  std::shared_ptr<torch::jit::Module> module_;  // of all copies
};

/// Writes what torch::jit::load() reads, in C++ and Python, on rank 0; the file is there whole or
/// not at all. A collective operation: if it can't be written every rank throws rank 0's error.
void save_on_rank_0(ProcessGroup& group,
                    const ScriptModule& module,
                    const std::filesystem::path& path);

}  // namespace unisono
