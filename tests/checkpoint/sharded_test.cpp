// Checkpoints that several ranks save and other ranks load.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/checkpoint/folder.h"
#include "unisono/checkpoint/manifest.h"
#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/safetensors.h"
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
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const TensorInfo kWeight{.name = "weight", .dtype = DType::kFloat32, .shape = {7, 5}};
const TensorInfo kStep{.name = "step", .dtype = DType::kInt64, .shape = {}};

std::size_t bytes_of(const TensorInfo& tensor, const Box& box) {
  return static_cast<std::size_t>(count_bytes(tensor.dtype, box.sizes).value());
}

// Byte i of the tensor is i + (i >> 8) + (i >> 16) + `salt`, so that long rows also differ.
std::vector<std::byte> rows(const TensorInfo& tensor, const Box& box, int salt) {
  std::vector<std::byte> bytes(bytes_of(tensor, box));
  const std::size_t row_bytes = box.sizes.empty() || box.sizes[0] == 0
                                    ? 0
                                    : bytes.size() / static_cast<std::size_t>(box.sizes[0]);
  const std::size_t start =
      box.sizes.empty() ? 0 : static_cast<std::size_t>(box.offsets[0]) * row_bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t at = start + i;
    bytes[i] = static_cast<std::byte>(at + (at >> 8) + (at >> 16) + static_cast<std::size_t>(salt));
  }
  return bytes;
}

class ShardedCheckpoints : public ::testing::Test {
 protected:
  [[nodiscard]] std::string root() const { return folder_.path() + "/checkpoints"; }

  // Each rank saves its rows of the weight. Rank 0 also saves the step.
  void save(ProcessGroup& group,
            std::int64_t step,
            int salt,
            const SaveOptions& options = {}) const {
    const Box own = rows_of_rank(kWeight.shape, group.rank(), group.world_size());
    const std::vector<std::byte> weight = rows(kWeight, own, salt);
    std::vector<TensorPart> parts{{.tensor = kWeight, .box = own, .bytes = weight}};
    const std::vector<std::byte> number = rows(kStep, {}, salt);
    if (group.rank() == 0) {
      parts.push_back({.tensor = kStep, .box = {}, .bytes = number});
    }
    EXPECT_EQ(save_checkpoint(group, root(), step, parts, options),
              root() + "/" + checkpoint_name(step));
  }

  void save_on(int world_size, std::int64_t step, int salt) const {
    run_ranks(one_node(world_size), [&](ProcessGroup& group) { save(group, step, salt); });
  }

  void expect_latest(std::int64_t step, int salt) const { expect_whole(root(), step, salt); }

  static void expect_whole(const std::string& path, std::int64_t step, int salt) {
    Reader reader(path);
    ASSERT_TRUE(reader.manifest());
    EXPECT_EQ(reader.manifest()->step, step);
    std::vector<std::byte> weight(bytes_of(kWeight, whole_box(kWeight.shape)));
    reader.read("weight", weight);
    EXPECT_EQ(weight, rows(kWeight, whole_box(kWeight.shape), salt));
    reader.verify();
  }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(root())) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  test::TemporaryFolder folder_;
};

struct Worlds {
  int n_saving;
  int n_loading;
};

class AnyWorlds : public ShardedCheckpoints, public ::testing::WithParamInterface<Worlds> {};

TEST_P(AnyWorlds, EachRankLoadsItsRowsOfWhatOthersSaved) {
  save_on(GetParam().n_saving, 100, 3);
  for (int rank = 0; rank < GetParam().n_loading; ++rank) {
    Reader reader(root());
    EXPECT_EQ(reader.manifest()->world_size, GetParam().n_saving);
    const Box own = rows_of_rank(kWeight.shape, rank, GetParam().n_loading);
    std::vector<std::byte> bytes(bytes_of(kWeight, own));
    reader.read("weight", own, bytes);
    EXPECT_EQ(bytes, rows(kWeight, own, 3));
    std::vector<std::byte> number(8);
    reader.read("step", number);
    EXPECT_EQ(number, rows(kStep, {}, 3));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds,
                         AnyWorlds,
                         ::testing::Values(Worlds{1, 4},
                                           Worlds{2, 1},
                                           Worlds{2, 4},
                                           Worlds{3, 2},
                                           Worlds{4, 3},
                                           Worlds{4, 8}),
                         [](const auto& worlds) {
                           return std::to_string(worlds.param.n_saving) + "_to_" +
                                  std::to_string(worlds.param.n_loading);
                         });

// Two ranks save 8 MiB. A quarter, as one of four ranks reads, costs no more than its blocks.
TEST_F(ShardedCheckpoints, ARankReadsOnlyItsBytes) {
  const TensorInfo large{.name = "large", .dtype = DType::kUInt8, .shape = {8, 1 << 20}};
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    const Box own = rows_of_rank(large.shape, group.rank(), 2);
    const std::vector<std::byte> bytes = rows(large, own, 0);
    save_checkpoint(
        group, root(), 1, std::vector<TensorPart>{{.tensor = large, .box = own, .bytes = bytes}});
  });
  Reader reader(root());
  const std::uint64_t n_before = reader.n_read();
  const Box own = rows_of_rank(large.shape, 1, 4);
  std::vector<std::byte> bytes(bytes_of(large, own));
  reader.read("large", own, bytes);
  EXPECT_EQ(bytes, rows(large, own, 0));
  EXPECT_LE(reader.n_read() - n_before, bytes.size() + 2 * kBlockBytes);
}

