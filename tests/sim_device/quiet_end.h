#pragma once

#include <gtest/gtest.h>

#include "sim_device/sim_device.h"

namespace sim {

/// Fails the current test unless no task has left an error and the checker has found no race. First
/// blocks until all streams are idle. For the end of tests whose fixture is not QuietEnd.
inline void expect_quiet() {
  synchronize_all();
  for (const auto& error : take_errors()) {
    ADD_FAILURE() << "A task on a simulated device failed: " << error;
  }
  for (const auto& race : take_races()) {
    ADD_FAILURE() << "Race on a simulated device: " << race;
  }
}

/// Fixture of tests on simulated devices: installs the devices, and calls expect_quiet() after each
/// test. A test that provokes a race or an error takes it with take_races() or take_errors().
class QuietEnd : public ::testing::Test {
 protected:
  QuietEnd() { install(); }

  void TearDown() override { expect_quiet(); }
};

}  // namespace sim
