// The checkpoint from which each rank resumes if the latest checkpoint is incomplete.
#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/latest.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/save.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::checkpoint {
namespace {

using test::errors_of_ranks;
using test::one_node;
using test::run_ranks;
using test::throws_error;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kRanks = 3;

// Saves the steps 10, 20 and 30 of two ranks.
class Resuming : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ranks(one_node(2), [&](ProcessGroup& group) {
      for (const int step : {10, 20, 30}) {
        const TensorInfo tensor{
            .name = std::to_string(group.rank()), .dtype = DType::kUInt8, .shape = {100}};
        const std::vector<std::byte> bytes(100, static_cast<std::byte>(step));
        const std::vector<TensorPart> parts{
            {.tensor = tensor, .box = whole_box(tensor.shape), .bytes = bytes}};
        save_checkpoint(group, root(), step, parts);
      }
    });
  }

  [[nodiscard]] const std::string& root() const { return folder_.path(); }

  [[nodiscard]] static std::string step_folder(int step) {
    return "step-000000" + std::to_string(step);
  }

  [[nodiscard]] std::string shard_of(int step) const {
    return root() + "/" + step_folder(step) + "/" + shard_name(1);
  }

  // Returns the lines of the log. `path` receives the path that all ranks return.
  [[nodiscard]] std::string take(std::optional<std::string>& path) const {
    std::vector<std::optional<std::string>> paths;
    std::mutex mutex;
    ::testing::internal::CaptureStderr();
    run_ranks(one_node(kRanks), [&](ProcessGroup& group) {
      std::optional<std::string> own = latest_checkpoint(group, root());
      const std::lock_guard lock(mutex);
      paths.push_back(std::move(own));
    });
    std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(paths, AllOf(SizeIs(kRanks), Each(paths.front())));
    path = paths.front();
    return log;
  }

  // Expects that all ranks and a single process select this step, and that one line contains all
  // texts.
  void expect_taken(int step, const std::vector<std::string>& texts) const {
    std::optional<std::string> path;
    const std::string log = take(path);
    EXPECT_EQ(path, root() + "/" + step_folder(step));
    EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), texts.empty() ? 0 : 1) << log;
    for (const std::string& text : texts) {
      EXPECT_THAT(log, HasSubstr(text));
    }
    EXPECT_EQ(latest_checkpoint(root()), path);
    EXPECT_EQ(resolve(root()), path);
  }

  // Expects this error if only the latest checkpoint is allowed.
  void expect_refused(const std::string& reason) const {
    EXPECT_THAT(errors_of_ranks(one_node(kRanks),
                                [&](ProcessGroup& group) {
                                  (void)latest_checkpoint(group, root(), {.allow_older = false});
                                }),
                AllOf(SizeIs(kRanks), Each(AllOf(HasSubstr(root()), HasSubstr(reason)))));
  }

  test::TemporaryFolder folder_;
};

struct Damage {
  std::string name;
  std::function<void(const std::string& folder, const std::string& shard)> act;
  std::string reason;
  bool is_seen_by_lengths = true;
};

