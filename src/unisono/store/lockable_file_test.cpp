#include "unisono/store/lockable_file.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/store/file_log.h"
#include "unisono/store/file_store.h"
#include "unisono/store/testing/stores.h"

#include "support/temporary_folder.h"

namespace unisono::store {
namespace {

using ::testing::AllOf;
using testing::at_once;
using ::testing::HasSubstr;
using testing::soon;
using Mode = LockableFile::Mode;

// Returns the kind of lock that would block a write lock now: F_UNLCK, F_RDLCK or F_WRLCK.
short lock_seen(const std::string& path, int command) {
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  EXPECT_EQ(::fcntl(fd.get(), command, &lock), 0);
  return lock.l_type;
}

class FileClaims : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<LockableFile> open() const {
    return std::make_unique<LockableFile>(Fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC)));
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.write("file", "");
};

class LockableFileTest : public ::testing::TestWithParam<LockOwner> {
 protected:
  [[nodiscard]] std::unique_ptr<LockableFile> open() const {
    return std::make_unique<LockableFile>(Fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC)),
                                          GetParam());
  }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.write("file", "");
};

TEST_F(FileClaims, OneHoldsANumberUntilItClosesTheFile) {
  const auto file = open();
  const auto other = open();
  auto third = open();
  EXPECT_TRUE(third->claim(7));
  EXPECT_FALSE(file->claim(7));
  EXPECT_TRUE(file->claim(0));
  EXPECT_TRUE(file->claim(0xFFFFFFFF));
  EXPECT_TRUE(file->is_claimed(7));
  EXPECT_FALSE(file->is_claimed(0)) << "its own";
  EXPECT_TRUE(other->is_claimed(0));
  EXPECT_TRUE(other->is_claimed(0xFFFFFFFF));
  EXPECT_FALSE(other->is_claimed(1));
  third.reset();
  EXPECT_FALSE(file->is_claimed(7));
  EXPECT_FALSE(file->has_claims());
  EXPECT_TRUE(other->has_claims());
  file->release_claims();
  EXPECT_FALSE(other->has_claims());
}

TEST_F(FileClaims, TakeLocksThatAreTheDescriptors) {
  LockableFile file(Fd(::open(path_.c_str(), O_RDWR | O_CLOEXEC)), LockOwner::kProcess);
  EXPECT_THAT([&] { (void)file.claim(1); },
              ::testing::ThrowsMessage<Error>(HasSubstr("F_OFD_SETLK")));
}

TEST_F(FileClaims, LeaveTheLockToOthersAndTheLockLeavesThem) {
  const auto file = open();
  const auto other = open();
  EXPECT_TRUE(file->claim(1));
  ASSERT_TRUE(other->lock(Mode::kExclusive, at_once()));
  EXPECT_TRUE(file->claim(2));
  EXPECT_FALSE(file->lock(Mode::kShared, at_once()));
  other->unlock();
  EXPECT_TRUE(other->is_claimed(2));
}

TEST_P(LockableFileTest, OneAtATimeHoldsTheExclusiveLock) {
  std::atomic<int> n_holders = 0;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto file = open();
      for (int n = 0; n < 50; ++n) {
        ASSERT_TRUE(file->lock(Mode::kExclusive, soon()));
        EXPECT_EQ(++n_holders, 1);
        ++count;
        --n_holders;
        file->unlock();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(count, 200);
}

TEST_P(LockableFileTest, GivesUpAtTheDeadline) {
  const auto mine = open();
  const auto others = open();
  ASSERT_TRUE(others->lock(Mode::kExclusive, soon()));
  EXPECT_FALSE(mine->lock(Mode::kExclusive, at_once()));
  EXPECT_FALSE(mine->lock(Mode::kShared, at_once()));
  others->unlock();
  EXPECT_TRUE(mine->lock(Mode::kShared, at_once()));
  mine->unlock();
}

// A process that closes a descriptor loses its own locks on the file.
TEST_P(LockableFileTest, TheEndOfAnotherLeavesTheLockAlone) {
  const auto mine = open();
  auto another = open();
  ASSERT_TRUE(another->lock(Mode::kShared, soon()));
  another->unlock();
  ASSERT_TRUE(mine->lock(Mode::kExclusive, soon()));
  testing::Event has_ended;
  std::thread ender([&] {
    another.reset();
    has_ended.set();
  });
  if (GetParam() == LockOwner::kDescriptor) {
    EXPECT_TRUE(has_ended.wait(soon()));
    EXPECT_EQ(lock_seen(path_, F_OFD_GETLK), F_WRLCK);
  } else {
    // Long enough to detect an end that does not wait.
    EXPECT_FALSE(has_ended.wait(Deadline::after(std::chrono::milliseconds(10))));
  }
  mine->unlock();
  ender.join();
}

TEST_P(LockableFileTest, ASystemWithoutLocksIsAnError) {
  LockableFile closed(Fd(), GetParam());
  EXPECT_THROW((void)closed.lock(Mode::kShared, soon()), Error);
}

INSTANTIATE_TEST_SUITE_P(Owners,
                         LockableFileTest,
                         ::testing::Values(LockOwner::kDescriptor, LockOwner::kProcess),
                         [](const auto& owner) {
                           return owner.param == LockOwner::kDescriptor ? "Descriptor" : "Process";
                         });

TEST(FileLog, ItsLocksAreThoseOfFcntl) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/store";
  FileLog log(path, {}, soon());
  EXPECT_EQ(lock_seen(path, F_OFD_GETLK), F_UNLCK);
  {
    const FileLog::Lock lock = log.lock(Mode::kShared, soon());
    EXPECT_EQ(lock_seen(path, F_OFD_GETLK), F_RDLCK);
    EXPECT_EQ(lock_seen(path, F_GETLK), F_RDLCK);
  }
  {
    const FileLog::Lock lock = log.lock(Mode::kExclusive, soon());
    EXPECT_EQ(lock_seen(path, F_OFD_GETLK), F_WRLCK);
    EXPECT_EQ(lock_seen(path, F_GETLK), F_WRLCK);
  }
  EXPECT_EQ(lock_seen(path, F_OFD_GETLK), F_UNLCK);
}