TEST_F(ShardedCheckpoints, OnlyTheLastAreKept) {
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    for (int step = 1; step <= 5; ++step) {
      save(group, step, step, {.keep_last = 2});
    }
  });
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000004", "step-00000005"));
  expect_latest(5, 5);
}

// After a resume from an earlier step, the new steps count, not the higher steps of an earlier run.
TEST_F(ShardedCheckpoints, HigherStepsDontPushOutTheNewOnes) {
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    for (const int step : {4, 8, 10, 12}) {
      save(group, step, step, {.keep_last = 0});
    }
    for (const int step : {5, 6, 7}) {
      save(group, step, step, {.keep_last = 3});
    }
  });
  EXPECT_THAT(list_steps(root()), ElementsAre(5, 6, 7, 8, 10, 12));
  expect_latest(7, 7);
}

TEST_F(ShardedCheckpoints, ADamagedCheckpointSaysWhichFile) {
  save_on(2, 10, 1);
  save_on(2, 20, 2);
  const std::string folder = root() + "/step-00000020";
  const std::string shard = folder + "/" + shard_name(1);
  const std::string bytes = test::read_file(shard);
  const std::string manifest = test::read_file(folder + "/" + kManifestName);
  const auto loading = [&] { expect_whole(folder, 20, 2); };
  const auto write = [](const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
  };

  for (std::size_t at = 0; at < bytes.size(); at += 7) {
    std::string damaged = bytes;
    damaged[at] ^= 0x10;
    write(shard, damaged);
    EXPECT_THAT(loading, throws_error(ErrorCode::kCorruptData, shard, "damaged")) << at;
  }
  write(shard, bytes.substr(0, bytes.size() / 2));
  EXPECT_THAT(loading, throws_error(ErrorCode::kCorruptData, shard, "truncated or replaced"));
  std::filesystem::remove(shard);
  EXPECT_THAT(loading,
              throws_error(ErrorCode::kCorruptData, "shard 2 of 2 is missing", shard_name(1)));
  write(shard, bytes);
  write(folder + "/" + kManifestName, manifest.substr(0, manifest.size() / 2));
  EXPECT_THAT(loading,
              throws_error(ErrorCode::kCorruptData, folder + "/" + kManifestName, "not JSON"));
  // A damaged byte could not be detected without a manifest.
  std::filesystem::remove(folder + "/" + kManifestName);
  EXPECT_THAT([&] { (void)Reader(folder); },
              throws_error(ErrorCode::kCorruptData, folder, "has no manifest.json"));
  // The previous checkpoint is unchanged.
  write(root() + "/latest", "step-00000010\n");
  expect_latest(10, 1);
}