void PrintTo(const Damage& damage, std::ostream* out) {
  *out << damage.name;
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

const std::vector<Damage>& damages() {
  static const std::vector<Damage> all{
      {"ShardMissing",
       [](const auto&, const auto& shard) { std::filesystem::remove(shard); },
       "there is no such file"},
      {"ShardCut",
       [](const auto&, const auto& shard) { std::filesystem::resize_file(shard, 50); },
       "truncated or replaced"},
      {"ByteFlipped",
       [](const auto&, const auto& shard) {
         std::string bytes = test::read_file(shard);
         bytes.back() ^= 1;
         overwrite(shard, bytes);
       },
       "damaged",
       false},
      {"ManifestMissing",
       [](const auto& folder, const auto&) { std::filesystem::remove(folder + "/manifest.json"); },
       "has no manifest.json"},
      {"ManifestEmpty",
       [](const auto& folder, const auto&) { overwrite(folder + "/manifest.json", ""); },
       "is not JSON"},
      {"FolderEmpty",
       [](const auto& folder, const auto&) {
         std::filesystem::remove_all(folder);
         std::filesystem::create_directory(folder);
       },
       "has no manifest.json"},
      {"FileInPlaceOfTheFolder",
       [](const auto& folder, const auto&) {
         std::filesystem::remove_all(folder);
         overwrite(folder, "x");
       },
       "has no manifest.json"}};
  return all;
}

class DamagedLatest : public Resuming, public ::testing::WithParamInterface<Damage> {};

TEST_P(DamagedLatest, IsPassedOverForTheNewestWholeOne) {
  const Damage& damage = GetParam();
  damage.act(root() + "/" + step_folder(30), shard_of(30));
  expect_taken(20, {"uses checkpoint step-00000020", "step-00000030", damage.reason});
  expect_refused(damage.reason);
  if (damage.is_seen_by_lengths) {
    EXPECT_EQ(Reader(root()).path(), root() + "/step-00000020");
  } else {
    EXPECT_THAT([&] { Reader(root()).verify(); },
                throws_error(ErrorCode::kCorruptData, shard_of(30), damage.reason));
  }
}

TEST_P(DamagedLatest, IsPassedOverWithoutTheFileLatestToo) {
  std::filesystem::remove(root() + "/latest");
  expect_taken(30, {});
  for (const int step : {30, 20}) {
    GetParam().act(root() + "/" + step_folder(step), shard_of(step));
  }
  expect_taken(10, {"step-00000030", "step-00000020", GetParam().reason});
}

TEST_P(DamagedLatest, IsAnErrorWhereNoneIsWhole) {
  for (const int step : {10, 20, 30}) {
    GetParam().act(root() + "/" + step_folder(step), shard_of(step));
  }
  EXPECT_THAT(errors_of_ranks(one_node(kRanks),
                              [&](ProcessGroup& group) { (void)latest_checkpoint(group, root()); }),
              Each(AllOf(HasSubstr("has no whole checkpoint"),
                         HasSubstr("step-00000010"),
                         HasSubstr("step-00000030"),
                         HasSubstr(GetParam().reason))));
  EXPECT_THAT([&] { (void)resolve(root()); },
              throws_error(ErrorCode::kCorruptData, root(), "has no whole checkpoint"));
}

INSTANTIATE_TEST_SUITE_P(Damages,
                         DamagedLatest,
                         ::testing::ValuesIn(damages()),
                         [](const auto& damage) { return damage.param.name; });

TEST_F(Resuming, LatestIsReadWithAnyLineEndAndMark) {
  for (const std::string& text : {std::string("step-00000030"),
                                  std::string("step-00000030\r\n"),
                                  std::string("\xef\xbb\xbfstep-00000030\r\n\r\n"),
                                  std::string("step-00000030 \n\n")}) {
    (void)folder_.write("latest", text);
    expect_taken(30, {});
  }
}

TEST_F(Resuming, AFileLatestThatNamesNoneIsPassedOver) {
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {"", "latest is empty"},
           {"\r\n", "latest is empty"},
           {"step-00000040\n", "latest names step-00000040, which does not exist"},
           {"..", "latest names \"..\", which is not a checkpoint"},
           {"step-00000010/../step-00000020", "which is not a checkpoint"},
           {std::string("\xff\xfes\0t\0", 6), "UTF-16"},
           {std::string(14, '\0'), "NUL"},
           {"step-00000010\nstep-00000020\n", "latest has 2 lines"},
           {std::string(5000, 'x'), "latest has 5000 bytes"}}) {
    (void)folder_.write("latest", text);
    expect_taken(30, {"uses checkpoint step-00000030", reason});
    expect_refused(reason);
  }
}

TEST_F(Resuming, TheOneThatLatestNamesIsTakenThoughNewerOnesAreThere) {
  (void)folder_.write("latest", "step-00000020\n");
  expect_taken(20, {"uses checkpoint step-00000020", "an earlier one than step-00000030"});
  std::filesystem::remove(shard_of(20));
  // The training of step 30 was abandoned, so step 30 comes after the older step.
  expect_taken(10, {"step-00000020", "an earlier one than step-00000030"});
  std::filesystem::remove(shard_of(10));
  std::optional<std::string> path;
  EXPECT_THAT(take(path), AllOf(HasSubstr("step-00000010"), Not(HasSubstr("earlier"))));
  EXPECT_EQ(path, root() + "/step-00000030");
}

TEST_F(Resuming, WithoutCheckpointsATrainingBeginsUnlessLatestNamesOne) {
  for (const int step : {10, 20, 30}) {
    std::filesystem::remove_all(root() + "/" + step_folder(step));
  }
  EXPECT_THAT([&] { (void)latest_checkpoint(root()); },
              throws_error(ErrorCode::kCorruptData, "latest names step-00000030"));
  std::filesystem::remove(root() + "/latest");
  std::optional<std::string> path = "x";
  EXPECT_EQ(take(path), "");
  EXPECT_EQ(path, std::nullopt);
}

// An older release must not resume from an older checkpoint that it can read.
TEST_F(Resuming, ACheckpointOfALaterReleaseIsNotPassedOver) {
  overwrite(root() + "/step-00000030/manifest.json",
            R"({"crc32":"5a1dc9f0","manifest":{"version":2}})");
  EXPECT_THAT(errors_of_ranks(one_node(kRanks),
                              [&](ProcessGroup& group) { (void)latest_checkpoint(group, root()); }),
              Each(AllOf(HasSubstr("version 2"), HasSubstr("step-00000030"))));
}

}  // namespace
}  // namespace unisono::checkpoint
