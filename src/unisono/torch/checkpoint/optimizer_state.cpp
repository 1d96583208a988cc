#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include "unisono/base/error.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

// An optimizer's state is accessible in LibTorch only through an archive. The archive names
// parameters by their addresses; this file replaces the addresses by the module's names.

namespace unisono {
namespace {

using ::torch::serialize::InputArchive;
using ::torch::serialize::OutputArchive;

const std::string kStatePrefix = "state.";
const std::string kOptionsPrefix = "options.";

[[noreturn]] void fail(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "an optimizer's state: " + problem);
}

std::string key_of(const at::Tensor& parameter) {
  return std::to_string(reinterpret_cast<std::size_t>(parameter.unsafeGetTensorImpl()));
}

std::string options_prefix(std::size_t group) {
  return kOptionsPrefix + std::to_string(group) + ".";
}

struct NamedParameter {
  std::string name;
  std::vector<std::string> aliases;
  at::Tensor tensor;
  bool is_repeated;  // The optimizer lists the tensor earlier as well.
};

// Returns the optimizer's parameters by group, under the module's names.
std::vector<std::vector<NamedParameter>> named_groups(const ::torch::optim::Optimizer& optimizer,
                                                      const std::vector<NamedTensor>& parameters) {
  std::map<const void*, NamedTensor> names;
  for (const NamedTensor& parameter : parameters) {
    names.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter);
  }
  std::set<const void*> known;
  std::vector<std::vector<NamedParameter>> groups;
  for (const ::torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    groups.emplace_back();
    for (const at::Tensor& parameter : group.params()) {
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end()) {
        fail("it has a parameter, " + describe(parameter) + ", that is not the module's");
      }
      groups.back().push_back({.name = found->second.name,
                               .aliases = found->second.aliases,
                               .tensor = parameter,
                               .is_repeated = !known.insert(found->first).second});
    }
  }
  return groups;
}

// Goes through memory, because an archive can be read only after it has been written. Tensors
// return to `device`, or to the devices that they were on.
InputArchive reopened(const OutputArchive& archive,
                      std::optional<at::Device> device = std::nullopt) {
  std::stringstream stream;
  const_cast<OutputArchive&>(archive).save_to(
      stream);  // save_to() is not const, but does not change the archive
  InputArchive read;
  read.load_from(stream, device);
  return read;
}

// Converts a value to a tensor. Numbers become tensors without axes, pairs of numbers tensors with
// one axis. Tensors with the form of converted numbers are refused, so that the conversion can be
// reversed. Returns an undefined tensor for an unset value.
at::Tensor tensor_of(const c10::IValue& value, const std::string& name) {
  if (value.isNone()) {
    return {};
  }
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    const bool is_like_number = tensor.dim() == 0 && (tensor.scalar_type() == at::kLong ||
                                                      tensor.scalar_type() == at::kDouble ||
                                                      tensor.scalar_type() == at::kBool);
    if (!is_like_number) {
      return tensor;
    }
  } else if (value.isInt()) {
    return number_tensor(value.toInt());
  } else if (value.isDouble()) {
    return number_tensor(value.toDouble());
  } else if (value.isBool()) {
    return at::full({}, value.toBool(), at::TensorOptions(at::kBool));
  } else if (value.isTuple() && value.toTupleRef().elements().size() == 2 &&
             value.toTupleRef().elements()[0].isDouble()) {
    const auto& pair = value.toTupleRef().elements();
    return at::stack({number_tensor(pair[0].toDouble()), number_tensor(pair[1].toDouble())});
  }
  fail("\"" + name + "\" is a " + value.tagKind() + ", which can't be saved under a name");
}

c10::IValue value_of(const at::Tensor& tensor, bool is_option) {
  if (tensor.dim() == 0 && tensor.scalar_type() == at::kLong) {
    return tensor.item<std::int64_t>();
  }
  if (tensor.dim() == 0 && tensor.scalar_type() == at::kDouble) {
    return tensor.item<double>();
  }
  if (tensor.dim() == 0 && tensor.scalar_type() == at::kBool) {
    return tensor.item<bool>();
  }
  if (is_option && tensor.dim() == 1 && tensor.size(0) == 2 &&
      tensor.scalar_type() == at::kDouble) {
    return std::tuple<double, double>(tensor[0].item<double>(), tensor[1].item<double>());
  }
  return tensor;
}

