#include "unisono/rendezvous/launchers/kubeflow_launcher.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {

bool is_kubeflow_pod(const Environment& environment) {
  return environment("PET_NODE_RANK").has_value();
}

MasterHost kubeflow_master_host(VariableReader& reader, const Launcher& /*launcher*/) {
  // Or "auto", "cpu", "gpu": as many as torchrun finds fit.
  const std::string n_ranks =
      reader.is_set("PET_NPROC_PER_NODE") ? reader.text("PET_NPROC_PER_NODE") : "1";
  if (n_ranks.find_first_not_of("0123456789") == std::string::npos && n_ranks != "1") {
    reader.complain(
        fmt::format("PET_NPROC_PER_NODE=\"{}\" asks for that many ranks in each pod, and this "
                    "program was started once: start it by torchrun, or ask for 1 (numProcPerNode)",
                    n_ranks));
  }
  return {.address = reader.host("PET_MASTER_ADDR")};
}

std::optional<std::uint16_t> kubeflow_master_port(VariableReader& reader,
                                                  const Launcher& /*launcher*/) {
  return reader.port("PET_MASTER_PORT");
}

}  // namespace unisono::rendezvous
