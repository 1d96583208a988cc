#include "unisono/checkpoint/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/checkpoint/latest.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace {

// Replaces the system call in the functions below; returns 0 or an error number.
std::function<int(int descriptor)> instead_of_fsync;
// If false, renameat2() reports that the file system can't exchange names. The file system of this
// test can.
bool can_exchange = true;
// Called before each rename().
std::function<void()> look_around;

int outcome(int error_number) {
  errno = error_number;
  return error_number == 0 ? 0 : -1;
}

}  // namespace

// Replaces the function of the C library.
extern "C" int fsync(int descriptor) {
  if (instead_of_fsync) {
    return outcome(instead_of_fsync(descriptor));
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

extern "C" int renameat2(
    int from_folder, const char* from, int to_folder, const char* to, unsigned int flags) noexcept {
  return can_exchange
             ? static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags))
             : outcome(EINVAL);
}

extern "C" int rename(const char* from, const char* to) noexcept {
  if (look_around) {
    look_around();
  }
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace unisono::checkpoint {
namespace {

using test::throws_error;
using ::testing::ElementsAre;

bool is_folder(int descriptor, const std::string& path) {
  struct stat opened{};
  struct stat named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

class Folders : public ::testing::Test {
 protected:
  void TearDown() override {
    instead_of_fsync = nullptr;
    look_around = nullptr;
    can_exchange = true;
  }

  void save(std::int64_t step, const std::string& content = "x") const {
    begin_checkpoint(root(), step);
    const std::string part = checkpoint_name(step) + ".part/";
    (void)folder_.write(part + "shard.safetensors", content);
    FileSummer summer;
    summer.add(std::as_bytes(std::span(content)));
    (void)folder_.write(
        part + kManifestName,
        encode_manifest({.release = "1",
                         .step = step,
                         .world_size = 1,
                         .shards = {{.file = "shard.safetensors", .sums = summer.sums()}}}));
    commit_checkpoint(root(), step);
  }

  [[nodiscard]] const std::string& root() const { return folder_.path(); }

  test::TemporaryFolder folder_;
};

TEST(CheckpointNames, AreThoseOfSteps) {
  EXPECT_EQ(checkpoint_name(100), "step-00000100");
  EXPECT_EQ(step_of("step-00000100"), 100);
  EXPECT_EQ(step_of("step-1234567890"), 1'234'567'890);
  for (const char* name :
       {"step-100", "step-000000100", "step-0000010x", "step--0000100", "latest", "step-", ""}) {
    EXPECT_EQ(step_of(name), std::nullopt) << name;
  }
}

TEST_F(Folders, TheLatestIsTheOneThatWasSavedLast) {
  EXPECT_EQ(latest_checkpoint(root()), std::nullopt);
  EXPECT_EQ(latest_checkpoint(root() + "/missing"), std::nullopt);
  const std::string file = folder_.write("model.safetensors", "");
  EXPECT_EQ(resolve(file), file);
  save(20);
  save(10);
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010");
  EXPECT_EQ(resolve(root()), root() + "/step-00000010");
  EXPECT_THAT(list_steps(root()), ElementsAre(10, 20));
  // A writer has died before its first write of "latest".
  std::filesystem::remove(root() + "/latest");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000020");
}

TEST_F(Folders, WhatDeadWritersLeftIsNoCheckpointAndGoes) {
  save(10);
  (void)folder_.write("step-00000020.part/shard.safetensors", "half");
  (void)folder_.write("step-00000005.removed/shard.safetensors", "half");
  (void)folder_.write("step-00000007.part.old/shard.safetensors", "half");
  (void)folder_.write("step-00000010.old/shard.safetensors", "half");
  (void)folder_.write("mine.part/notes", "keep");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010");
  EXPECT_THAT(list_steps(root()), ElementsAre(10));
  save(30);
  EXPECT_THAT(folder_.names(),
              ElementsAre("latest", "mine.part", "step-00000010", "step-00000030"));
}

TEST_F(Folders, ACheckpointOfTheSameStepIsReplaced) {
  save(10, "old");
  save(10, "new");
  EXPECT_EQ(test::read_file(root() + "/step-00000010/shard.safetensors"), "new");
  EXPECT_THAT(folder_.names(), ElementsAre("latest", "step-00000010"));
}

TEST_F(Folders, OnFileSystemsThatCantExchangeTheOldOneStaysUntilTheNewOneHasItsName) {
  can_exchange = false;
  save(10, "old");
  bool is_old_there = false;
  instead_of_fsync = [&](int descriptor) {
    if (is_folder(descriptor, root()) && !is_old_there) {
      EXPECT_EQ(test::read_file(root() + "/step-00000010/shard.safetensors"), "new");
      is_old_there = test::read_file(root() + "/step-00000010.old/shard.safetensors") == "old";
    }
    return 0;
  };
  save(10, "new");
  EXPECT_TRUE(is_old_there);
  EXPECT_EQ(test::read_file(root() + "/step-00000010/shard.safetensors"), "new");
  EXPECT_THAT(folder_.names(), ElementsAre("latest", "step-00000010"));
}

// Checked at each of a writer's steps, so the result holds wherever the writer dies.
TEST_F(Folders, OnFileSystemsThatCantExchangeReadersFindOneAtEveryMoment) {
  can_exchange = false;
  save(9, "other");
  save(10, "old");
  std::vector<std::string> seen;
  const auto look = [&] {
    const std::string path = latest_checkpoint(root()).value();
    seen.push_back(test::read_file(path + "/shard.safetensors") + " in " +
                   std::filesystem::path(path).filename().string());
    EXPECT_EQ(find_checkpoint(root(), 10), path);
    EXPECT_THAT(list_steps(root()), ElementsAre(9, 10));
  };
  look_around = [&] { EXPECT_NO_THROW(look()); };
  instead_of_fsync = [&](int /*descriptor*/) {
    look();
    return 0;
  };
  save(10, "new");
  EXPECT_THAT(seen, ::testing::Contains("old in step-00000010"));
  EXPECT_THAT(seen, ::testing::Contains("old in step-00000010.old"));
  EXPECT_EQ(seen.back(), "new in step-00000010");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010");
}

TEST_F(Folders, AWriterThatDiedBetweenTwoNamesLeavesTheOldOne) {
  save(10, "old");
  std::filesystem::rename(root() + "/step-00000010", root() + "/step-00000010.old");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010.old");
  std::filesystem::remove(root() + "/latest");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010.old");
  begin_checkpoint(root(), 20);
  EXPECT_EQ(test::read_file(root() + "/step-00000010/shard.safetensors"), "old");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010");
}

TEST_F(Folders, NamesAreOnTheDiskBeforeAnythingGoesOrIsPointedTo) {
  save(10, "old");
  std::vector<std::string> pointers;
  instead_of_fsync = [&](int descriptor) {
    if (is_folder(descriptor, root())) {
      pointers.push_back(test::read_file(root() + "/latest"));
      EXPECT_EQ(test::read_file(root() + "/step-00000020/shard.safetensors"), "x");
    }
    return 0;
  };
  save(20);
  EXPECT_THAT(pointers, ElementsAre("step-00000010\n", "step-00000020\n"));

  std::vector<bool> are_both_there;
  instead_of_fsync = [&](int descriptor) {
    if (is_folder(descriptor, root())) {
      are_both_there.push_back(
          std::filesystem::exists(root() + "/step-00000010.part/shard.safetensors"));
    }
    return 0;
  };
  save(10, "new");
  EXPECT_THAT(are_both_there, ElementsAre(true, false));
}

TEST_F(Folders, AMadeFolderIsOnTheDiskWithItsName) {
  std::vector<std::string> synced;
  instead_of_fsync = [&](int descriptor) {
    for (const std::string& path : {root(), root() + "/a"}) {
      if (is_folder(descriptor, path)) {
        synced.push_back(path);
      }
    }
    return 0;
  };
  begin_checkpoint(root() + "/a/b", 1);
  EXPECT_THAT(synced, ::testing::UnorderedElementsAre(root(), root() + "/a"));
}

TEST_F(Folders, AFolderThatCantBeSyncedIsAnErrorUnlessTheFileSystemCant) {
  for (const int error_number : {EINVAL, ENOTSUP}) {
    instead_of_fsync = [&](int descriptor) {
      return is_folder(descriptor, root()) ? error_number : 0;
    };
    EXPECT_NO_THROW(save(10));
  }
  instead_of_fsync = [&](int descriptor) { return is_folder(descriptor, root()) ? EIO : 0; };
  EXPECT_THAT([&] { save(20); }, throws_error(ErrorCode::kSystem, root(), "Input/output error"));
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010");
}

TEST_F(Folders, AFullDiskIsToldBeforeTheCheckpointHasItsName) {
  save(10, "old");
  begin_checkpoint(root(), 10);
  (void)folder_.write("step-00000010.part/shard.safetensors", "new");
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit{};
  ::getrlimit(RLIMIT_FSIZE, &old_limit);
  const rlimit limit{4, old_limit.rlim_max};
  ::setrlimit(RLIMIT_FSIZE, &limit);
  EXPECT_THROW(commit_checkpoint(root(), 10), Error);
  ::setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(test::read_file(root() + "/step-00000010/shard.safetensors"), "old");
  EXPECT_EQ(latest_checkpoint(root()), root() + "/step-00000010");
}

TEST_F(Folders, OlderCheckpointsGoAndHigherOnesStay) {
  for (const std::int64_t step : {50, 30, 40, 10, 20}) {
    save(step);
  }
  remove_older_checkpoints(root(), 40, 2);
  EXPECT_THAT(folder_.names(),
              ElementsAre("latest", "step-00000030", "step-00000040", "step-00000050"));
}

TEST_F(Folders, WhatCantBeRemovedFailsNothing) {
  const std::string loop = root() + "/loop";
  std::filesystem::create_symlink(loop, loop);
  EXPECT_NO_THROW(remove_older_checkpoints(loop, 40, 2));
}

TEST_F(Folders, AFolderThatCantBeMadeIsNamed) {
  const std::string file = folder_.write("file", "");
  EXPECT_THAT([&] { begin_checkpoint(file + "/x", 1); },
              throws_error(ErrorCode::kSystem, file + "/x", "can't make the folder"));
}

}  // namespace
}  // namespace unisono::checkpoint