void add_values(InputArchive& archive, const std::string& prefix, TensorState& into) {
  for (const std::string& key : archive.keys()) {
    c10::IValue value;
    archive.read(key, value);
    if (const at::Tensor tensor = tensor_of(value, prefix + key); tensor.defined()) {
      into.emplace(prefix + key, tensor);
    }
  }
}

// Returns the entries of the state that belong to the parameter: the parameter's name followed by a
// single key.
TensorState state_of(const TensorState& state, const std::string& parameter) {
  TensorState own;
  for (const auto& [key, tensor] : state_below(state, kStatePrefix + parameter + ".")) {
    if (key.find('.') == std::string::npos) {
      own.emplace(key, tensor);
    }
  }
  return own;
}

// Returns the parameter's name in the state. Another version of the program may have registered the
// parameter's names in another order.
std::string name_in(const TensorState& state, const NamedParameter& parameter) {
  if (state_of(state, parameter.name).empty()) {
    for (const std::string& alias : parameter.aliases) {
      if (!state_of(state, alias).empty()) {
        return alias;
      }
    }
  }
  return parameter.name;
}

void write_values(OutputArchive& archive,
                  const std::string& key,
                  const TensorState& values,
                  bool is_option) {
  OutputArchive inner(archive.compilation_unit());
  for (const auto& [name, tensor] : values) {
    inner.write(name, value_of(tensor, is_option));
  }
  archive.write(key, inner);
}

std::string names_of(const TensorState& state) {
  std::string names;
  for (const auto& [name, tensor] : state) {
    names += (names.empty() ? "" : ", ") + name;
  }
  return names.empty() ? "nothing" : names;
}

// Marks the state's values under the parameter's other names as known. Throws if the values differ.
void check_aliases(const TensorState& state,
                   const NamedParameter& parameter,
                   const std::string& name,
                   std::set<std::string>& known) {
  const TensorState own = state_of(state, name);
  for (const std::string& alias : parameter.aliases) {
    for (const auto& [key, tensor] : state_of(state, alias)) {
      const std::string full_name = kStatePrefix + alias + "." + key;
      const auto same = own.find(key);
      if (same == own.end() || same->second.sizes() != tensor.sizes() ||
          same->second.scalar_type() != tensor.scalar_type() ||
          !is_bit_equal(same->second, tensor)) {
        fail("\"" + full_name + "\" and \"" + kStatePrefix + name + "." + key +
             "\" belong to one parameter, but differ; leave one out");
      }
      known.insert(full_name);
    }
  }
}

// Throws unless `state` could belong to the optimizer with the present state `current`.
void check_state(const std::vector<std::vector<NamedParameter>>& groups,
                 const TensorState& current,
                 const TensorState& state) {
  std::set<std::string> known;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    const TensorState wanted = state_below(current, options_prefix(group));
    const TensorState given = state_below(state, options_prefix(group));
    if (names_of(wanted) != names_of(given)) {
      fail("group " + std::to_string(group) + " was saved with the options " + names_of(given) +
           ", but the optimizer has " + names_of(wanted));
    }
    for (const auto& [name, tensor] : given) {
      known.insert(options_prefix(group) + name);
    }
    for (const NamedParameter& parameter : groups[group]) {
      const std::string name_of_all = name_in(state, parameter);
      for (const auto& [key, tensor] : state_of(state, name_of_all)) {
        const std::string name = kStatePrefix + name_of_all + "." + key;
        known.insert(name);
        if (tensor.dim() > 0 && tensor.sizes() != parameter.tensor.sizes()) {
          fail("\"" + name + "\" is " + describe(tensor) + ", but the parameter is " +
               describe(parameter.tensor));
        }
      }
      check_aliases(state, parameter, name_of_all, known);
    }
  }
  for (const auto& [name, tensor] : state) {
    if (!known.contains(name)) {
      fail("\"" + name + "\" belongs to no parameter and no group of the optimizer");
    }
  }
}

