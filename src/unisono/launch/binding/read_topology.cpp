#include "unisono/launch/binding/read_topology.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "unisono/base/error.h"
#include "unisono/base/loaded_library.h"
#include "unisono/launch/binding/topology.h"

namespace unisono::launch {
namespace {

struct Hwloc {
  decltype(&hwloc_topology_init) init;
  decltype(&hwloc_topology_set_components) set_components;
  decltype(&hwloc_topology_set_synthetic) set_synthetic;
  decltype(&hwloc_topology_load) load;
  decltype(&hwloc_topology_destroy) destroy;
  decltype(&hwloc_get_type_depth) depth_of;
  decltype(&hwloc_get_nbobjs_by_depth) count;
  decltype(&hwloc_get_obj_by_depth) object;
  decltype(&hwloc_bitmap_isset) contains;
};

Hwloc load_library() {
  try {
    const LoadedLibrary library("libhwloc.so.15");  // All of 2.x.
    Hwloc hwloc{};
    library.find("hwloc_topology_init", hwloc.init);
    library.find("hwloc_topology_set_components", hwloc.set_components);
    library.find("hwloc_topology_set_synthetic", hwloc.set_synthetic);
    library.find("hwloc_topology_load", hwloc.load);
    library.find("hwloc_topology_destroy", hwloc.destroy);
    library.find("hwloc_get_type_depth", hwloc.depth_of);
    library.find("hwloc_get_nbobjs_by_depth", hwloc.count);
    library.find("hwloc_get_obj_by_depth", hwloc.object);
    library.find("hwloc_bitmap_isset", hwloc.contains);
    return hwloc;
  } catch (const Error& error) {
    throw Error(
        error.code(),
        fmt::format("libhwloc, which knows cores and NUMA nodes, can't be loaded: {}; install it "
                    "(apt-get install libhwloc15)",
                    error.what()));
  }
}

// hwloc's plug-ins look for GPUs, PCI devices and X servers; they take longer than all the rest,
// and memory for good. It looks for them in init() alone.
// NOLINTBEGIN(concurrency-mt-unsafe): the agent has one thread.
class WithoutPlugins {
 public:
  WithoutPlugins() : is_users_(::getenv(kVariable) != nullptr) {
    if (!is_users_) {
      ::setenv(kVariable, "/nonexistent", 1);
    }
  }

  ~WithoutPlugins() {
    if (!is_users_) {
      ::unsetenv(kVariable);
    }
  }

  WithoutPlugins(const WithoutPlugins&) = delete;
  WithoutPlugins& operator=(const WithoutPlugins&) = delete;
  WithoutPlugins(WithoutPlugins&&) = delete;
  WithoutPlugins& operator=(WithoutPlugins&&) = delete;

 private:
  static constexpr const char* kVariable = "HWLOC_PLUGINS_PATH";
  bool is_users_;
};

// NOLINTEND(concurrency-mt-unsafe)

using Handle = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

Handle load_topology(const Hwloc& hwloc, const std::string& synthetic) {
  hwloc_topology_t topology = nullptr;
  const WithoutPlugins without_plugins;
  if (hwloc.init(&topology) != 0) {
    throw system_error("hwloc_topology_init", errno);
  }
  Handle handle(topology, hwloc.destroy);
  // It would run on each processor in turn to ask it; the kernel's files say as much.
  (void)hwloc.set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
  if (!synthetic.empty() && hwloc.set_synthetic(topology, synthetic.c_str()) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" describes no machine to hwloc", synthetic));
  }
  if (hwloc.load(topology) != 0) {
    throw system_error("libhwloc can't tell this machine's cores (hwloc_topology_load)", errno);
  }
  return handle;
}

// Null where the system does not tell of such.
hwloc_obj_t around(hwloc_obj_t object, hwloc_obj_type_t type) {
  while (object != nullptr && object->type != type) {
    object = object->parent;
  }
  return object;
}

// A machine may have further nodes, of slow or of fast memory, for the same processors.
int numa_node_of(const Hwloc& hwloc, hwloc_topology_t topology, unsigned processor) {
  const unsigned n_nodes = hwloc.count(topology, HWLOC_TYPE_DEPTH_NUMANODE);
  for (unsigned i = 0; i < n_nodes; ++i) {
    const hwloc_obj_t node = hwloc.object(topology, HWLOC_TYPE_DEPTH_NUMANODE, i);
    if (hwloc.contains(node->cpuset, processor) != 0) {
      return static_cast<int>(node->os_index);
    }
  }
  return 0;
}

}  // namespace

Topology read_topology(const std::string& synthetic) {
  const Hwloc hwloc = load_library();
  const Handle handle = load_topology(hwloc, synthetic);
  hwloc_topology_t topology = handle.get();
  const int depth = hwloc.depth_of(topology, HWLOC_OBJ_PU);
  Topology result;
  hwloc_obj_t last = nullptr;
  // In hwloc's logical order, neighbours are close.
  for (unsigned i = 0; i < hwloc.count(topology, depth); ++i) {
    const hwloc_obj_t processor = hwloc.object(topology, depth, i);
    const hwloc_obj_t core = around(processor, HWLOC_OBJ_CORE);
    if (core == nullptr || core != last) {
      const hwloc_obj_t socket = around(processor, HWLOC_OBJ_PACKAGE);
      result.cores.push_back(
          {.processors = {},
           .numa_node = numa_node_of(hwloc, topology, processor->os_index),
           .socket = socket == nullptr ? 0 : static_cast<int>(socket->logical_index)});
      last = core;
    }
    result.cores.back().processors.push_back(static_cast<int>(processor->os_index));
  }
  for (Core& core : result.cores) {
    std::ranges::sort(core.processors);
  }
  return result;
}

}  // namespace unisono::launch
