#include "unisono/rendezvous/key_value_space/key_value_space_access.h"

#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {
namespace {

constexpr const char* kPmiFd = "PMI_FD";
constexpr const char* kPmixJob = "PMIX_NAMESPACE";

// The launcher of a launcher may have left its own variables here: the numbers tell.
bool is_equal(const Environment& environment, const char* name, int number) {
  VariableReader reader(environment);
  return reader.optional_int(name, 0) == number;
}

// Nothing where it is not this process's.
std::optional<KeyValueSpaceAccess> find_pmi(const Environment& environment,
                                            int rank,
                                            int world_size) {
  if (!environment(kPmiFd) || !is_equal(environment, "PMI_RANK", rank) ||
      !is_equal(environment, "PMI_SIZE", world_size)) {
    return std::nullopt;
  }
  VariableReader reader(environment);
  const std::optional<int> fd = reader.optional_int(kPmiFd, 0);
  return fd ? KeyValueSpaceAccess{.kind = KeyValueSpaceKind::kPmi, .pmi_fd = *fd}
            : KeyValueSpaceAccess{.problem = reader.problems()};
}

std::optional<KeyValueSpaceAccess> find_pmix(const Environment& environment, int rank) {
  if (!environment(kPmixJob) || !is_equal(environment, "PMIX_RANK", rank)) {
    return std::nullopt;
  }
  return KeyValueSpaceAccess{.kind = KeyValueSpaceKind::kPmix};
}

std::string describe_absence(const Launcher& launcher) {
  if (std::string_view(launcher.name) == "Slurm") {
    return "srun gives these tasks no key space; srun --mpi=pmix or --mpi=pmi2 does, and the ranks "
           "agree on a secret by themselves";
  }
  return std::string(launcher.command) + " has set neither " + kPmiFd + " nor " + kPmixJob +
         " for this rank, so there is no key space for the ranks to agree in";
}

}  // namespace

const char* to_string(KeyValueSpaceKind kind) noexcept {
  switch (kind) {
    case KeyValueSpaceKind::kPmi:
      return "PMI";
    case KeyValueSpaceKind::kPmix:
      return "PMIx";
    case KeyValueSpaceKind::kNone:
      break;
  }
  return "none";
}

KeyValueSpaceAccess find_key_space(const Environment& environment,
                                   const Launcher* launcher,
                                   int rank,
                                   int world_size) {
  VariableReader reader(environment);
  if (launcher == nullptr || !launcher->has_key_space ||
      launcher->master_host(reader, *launcher).is_on_one_node) {
    return {};
  }
  // Others, Slurm among them, may speak both.
  const bool speaks_pmi_first = std::string_view(launcher->rank) == "PMI_RANK";
  std::optional<KeyValueSpaceAccess> found =
      speaks_pmi_first ? find_pmi(environment, rank, world_size) : find_pmix(environment, rank);
  if (!found) {
    found =
        speaks_pmi_first ? find_pmix(environment, rank) : find_pmi(environment, rank, world_size);
  }
  return found.value_or(KeyValueSpaceAccess{.problem = describe_absence(*launcher)});
}

}  // namespace unisono::rendezvous
