#pragma once

#include <gtest/gtest.h>

#include "sim_device/sim_device.h"

namespace sim {

/// Fixture of tests on simulated devices. After each test all streams are idle, no task has left an
/// error, and the checker has found no race; otherwise the test fails. A test that provokes a race
/// or an error takes it with take_races() or take_errors().
class QuietEnd : public ::testing::Test {
 protected:
  QuietEnd() { install(); }

  void TearDown() override { expect_quiet(); }

  /// The same check, for fixtures with another base class.
  static void expect_quiet() {
    synchronize_all();
    for (const auto& error : take_errors()) {
      ADD_FAILURE() << "A task on a simulated device failed: " << error;
    }
    for (const auto& race : take_races()) {
      ADD_FAILURE() << "Race on a simulated device: " << race;
    }
  }
};

}  // namespace sim
