#include "unisono/transport/shm/text_note.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace unisono::shm {
namespace {

TEST(TextNote, HasNothingBeforeTheFirstWrite) {
  EXPECT_FALSE(std::make_unique<TextNote>()->read().has_value());
}

TEST(TextNote, HasWhatWasWrittenLast) {
  const auto note = std::make_unique<TextNote>();
  note->write(1, "something longer");
  note->write(0, "short");
  const std::optional<TextNote::Content> content = note->read();
  ASSERT_TRUE(content.has_value());
  EXPECT_EQ(content->number, 0U);
  EXPECT_EQ(content->text, "short");
}

TEST(TextNote, KeepsTheBeginningOfALongText) {
  const auto note = std::make_unique<TextNote>();
  note->write(1, std::string(2 * TextNote::kMaxBytes, 'x'));
  EXPECT_EQ(note->read().value().text, std::string(TextNote::kMaxBytes, 'x'));
}

TEST(TextNote, CutsNoCharacter) {
  const auto note = std::make_unique<TextNote>();
  const std::string text(TextNote::kMaxBytes - 1, 'x');
  note->write(1, text + "\u20ac");
  EXPECT_EQ(note->read().value().text, text);
}

TEST(TextNote, IsNeverReadInPart) {
  const auto note = std::make_unique<TextNote>();
  std::atomic<bool> has_ended = false;
  std::jthread writer([&] {
    for (std::uint64_t number = 0; number < 20000; ++number) {
      note->write(number, std::string(number % 100, static_cast<char>('a' + number % 26)));
    }
    has_ended = true;
  });
  while (!has_ended) {
    if (const std::optional<TextNote::Content> content = note->read()) {
      const std::uint64_t number = content->number;
      ASSERT_EQ(content->text, std::string(number % 100, static_cast<char>('a' + number % 26)));
    }
  }
}

}  // namespace
}  // namespace unisono::shm
