#include "unisono/cli/doctor/examine_libraries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using test::fake_environment;
using test::TemporaryFolder;

TEST(ExamineLibraries, LooksWhereTheLoaderLooks) {
  const TemporaryFolder root;
  EXPECT_EQ(examine_libraries(fake_environment({}), root.path()).at(0).text,
            "not found: NCCL, MPI, MPICH, UCX");
  (void)root.write("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
  (void)root.write("etc/ld.so.conf.d/mpi.conf", "# a comment\n/opt/mpi/lib\n");
  (void)root.write("etc/ld.so.conf.d/mpi.old", "/opt/old/lib\n");
  (void)root.write("opt/mpi/lib/libmpi.so.40", "");
  (void)root.write("opt/mpi/lib/libmpi_cxx.so.40", "");
  (void)root.write("opt/old/lib/libmpich.so.12", "");
  (void)root.write("usr/lib/libucp.so.0", "");
  (void)root.write("usr/lib/libnccl.so.2", "");
  (void)root.write("opt/nccl/libnccl.so.2", "");
  EXPECT_EQ(
      examine_libraries(fake_environment({{"LD_LIBRARY_PATH", "/none:/opt/nccl"}}), root.path())
          .at(0)
          .text,
      "NCCL: /opt/nccl/libnccl.so.2; MPI: /opt/mpi/lib/libmpi.so.40; "
      "UCX: /usr/lib/libucp.so.0; not found: MPICH");
}

TEST(ExamineLibraries, AFileThatIncludesItselfHasAnEnd) {
  const TemporaryFolder root;
  (void)root.write("etc/ld.so.conf", "include ld.so.conf\n/opt/lib\n");
  (void)root.write("opt/lib/libnccl.so.2", "");
  EXPECT_THAT(examine_libraries(fake_environment({}), root.path()).at(0).text,
              ::testing::HasSubstr("/opt/lib/libnccl.so.2"));
}

}  // namespace
}  // namespace unisono::cli::doctor