// If only one of two files has the shape of the tensor, a hole could remain undetected.
TEST_F(ShardedCheckpoints, FilesOfDifferentWritersAreNoCheckpoint) {
  std::filesystem::create_directory(root());
  const auto write = [&](int rank, std::int64_t row, const std::string& shape) {
    const std::vector<std::byte> bytes(8);
    const std::string name = shard_name(rank);
    const FileSums sums = write_safetensors(
        root() + "/" + name,
        std::vector<TensorBytes>{
            {.info = {.name = "w", .dtype = DType::kFloat32, .shape = {1, 2}}, .bytes = bytes}},
        {{"DCP_SHARDING_INFO",
          "{\"w\":{\"saved_offsets\":[" + std::to_string(row) + ",0]" + shape + "}}"}});
    return Shard{.file = name, .sums = sums};
  };
  const auto reading = [&](const Shard& first, const Shard& second) {
    std::ofstream(root() + "/" + kManifestName)
        << encode_manifest({.release = "1", .step = 1, .world_size = 2, .shards = {first, second}});
    return [&] { (void)Reader(root()); };
  };
  EXPECT_THAT(reading(write(0, 0, ""), write(1, 1, R"(,"shape":[2,2])")),
              throws_error(ErrorCode::kCorruptData, shard_name(1), "\"w\"", "shape"));
  // The total number of elements equals the first shape, but there is a hole.
  EXPECT_THAT(reading(write(0, 1, ""), write(1, 5, R"(,"shape":[6,2])")),
              throws_error(ErrorCode::kCorruptData, "shape"));
  EXPECT_NO_THROW(reading(write(0, 0, R"(,"shape":[2,2])"), write(1, 1, R"(,"shape":[2,2])"))());
}

// Checks each rank's error and the remaining files if one rank can't save its part.
TEST_F(ShardedCheckpoints, WhatOneRankCantSaveNoRankHasSaved) {
  save_on(2, 10, 1);
  const auto errors_of_saving = [&](auto parts_of) {
    return errors_of_ranks(one_node(2), [&](ProcessGroup& group) {
      const std::vector<std::byte> bytes(140, std::byte{7});
      save_checkpoint(group, root(), 20, parts_of(group.rank(), bytes));
    });
  };
  using Parts = std::vector<TensorPart>;
  EXPECT_THAT(errors_of_saving([&](int rank, std::span<const std::byte> bytes) {
                return Parts{{.tensor = kWeight,
                              .box = rows_of_rank(kWeight.shape, rank, 2),
                              .bytes = rank == 0 ? bytes.first(60) : bytes}};
              }),
              Each(HasSubstr("rank 1 of 2: save a checkpoint: tensor \"weight\": 140 bytes are not "
                             "the part [3:7, 0:5] of f32[7, 5]")));
  EXPECT_THAT(errors_of_saving([&](int, std::span<const std::byte> bytes) {
                return Parts{{.tensor = kWeight, .box = whole_box(kWeight.shape), .bytes = bytes}};
              }),
              Each(AllOf(HasSubstr("rank 0 of 2"), HasSubstr("which overlap"))));
  EXPECT_THAT(errors_of_saving([&](int rank, std::span<const std::byte> bytes) {
                return Parts{{.tensor = kWeight,
                              .box = rows_of_rank(kWeight.shape, rank, 3),
                              .bytes = bytes.first(40)}};
              }),
              Each(HasSubstr("20 of 35 elements are present")));
  EXPECT_THAT(
      errors_of_saving([&](int rank, std::span<const std::byte> bytes) {
        TensorInfo tensor = kWeight;
        tensor.dtype = rank == 0 ? DType::kFloat32 : DType::kInt32;
        const Box own = rows_of_rank(kWeight.shape, rank, 2);
        return Parts{{.tensor = tensor, .box = own, .bytes = bytes.first(bytes_of(kWeight, own))}};
      }),
      Each(HasSubstr("is a part of i32[7, 5]")));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000010"));
  expect_latest(10, 1);
}

TEST_F(ShardedCheckpoints, DifferentStepsAreToldOnEachRank) {
  EXPECT_THAT(
      errors_of_ranks(one_node(3), [&](ProcessGroup& group) { save(group, group.rank() / 2, 0); }),
      Each(HasSubstr("rank 1 saves step 0, but rank 2 step 1")));
  EXPECT_FALSE(std::filesystem::exists(root()));
}

TEST_F(ShardedCheckpoints, RanksThatHaveOtherTensorsAreNamed) {
  const auto errors_with = [&](const std::vector<TensorInfo>& of_last_rank) {
    return errors_of_ranks(one_node(3), [&](ProcessGroup& group) {
      const std::vector<TensorInfo> common{kStep, kWeight};
      save_checkpoint(group, root(), 1, {}, {}, group.rank() == 2 ? of_last_rank : common);
    });
  };
  EXPECT_THAT(errors_with({kStep}),
              Each(HasSubstr("where rank 1 has \"weight\", f32[7, 5], rank 2 has no more")));
  TensorInfo other = kStep;
  other.shape = {2};
  EXPECT_THAT(errors_with({other, kWeight}),
              Each(HasSubstr("where rank 1 has \"step\", i64[], rank 2 has \"step\", i64[2]")));
  EXPECT_FALSE(std::filesystem::exists(root()));
}

