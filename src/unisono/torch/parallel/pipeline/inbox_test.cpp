// What others hear of a wait for messages.
#include "unisono/torch/parallel/pipeline/inbox.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "unisono/comm/work.h"
#include "unisono/comm/work_state.h"
#include "unisono/health/wait_id.h"
#include "unisono/health/work_waits.h"

namespace unisono::parallel {
namespace {

constexpr std::chrono::seconds kDeadline{20};

// Parts of messages that are on their way, by numbers.
class InboxTest : public ::testing::Test {
 protected:
  [[nodiscard]] Work part(std::uint64_t number) const {
    return Work(std::make_shared<comm::WorkState>(id_of(number), waits_));
  }

  [[nodiscard]] bool is_waited_for(std::uint64_t number) const {
    return waits_->waited_since(id_of(number)).has_value();
  }

  [[nodiscard]] bool comes_to_be_waited_for(std::uint64_t number) const {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!is_waited_for(number) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return is_waited_for(number);
  }

  // A thread that waits for something to come to places 0 and 1, until the end of the test.
  void start_wait() {
    waiter_ = std::jthread([this] { inbox_.wait(std::array<std::size_t, 2>{0, 1}); });
  }

  Inbox inbox_{3};
  std::jthread waiter_;

 private:
  static health::WaitId id_of(std::uint64_t number) {
    return {.group = 1, .is_message = true, .sequence = number};
  }

  std::shared_ptr<health::WorkWaits> waits_ = std::make_shared<health::WorkWaits>();
};

TEST_F(InboxTest, ALongWaitIsForAllThatIsOnItsWayToTheMissingPlacesAndForNothingElse) {
  inbox_.expect(0, part(10));
  inbox_.expect(1, part(11));
  inbox_.expect(2, part(12));
  start_wait();
  EXPECT_TRUE(comes_to_be_waited_for(10));
  EXPECT_TRUE(comes_to_be_waited_for(11));
  EXPECT_FALSE(is_waited_for(12));
  inbox_.put(2, {});
  waiter_.join();
  EXPECT_FALSE(is_waited_for(10));
  EXPECT_FALSE(is_waited_for(11));
}

TEST_F(InboxTest, APartThatBeginsDuringALongWaitIsWaitedForToo) {
  inbox_.expect(0, part(10));
  start_wait();
  ASSERT_TRUE(comes_to_be_waited_for(10));
  inbox_.expect(1, part(11));
  EXPECT_TRUE(comes_to_be_waited_for(11));
  inbox_.put(1, {});
}

TEST_F(InboxTest, AnErrorEndsTheWaitAndIsThrown) {
  std::jthread failing([this] {
    // In the wait, most often; what fails before it ends it, too.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    inbox_.fail(std::make_exception_ptr(std::runtime_error("the first")));
    inbox_.fail(std::make_exception_ptr(std::runtime_error("a later one")));
  });
  try {
    inbox_.wait(std::array<std::size_t, 1>{0});
    ADD_FAILURE() << "the wait has ended without an error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the first");
  }
}

}  // namespace
}  // namespace unisono::parallel
