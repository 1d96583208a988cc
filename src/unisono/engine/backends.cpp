#include "unisono/engine/backends.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/error.h"

namespace unisono::engine {
namespace {

constexpr std::array kBackends{
    Backend{.name = "unisono",
            .other_names = {"native", "tcp"},
            .help = "shared memory inside a node, tcp between nodes",
            .is_built_in = true,
            .has_cpu = true,
            .has_cuda = false},
    Backend{.name = "gloo",
            .other_names = {},
            .help = "PyTorch's; unisono does what it does on CPUs",
            .is_built_in = false,
            .has_cpu = true,
            .has_cuda = false},
    Backend{.name = "mpi",
            .other_names = {},
            .help = "unisono does what it does on CPUs, and needs no MPI",
            .is_built_in = false,
            .has_cpu = true,
            .has_cuda = false},
    Backend{.name = "nccl",
            .other_names = {},
            .help = "for GPUs; copy tensors to the CPU and use unisono",
            .is_built_in = false,
            .has_cpu = false,
            .has_cuda = true},
};

constexpr std::array<std::string_view, 16> kOperations{"all_reduce",
                                                       "all_reduce_coalesced",
                                                       "reduce",
                                                       "reduce_scatter",
                                                       "reduce_scatter_coalesced",
                                                       "broadcast",
                                                       "all_gather",
                                                       "all_gather_coalesced",
                                                       "gather",
                                                       "scatter",
                                                       "all_to_all",
                                                       "barrier",
                                                       "monitored_barrier",
                                                       "send",
                                                       "recv",
                                                       "batch"};

bool has_name(const Backend& backend, std::string_view name) {
  const auto& others = backend.other_names;
  const bool is_other = std::find(others.begin(), others.end(), name) != others.end();
  return backend.name == name || (!name.empty() && is_other);
}

}  // namespace

std::span<const Backend> backends() {
  return kBackends;
}

const Backend& find_backend(std::string_view name) {
  const auto* const found =
      std::find_if(kBackends.begin(), kBackends.end(), [&](const Backend& backend) {
        return has_name(backend, name);
      });
  if (found == kBackends.end()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("there is no backend \"{}\"; there is unisono (also called native, tcp)",
                    name));
  }
  if (!found->is_built_in) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("backend {} is not built in: {}", found->name, found->help));
  }
  return *found;
}

std::span<const std::string_view> operation_names() {
  return kOperations;
}

}  // namespace unisono::engine
