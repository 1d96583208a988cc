// Every node refuses an address that no machine can have, at once and with an example of a valid
// form. The refusal does not depend on the way the address is given, or on a secret.
#include <chrono>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "processes/spawn.h"

namespace unisono::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A retry would take longer than this limit. The limit leaves time for a loaded machine.
constexpr std::chrono::seconds kWithoutRetry{5};
// Placeholder at the end of an argument for the node's number.
constexpr std::string_view kNode = "NODE";

struct BadAddress {
  std::string address;
  std::string form;  // Part of the error for MASTER_ADDR, --master-addr and --hosts.
  // Part of the error for arguments that accept a port behind the address.
  std::string with_port = form;

  friend std::ostream& operator<<(std::ostream& out, const BadAddress& bad) {
    return out << bad.address;
  }
};

class BadAddresses : public ::testing::TestWithParam<BadAddress> {
 protected:
  // Runs the command as two nodes, with and without a secret.
  static void expect_refusal(const std::vector<std::string>& command,
                             const Variables& variables,
                             const std::string& shown,
                             const std::string& form) {
    for (const bool has_secret : {false, true}) {
      Processes processes;
      for (const char* rank : {"0", "1"}) {
        Variables all = variables;
        all.insert({{"RANK", rank}, {"WORLD_SIZE", "2"}, {"HOME", "/nothing"}});
        if (has_secret) {
          all["UNISONO_SECRET"] = "a secret of this test";
        }
        std::vector<std::string> words = command;
        for (std::string& word : words) {
          word = word.ends_with(kNode) ? word.substr(0, word.size() - kNode.size()) + rank : word;
        }
        (void)processes.start(words, all);
      }
      for (const ProcessResult& result : processes.finish(kWithoutRetry)) {
        EXPECT_THAT(result.exit_code, ::testing::AnyOf(1, 2));
        EXPECT_THAT(result.err, AllOf(HasSubstr(shown), HasSubstr(form))) << command.back();
        EXPECT_THAT(result.err, Not(HasSubstr("secret")));
      }
    }
  }

  static void expect_refusal_by_run(std::vector<std::string> options,
                                    const std::string& shown,
                                    const std::string& form) {
    options.insert(options.begin(), {UNISONO_PROGRAM, "run"});
    options.emplace_back("true");
    expect_refusal(options, {}, shown, form);
  }
};

TEST_P(BadAddresses, AreRefusedAsMasterAddr) {
  const auto& [address, form, with_port] = GetParam();
  expect_refusal({UNISONO_RANK_PROGRAM, "hello"},
                 {{"MASTER_ADDR", address}, {"MASTER_PORT", "29574"}},
                 "MASTER_ADDR=\"" + address + "\"",
                 form);
}

TEST_P(BadAddresses, AreRefusedInAnInitMethod) {
  const auto& [address, form, with_port] = GetParam();
  const std::string method = "tcp://" + address + "?world_size=2&rank=";
  if (with_port.empty()) {
    return;  // A host with a port is valid for this argument.
  }
  expect_refusal({UNISONO_RANK_PROGRAM, "hello", method + "NODE"}, {}, method, with_port);
}

TEST_P(BadAddresses, AreRefusedByTheLauncher) {
  const auto& [address, form, with_port] = GetParam();
  for (const std::vector<std::string>& nodes :
       {std::vector<std::string>{"--nnodes", "2", "--node-rank", "NODE"},
        std::vector<std::string>{"--nnodes", "1:2"},
        std::vector<std::string>{}}) {
    std::vector<std::string> options = nodes;
    options.insert(options.end(), {"--master-addr", address});
    expect_refusal_by_run(options, "--master-addr " + address, form);
    if (!with_port.empty()) {
      options = nodes;
      options.insert(options.end(), {"--rdzv-endpoint", address});
      expect_refusal_by_run(options, "--rdzv-endpoint " + address, with_port);
    }
  }
}

TEST_P(BadAddresses, AreRefusedAsHosts) {
  const auto& [address, form, with_port] = GetParam();
  if (!with_port.empty()) {
    expect_refusal_by_run({"--hosts", address + ",localhost"}, address, with_port);
    expect_refusal_by_run({"--hosts", "localhost,me@" + address}, address, with_port);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All,
    BadAddresses,
    ::testing::Values(BadAddress{"::1:29574", "29574 as ", "write [::1]:29574"},
                      BadAddress{"fe80::1", "write fe80::1%eth0"},
                      BadAddress{"[fe80::1]", "write fe80::1%eth0"},
                      BadAddress{"fe80::1%no-such-0", "no interface \"no-such-0\""},
                      BadAddress{"256.1.1.1", "four numbers from 0 to 255"},
                      BadAddress{"[::1", "write [::1]"},
                      BadAddress{"alpha:29574", "write alpha, and give 29574 as ", ""},
                      BadAddress{"[::1]:29574", "write ::1, and give 29574 as ", ""},
                      BadAddress{"alpha/beta", "\"/"}));

}  // namespace
}  // namespace unisono::test