// Copies the state with the strides of the parameter, as the optimizer would have allocated it:
// steps then access memory in the same order and produce the same bits.
TensorState laid_out_as(const at::Tensor& parameter, const TensorState& state) {
  TensorState laid_out;
  for (const auto& [key, tensor] : state) {
    if (tensor.dim() == 0 || tensor.sizes() != parameter.sizes()) {
      laid_out.emplace(key, tensor);
      continue;
    }
    at::Tensor copy = at::empty_like(parameter, parameter.options().dtype(tensor.scalar_type()));
    laid_out.emplace(key, copy.detach().copy_(tensor));
  }
  return laid_out;
}

}  // namespace

TensorState optimizer_state(const ::torch::optim::Optimizer& optimizer,
                            const ::torch::nn::Module& module) {
  return optimizer_state(optimizer, distinct_tensors(module.named_parameters()));
}

TensorState optimizer_state(const ::torch::optim::Optimizer& optimizer,
                            const std::vector<NamedTensor>& parameters) {
  const std::vector<std::vector<NamedParameter>> groups = named_groups(optimizer, parameters);
  OutputArchive written;
  optimizer.save(written);
  InputArchive archive = reopened(written, at::kCPU);
  InputArchive states;
  archive.read("state", states);
  InputArchive group_archives;
  archive.read("param_groups", group_archives);
  TensorState state;
  for (std::size_t group = 0; group < groups.size(); ++group) {
    InputArchive group_archive;
    group_archives.read("param_groups/" + std::to_string(group), group_archive);
    InputArchive options;
    group_archive.read("options", options);
    add_values(options, options_prefix(group), state);
    for (const NamedParameter& parameter : groups[group]) {
      InputArchive own;
      if (states.try_read(key_of(parameter.tensor), own)) {
        add_values(own, kStatePrefix + parameter.name + ".", state);
      }
    }
  }
  return state;
}

void load_optimizer_state(::torch::optim::Optimizer& optimizer,
                          const ::torch::nn::Module& module,
                          const TensorState& state) {
  load_optimizer_state(optimizer, distinct_tensors(module.named_parameters()), state);
}

void load_optimizer_state(::torch::optim::Optimizer& optimizer,
                          const std::vector<NamedTensor>& parameters,
                          const TensorState& state) {
  const std::vector<std::vector<NamedParameter>> groups = named_groups(optimizer, parameters);
  check_state(groups, optimizer_state(optimizer, parameters), state);
  OutputArchive archive;
  archive.write("pytorch_version", c10::IValue("1.5.0"));
  OutputArchive states(archive.compilation_unit());
  OutputArchive group_archives(archive.compilation_unit());
  group_archives.write("param_groups/size",
                       number_tensor(static_cast<std::int64_t>(groups.size())));
  for (std::size_t group = 0; group < groups.size(); ++group) {
    OutputArchive group_archive(archive.compilation_unit());
    group_archive.write("params/size",
                        number_tensor(static_cast<std::int64_t>(groups[group].size())));
    for (std::size_t i = 0; i < groups[group].size(); ++i) {
      const NamedParameter& parameter = groups[group][i];
      // LibTorch moves each state out of the archive: a repeated parameter would receive a null
      // state.
      const std::string key = parameter.is_repeated ? "0" : key_of(parameter.tensor);
      group_archive.write("params/" + std::to_string(i), c10::IValue(key));
      if (parameter.is_repeated) {
        continue;
      }
      if (const TensorState own = state_of(state, name_in(state, parameter)); !own.empty()) {
        write_values(states, key, laid_out_as(parameter.tensor, own), false);
      }
    }
    write_values(group_archive, "options", state_below(state, options_prefix(group)), true);
    group_archives.write("param_groups/" + std::to_string(group), group_archive);
  }
  archive.write("state", states);
  archive.write("param_groups", group_archives);
  InputArchive read = reopened(archive);
  try {
    optimizer.load(read);
  } catch (const c10::Error& error) {
    fail(error.what_without_backtrace());
  }
  // LibTorch keeps the old state of a parameter that has no saved state.
  for (const std::vector<NamedParameter>& group : groups) {
    for (const NamedParameter& parameter : group) {
      if (state_of(state, name_in(state, parameter)).empty()) {
        optimizer.state().erase(parameter.tensor.unsafeGetTensorImpl());
      }
    }
  }
}

}  // namespace unisono
