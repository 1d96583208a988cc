#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/host.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::rendezvous {

using FakeVariables = std::map<std::string, std::string>;

/// Returns an environment with only these variables.
inline Environment fake(const FakeVariables& variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

/// Returns `variables` with `changes` added or replaced.
inline FakeVariables changed(FakeVariables variables, const FakeVariables& changes) {
  for (const auto& [name, value] : changes) {
    variables[name] = value;
  }
  return variables;
}

/// Returns `variables` without one variable.
inline FakeVariables without(FakeVariables variables, const std::string& name) {
  variables.erase(name);
  return variables;
}

// Environments of ranks under the launchers, for tests, with only the necessary variables.

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

/// Returns the error of find_launch_info() for the variables; "no error" after success.
inline std::string message_of(const FakeVariables& variables, int rank = -1, int world_size = -1) {
  try {
    (void)find_launch_info(fake(variables), rank, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

// A job of two ranks on this machine, for tests of the rendezvous.

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(30));
}

inline base::Config config_with(const std::string& secret = "") {
  base::Config config;
  config.secret = secret;
  config.stall = std::chrono::seconds(5);
  config.log_level = LogLevel::kError;
  return config;
}

inline LaunchInfo launch_info(int rank, std::uint16_t port) {
  return {.master_addr = "127.0.0.1", .master_port = port, .rank = rank, .world_size = 2};
}

/// A port that no other process gets during the object's lifetime, and on which a server can still
/// listen.
class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    const net::Address any = net::Address::loopback(0);
    EXPECT_EQ(::bind(fd_.get(), any.data(), any.size()), 0);
  }

  [[nodiscard]] std::uint16_t number() const { return net::local_address(fd_.get()).port(); }

 private:
  Fd fd_;
};

/// Returns an address that other machines can reach; empty if there is no such address.
inline std::string outer_ip() {
  for (const net::Interface& interface : net::interfaces()) {
    for (const net::Address& address : interface.addresses) {
      if (!address.is_loopback() && address.family() == AF_INET) {
        return address.ip();
      }
    }
  }
  return "";
}

}  // namespace unisono::rendezvous