// Another owner's lock on a store's file.
class HeldLock {
 public:
  HeldLock(const std::string& path, Mode mode)
      : file_(Fd(::open(path.c_str(), O_RDWR | O_CLOEXEC))) {
    EXPECT_TRUE(file_.lock(mode, soon()));
  }

  ~HeldLock() { file_.unlock(); }

  HeldLock(const HeldLock&) = delete;
  HeldLock& operator=(const HeldLock&) = delete;
  HeldLock(HeldLock&&) = delete;
  HeldLock& operator=(HeldLock&&) = delete;

 private:
  LockableFile file_;
};

class LockedStore : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/store";
  FileStore store_{{.path = path_, .io_timeout = std::chrono::milliseconds(5)}, soon()};
};

TEST_F(LockedStore, ChangesWaitForEveryLockAndLooksForTheExclusiveOne) {
  store_.set("k", "v");
  const auto expect_timeout = [&](const std::function<void()>& call) {
    try {
      call();
      ADD_FAILURE() << "no timeout";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      EXPECT_THAT(error.what(), AllOf(HasSubstr("store " + path_), HasSubstr("lock")));
    }
  };
  {
    const HeldLock shared(path_, Mode::kShared);
    EXPECT_EQ(store_.try_get("k"), "v");
    expect_timeout([&] { store_.set("k", "w"); });
    expect_timeout([&] { (void)FileStore({.path = path_}, at_once()); });
  }
  {
    const HeldLock exclusive(path_, Mode::kExclusive);
    expect_timeout([&] { (void)store_.try_get("k"); });
    expect_timeout([&] { (void)store_.get("k", at_once()); });
  }
  store_.set("k", "w");
  EXPECT_EQ(store_.try_get("k"), "w");
}

// The last user of the previous job deletes the file while the first user of the next job waits for
// its lock.
TEST_F(LockedStore, AFileThatIsDeletedBeforeItCouldBeLockedIsLeft) {
  std::thread next;
  {
    const HeldLock exclusive(path_, Mode::kExclusive);
    const std::size_t n_before = testing::descriptors_of(path_).size();
    next = std::thread(
        [&] { EXPECT_NO_THROW(FileStore({.path = path_}, soon()).set("k", "next job's")); });
    for (const Deadline deadline = soon();
         testing::descriptors_of(path_).size() == n_before && !deadline.has_passed();) {
      std::this_thread::yield();
    }
    std::filesystem::remove(path_);
  }
  next.join();
  EXPECT_EQ(FileStore({.path = path_}, soon()).try_get("k"), "next job's");
}

TEST_F(LockedStore, AWatchOutlivesALongLock) {
  testing::Event has_changed;
  const auto watch = store_.watch("k", [&](const KeyChange&) { has_changed.set(); });
  {
    const HeldLock exclusive(path_, Mode::kExclusive);
    // Gives the watch time to poll while the file is locked.
    const Deadline enough = Deadline::after(std::chrono::milliseconds(100));
    while (!enough.has_passed()) {
      EXPECT_THROW((void)store_.try_get("k"), Error);
    }
  }
  FileStore({.path = path_}, soon()).set("k", "v");
  EXPECT_TRUE(has_changed.wait(soon()));
}

}  // namespace
}  // namespace unisono::store
