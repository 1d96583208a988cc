#include "unisono/transport/shm/seqlock_text.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace unisono::shm {
namespace {

TEST(SeqlockText, HasNothingBeforeTheFirstWrite) {
  EXPECT_FALSE(std::make_unique<SeqlockText>()->read().has_value());
}

TEST(SeqlockText, HasWhatWasWrittenLast) {
  const auto note = std::make_unique<SeqlockText>();
  note->write(1, "something longer");
  note->write(0, "short");
  const std::optional<SeqlockText::Content> content = note->read();
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(content->number, 0U);
  EXPECT_EQ(content->text, "short");
}

TEST(SeqlockText, KeepsTheBeginningOfALongText) {
  const auto note = std::make_unique<SeqlockText>();
  note->write(1, std::string(2 * SeqlockText::kMaxBytes, 'x'));
  EXPECT_EQ(note->read().value().text, std::string(SeqlockText::kMaxBytes, 'x'));
}

TEST(SeqlockText, CutsNoCharacter) {
  const auto note = std::make_unique<SeqlockText>();
  const std::string text(SeqlockText::kMaxBytes - 1, 'x');
  note->write(1, text + "\u20ac");
  EXPECT_EQ(note->read().value().text, text);
}

TEST(SeqlockText, IsNeverReadInPart) {
  const auto note = std::make_unique<SeqlockText>();
  std::atomic<bool> has_ended = false;
  std::jthread writer([&] {
    for (std::uint64_t number = 0; number < 20000; ++number) {
      note->write(number, std::string(number % 100, static_cast<char>('a' + number % 26)));
    }
    has_ended = true;
  });
  while (!has_ended) {
    if (const std::optional<SeqlockText::Content> content = note->read()) {
      const std::uint64_t number = content->number;
      ASSERT_EQ(content->text, std::string(number % 100, static_cast<char>('a' + number % 26)));
    }
  }
}

}  // namespace
}  // namespace unisono::shm
