#include "unisono/torch/checkpoint/checkpoint.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <set>
#include <span>
#include <string>

#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/serialize/output-archive.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/file.h"
#include "unisono/comm/options.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono {
namespace {

/// Calls `save` on rank 0 and throws its error on every rank.
void do_on_rank_0(ProcessGroup& group,
                  const std::filesystem::path& path,
                  const std::function<void()>& save) {
  std::optional<Error> error;
  if (group.rank() == 0) {
    try {
      save();
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

}  // namespace

void share_outcome(ProcessGroup& group,
                   const std::optional<Error>& error,
                   std::optional<std::chrono::milliseconds> timeout) {
  const BroadcastOptions options{.timeout = timeout, .label = "outcome of saving"};
  std::string message = error ? error->what() : "";
  std::array<std::int64_t, 3> header{error ? 1 : 0,
                                     error ? static_cast<std::int64_t>(error->code()) : 0,
                                     static_cast<std::int64_t>(message.size())};
  group.broadcast(as_buffer(std::span<std::int64_t>(header)), options);
  if (header[0] == 0) {
    return;
  }
  message.resize(static_cast<std::size_t>(header[2]));
  group.broadcast({.data = message.data(), .count = header[2], .dtype = DType::kUInt8}, options);
  throw Error(static_cast<ErrorCode>(header[1]), message);
}

void save_archive(const std::filesystem::path& path,
                  const std::function<void(::torch::serialize::OutputArchive&)>& fill) {
  AtomicFile file(path);
  ::torch::serialize::OutputArchive archive;
  fill(archive);
  archive.save_to([&](const void* data, std::size_t n_bytes) {
    file.write({static_cast<const std::byte*>(data), n_bytes});
    return n_bytes;
  });
  file.commit();
}

void save_module(const ::torch::nn::Module& module, const std::filesystem::path& path) {
  save_archive(path, [&](::torch::serialize::OutputArchive& archive) { module.save(archive); });
}

void save_on_rank_0(ProcessGroup& group,
                    const ::torch::nn::Module& module,
                    const std::filesystem::path& path) {
  do_on_rank_0(group, path, [&] { save_module(module, path); });
}

void check_can_save_on_rank_0(ProcessGroup& group, const std::filesystem::path& path) {
  do_on_rank_0(group, path, [&] { const AtomicFile file(path); });
}

namespace {

constexpr const char* kWrapperPrefix = "module.";
constexpr std::size_t kMostNamed = 10;

// Removes the wrapper's prefix if all names have the prefix.
TensorState unwrapped(const TensorState& state) {
  const bool is_wrapped = std::all_of(state.begin(), state.end(), [](const auto& entry) {
    return entry.first.starts_with(kWrapperPrefix);
  });
  return is_wrapped ? state_below(state, kWrapperPrefix) : state;
}

std::vector<NamedTensor> tensors_of_module(const ::torch::nn::Module& module) {
  std::vector<NamedTensor> tensors = distinct_tensors(module.named_parameters());
  append_distinct(module.named_buffers(), "", tensors);
  return tensors;
}

std::string quote(const std::string& name) {
  return "\"" + name + "\"";
}

// Returns the state's value for a tensor of the module, under any of the tensor's names, or null.
const at::Tensor* value_in(const TensorState& state, const NamedTensor& own) {
  for (const std::string& name : names_of(own)) {
    if (const auto found = state.find(name); found != state.end()) {
      return &found->second;
    }
  }
  return nullptr;
}

// Appends the differences between the state's values and one tensor of the module.
void find_differences(const NamedTensor& own,
                      const TensorState& state,
                      std::vector<std::string>& problems) {
  std::string others;
  std::string first;
  for (const std::string& name : names_of(own)) {
    others += name == own.name ? "" : (others.empty() ? " (or " : ", ") + quote(name);
    const auto found = state.find(name);
    if (found == state.end()) {
      continue;
    }
    const at::Tensor& tensor = found->second;
    if (tensor.sizes() != own.tensor.sizes() || tensor.scalar_type() != own.tensor.scalar_type()) {
      problems.push_back(quote(name) + " is " + describe(tensor) + ", but the module has " +
                         describe(own.tensor));
      return;
    }
    if (!first.empty() && !is_bit_equal(tensor, state.at(first))) {
      problems.push_back(quote(first) + " and " + quote(name) +
                         " are one tensor of the module, but differ in the state; leave one out");
      return;
    }
    first = name;
  }
  if (first.empty()) {
    problems.push_back(quote(own.name) + others + (others.empty() ? "" : ")") + " is missing");
  }
}

std::vector<std::string> differences(const std::vector<NamedTensor>& own,
                                     const TensorState& state) {
  std::vector<std::string> problems;
  std::set<std::string> known;
  for (const NamedTensor& named : own) {
    find_differences(named, state, problems);
    for (const std::string& name : names_of(named)) {
      known.insert(name);
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!known.contains(name)) {
      problems.push_back(quote(name) + " is not the module's");
    }
  }
  return problems;
}

}  // namespace

TensorState module_state(const ::torch::nn::Module& module) {
  TensorState state;
  for (const NamedTensor& named : tensors_of_module(module)) {
    for (const std::string& name : names_of(named)) {
      state.emplace(name, named.tensor.detach());
    }
  }
  return state;
}

void load_module_state(::torch::nn::Module& module, const TensorState& state) {
  const std::vector<NamedTensor> own = tensors_of_module(module);
  // The module itself may have a child with the name of the wrapper's prefix.
  TensorState given = differences(own, state).empty() ? state : unwrapped(state);
  const std::vector<std::string> problems = differences(own, given);
  if (!problems.empty()) {
    std::string message = "load a module's state: ";
    for (std::size_t i = 0; i < std::min(problems.size(), kMostNamed); ++i) {
      message += (i == 0 ? "" : "; ") + problems[i];
    }
    if (problems.size() > kMostNamed) {
      message += "; and " + std::to_string(problems.size() - kMostNamed) + " more";
    }
    throw Error(ErrorCode::kInvalidArgument, message);
  }
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& named : own) {
    // A detached alias has the same memory and permits the copy.
    named.tensor.detach().copy_(*value_in(given, named));
  }
}

}  // namespace unisono
