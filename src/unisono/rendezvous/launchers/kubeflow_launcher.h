#pragma once

#include <cstdint>
#include <optional>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {

// The Kubeflow Trainer row of launchers(). Its pods have torchrun's options as PET_*, and nothing
// else: a program that is started without torchrun is the one rank of its pod. (The older
// PyTorchJob sets RANK and WORLD_SIZE itself.)

[[nodiscard]] bool is_kubeflow_pod(const Environment& environment);

/// PET_MASTER_ADDR. Complains where a pod is to have several ranks.
[[nodiscard]] MasterHost kubeflow_master_host(VariableReader& reader, const Launcher& launcher);

[[nodiscard]] std::optional<std::uint16_t> kubeflow_master_port(VariableReader& reader,
                                                                const Launcher& launcher);

}  // namespace unisono::rendezvous