TEST_F(ShardedCheckpoints, AFullDiskLeavesTheCheckpointBefore) {
  save_on(2, 10, 1);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const std::vector<std::string> errors = errors_of_ranks(one_node(2), [&](ProcessGroup& group) {
    const rlimit limit{64, old_limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    group.barrier();
    save(group, 20, 2);
  });
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(errors,
              Each(AllOf(HasSubstr("rank 0 of 2: save " + root() + "/step-00000020.part/shard-"),
                         HasSubstr("File too large"))));
  EXPECT_THAT(names(), ElementsAre("latest", "step-00000010"));
  expect_latest(10, 1);
}

TEST_F(ShardedCheckpoints, WhatIsSavedBehindIsWhatWasThereAtTheCall) {
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    Saver saver(group, root(), {.keep_last = 0});
    const Box own = rows_of_rank(kWeight.shape, group.rank(), 2);
    std::vector<std::byte> bytes;
    for (int step = 1; step <= 3; ++step) {
      bytes = rows(kWeight, own, step);
      const std::vector<TensorPart> parts{{.tensor = kWeight, .box = own, .bytes = bytes}};
      saver.save_async(step, parts);
      // The training continues with its own operations.
      std::fill(bytes.begin(), bytes.end(), std::byte{0});
      group.barrier();
    }
    saver.wait();
  });
  EXPECT_EQ(list_steps(root()).size(), 3U);
  expect_latest(3, 3);
}

TEST_F(ShardedCheckpoints, AFailureBehindIsThrownByTheNextCall) {
  (void)folder_.write("checkpoints", "a file, where a folder is to be");
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    Saver saver(group, root());
    saver.save_async(1, {});
    EXPECT_THAT([&] { saver.save_async(2, {}); },
                throws_error(ErrorCode::kSystem, "rank 0 of 2", root(), "can't make the folder"));
    EXPECT_NO_THROW(saver.wait()) << "it is thrown once";
    group.barrier();
    if (group.rank() == 0) {
      std::filesystem::remove(root());
    }
    group.barrier();
    saver.save(3, {});
  });
  EXPECT_THAT(list_steps(root()), ElementsAre(3));
}

TEST(DivideEvenly, EachElementIsSavedOnceAndRanksWriteEquallyMuch) {
  std::vector<TensorInfo> tensors;
  for (const std::int64_t n_rows : {3, 1000, 7, 100'000, 2, 90'000, 1, 5}) {
    tensors.push_back(
        {.name = std::to_string(n_rows), .dtype = DType::kFloat32, .shape = {n_rows}});
  }
  tensors.push_back({.name = "number", .dtype = DType::kInt64, .shape = {}});
  for (int world_size = 1; world_size <= 5; ++world_size) {
    std::int64_t most = 0;
    std::vector<std::int64_t> n_saved(tensors.size(), 0);
    for (int rank = 0; rank < world_size; ++rank) {
      const std::vector<std::optional<Box>> boxes = divide_evenly(tensors, rank, world_size);
      std::int64_t n_own = 0;
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const std::int64_t n_elems = boxes[i] ? count_elements(boxes[i]->sizes).value() : 0;
        n_saved[i] += n_elems;
        n_own += n_elems;
      }
      most = std::max(most, n_own);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      EXPECT_EQ(n_saved[i], count_elements(tensors[i].shape)) << tensors[i].name;
    }
    EXPECT_LE(most, 191'018 / world_size + 1010);
  }
}

TEST(DivideEvenly, RowsThatEndWithinAByteAreNotSplit) {
  const ElementType fours = ElementType::named("F4").value();
  for (const std::int64_t n_columns : {999, 1000}) {
    const std::vector<TensorInfo> tensors{
        {.name = "a", .dtype = fours, .shape = {1000, n_columns}}};
    const std::optional<Box> box = divide_evenly(tensors, 0, 2).front();
    ASSERT_TRUE(box);
    EXPECT_EQ(box->sizes[0], n_columns == 999 ? 1000 : 500);
    EXPECT_EQ(divide_evenly(tensors, 1, 2).front().has_value(), n_columns == 1000);
  }
}

}  // namespace
}  // namespace unisono::checkpoint
