// Large blocks of allocate() use huge pages if the system provides such pages, and normal pages
// otherwise.
#include <sys/prctl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/transport/shm/testing/page_advice.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using shm::testing::is_to_be_huge;

constexpr std::int64_t kMiB = 1 << 20;

TEST(HugePages, AreAskedForForBlocksThatGainByThem) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) {
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  }
  if (!is_to_be_huge(&kMiB)) {
    GTEST_SKIP() << "/proc/self/smaps has no flags here";
  }
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    const Buffer small = group.allocate(8 * kMiB, DType::kUInt8);
    const Buffer large = group.allocate(16 * kMiB, DType::kUInt8);
    EXPECT_EQ(is_to_be_huge(small.data), false);
    EXPECT_EQ(is_to_be_huge(large.data), true);
    EXPECT_EQ(is_to_be_huge(static_cast<std::byte*>(large.data) + large.n_bytes() - 1), true);
  });
}

// Disables huge pages for this process during the object's lifetime.
class WithoutHugePages {
 public:
  WithoutHugePages() : is_so_(set(1)) {}

  ~WithoutHugePages() { (void)set(0); }

  WithoutHugePages(const WithoutHugePages&) = delete;
  WithoutHugePages& operator=(const WithoutHugePages&) = delete;
  WithoutHugePages(WithoutHugePages&&) = delete;
  WithoutHugePages& operator=(WithoutHugePages&&) = delete;

  [[nodiscard]] bool is_so() const { return is_so_; }

 private:
  static bool set(unsigned long is_disabled) {
    return ::prctl(PR_SET_THP_DISABLE, is_disabled, 0UL, 0UL, 0UL) == 0;
  }

  bool is_so_;
};

TEST(HugePages, LargeBlocksDoWithSmallOnesWhereThereAreNone) {
  const WithoutHugePages none;
  if (!none.is_so()) {
    GTEST_SKIP() << "this kernel denies huge pages to no process (PR_SET_THP_DISABLE)";
  }
  test::run_ranks(test::one_node(2), [](ProcessGroup& group) {
    const Buffer large = group.allocate(16 * kMiB / 4, DType::kInt32);
    const std::span values(static_cast<std::int32_t*>(large.data),
                           static_cast<std::size_t>(large.count));
    EXPECT_TRUE(std::ranges::all_of(values, [](std::int32_t value) { return value == 0; }));
    std::ranges::fill(values, group.rank() + 1);
    group.all_reduce(large);
    EXPECT_TRUE(std::ranges::all_of(values, [](std::int32_t value) { return value == 3; }));
  });
}

}  // namespace
}  // namespace unisono
