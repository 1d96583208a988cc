#include "unisono/torch/parallel/pipeline/transfers.h"

#include <array>
#include <stdexcept>
#include <thread>

#include <gtest/gtest.h>

#include "unisono/comm/work_state.h"
#include "unisono/peers/long_waits.h"
#include "unisono/transport/descriptor.h"

namespace unisono::parallel {
namespace {

constexpr std::chrono::seconds kDeadline{20};

// Parts of messages in flight, by number.
class MailboxTest : public ::testing::Test {
 protected:
  [[nodiscard]] Work part(std::uint64_t number) const {
    return Work(std::make_shared<comm::WorkState>(id_of(number), waits_));
  }

  [[nodiscard]] bool is_waited_for(std::uint64_t number) const {
    return waits_->waited_since(id_of(number)).has_value();
  }

  [[nodiscard]] bool becomes_waited_for(std::uint64_t number) const {
    const auto end = std::chrono::steady_clock::now() + kDeadline;
    while (!is_waited_for(number) && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return is_waited_for(number);
  }

  // A thread that waits for messages of slots 0 and 1 until the end of the test.
  void start_wait() {
    waiter_ = std::jthread([this] { mailbox_.wait(std::array<std::size_t, 2>{0, 1}); });
  }

  Mailbox mailbox_{3};
  std::jthread waiter_;

 private:
  static transport::WaitId id_of(std::uint64_t number) {
    return {.group = 1, .is_message = true, .sequence = number};
  }

  std::shared_ptr<peers::BlockedThreads> waits_ = std::make_shared<peers::BlockedThreads>();
};

TEST_F(MailboxTest, ALongWaitNamesThePartsInFlightForItsSlotsAlone) {
  mailbox_.expect(0, part(10));
  mailbox_.expect(1, part(11));
  mailbox_.expect(2, part(12));
  start_wait();
  EXPECT_TRUE(becomes_waited_for(10));
  EXPECT_TRUE(becomes_waited_for(11));
  EXPECT_FALSE(is_waited_for(12));
  mailbox_.put(2, {});
  waiter_.join();
  EXPECT_FALSE(is_waited_for(10));
  EXPECT_FALSE(is_waited_for(11));
}

TEST_F(MailboxTest, ALongWaitNamesAPartThatStartsDuringIt) {
  mailbox_.expect(0, part(10));
  start_wait();
  ASSERT_TRUE(becomes_waited_for(10));
  mailbox_.expect(1, part(11));
  EXPECT_TRUE(becomes_waited_for(11));
  mailbox_.put(1, {});
}

TEST_F(MailboxTest, AnErrorEndsTheWaitAndIsThrown) {
  std::jthread failing([this] {
    // The error usually arrives during the wait. An earlier error ends the wait too.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    mailbox_.fail(std::make_exception_ptr(std::runtime_error("the first")));
    mailbox_.fail(std::make_exception_ptr(std::runtime_error("a later one")));
  });
  try {
    mailbox_.wait(std::array<std::size_t, 1>{0});
    ADD_FAILURE() << "the wait ended without an error";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the first");
  }
}

}  // namespace
}  // namespace unisono::parallel
