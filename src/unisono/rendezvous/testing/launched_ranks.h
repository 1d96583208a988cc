#pragma once

#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/find_launch_info.h"

namespace unisono::rendezvous {

using FakeVariables = std::map<std::string, std::string>;

/// An environment for tests, with these variables and no others.
inline Environment fake(const FakeVariables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

/// `variables`, with `changes` in place of what is there.
inline FakeVariables changed(FakeVariables variables, const FakeVariables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

/// `variables` without one.
inline FakeVariables without(FakeVariables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// For tests: a rank as the launcher shows it, by the variables that are needed and no others.

inline const FakeVariables kSlurm{{"SLURM_PROCID", "5"},
                                  {"SLURM_NTASKS", "8"},
                                  {"SLURM_LOCALID", "1"},
                                  {"SLURM_STEP_NODELIST", "node[003-004,7]"},
                                  {"SLURM_JOB_ID", "4540"}};
inline const FakeVariables kOpenMpiOnOneNode{{"OMPI_COMM_WORLD_RANK", "1"},
                                             {"OMPI_COMM_WORLD_SIZE", "4"},
                                             {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                             {"PMIX_RANK", "1"},
                                             {"PMIX_NAMESPACE", "393740289"}};
inline const FakeVariables kHydra{
    {"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "2"}, {"MPI_LOCALNRANKS", "4"}};
inline const FakeVariables kOpenMpiOnNodes =
    changed(kOpenMpiOnOneNode, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
inline const FakeVariables kTwoOfANode{{"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
inline const FakeVariables kHydraOnNodes = changed(changed(kHydra, kTwoOfANode), {{"PMI_FD", "6"}});
inline const FakeVariables kTrainer{{"PET_NODE_RANK", "1"},
                                    {"PET_NNODES", "2"},
                                    {"PET_NPROC_PER_NODE", "1"},
                                    {"PET_MASTER_ADDR", "mnist-node-0-0.mnist"},
                                    {"PET_MASTER_PORT", "29400"}};

/// What find_launch_info() says of them that is wrong; "no error" where nothing is.
inline std::string message_of(const FakeVariables& variables, int rank = -1, int world_size = -1) {
  try {
    (void)find_launch_info(fake(variables), rank, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

}  // namespace unisono::rendezvous
