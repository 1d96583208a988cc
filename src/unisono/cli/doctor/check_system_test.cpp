#include <sys/stat.h>

#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/checks.h"

#include "support/ranks.h"
#include "support/temporary_folder.h"

namespace unisono::cli::doctor {
namespace {

using Variables = std::map<std::string, std::string>;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr const char* kPlenty = "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n";
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// A machine that has only the files that the test writes.
class CheckSystem : public ::testing::Test {
 protected:
  CheckSystem() { machine_.root = root_.path(); }

  void write(const std::string& name, const std::string& bytes) { (void)root_.write(name, bytes); }

  void set(const Variables& variables) { machine_.environment = test::fake_environment(variables); }

  void set_ranks(int n) { machine_.place = {.is_in_job = true, .local_world_size = n}; }

  // Returns a line "warning: TEXT -> ADVICE" for each finding.
  std::string found(CheckFunction& check) const {
    std::string lines;
    for (const Finding& finding : check(machine_)) {
      lines += std::string(to_string(finding.state)) + ": " + finding.text;
      lines += (finding.advice.empty() ? "" : " -> " + finding.advice) + "\n";
    }
    return lines;
  }

  test::TemporaryFolder root_;
  Machine machine_;
};

TEST_F(CheckSystem, UnreadableFilesAreNothing) {
  EXPECT_EQ(machine_.text("none"), std::nullopt);
  EXPECT_EQ(machine_.text("."), std::nullopt);
  ASSERT_EQ(::mkfifo((root_.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(machine_.text("pipe"), std::nullopt);
  EXPECT_EQ(machine_.number("."), std::nullopt);
  EXPECT_EQ(machine_.value("none", "Name:"), std::nullopt);
  EXPECT_THAT(machine_.glob("none/*"), IsEmpty());
}

TEST_F(CheckSystem, NumbersAndNamedValuesOfFilesAreFound) {
  write("a", "42 7\n");
  write("b", "max\n");
  write("c", "Name:\tx y \nCapEff:\t00ff\n");
  EXPECT_EQ(machine_.number("a"), 42);
  EXPECT_EQ(machine_.number("b"), std::nullopt);
  EXPECT_EQ(machine_.value("c", "CapEff:"), "00ff");
  EXPECT_EQ(machine_.value("c", "Name:"), "x y");
  EXPECT_EQ(machine_.value("c", "Uid:"), std::nullopt);
  EXPECT_THAT(machine_.glob("*"), ElementsAre("a", "b", "c"));
}

TEST_F(CheckSystem, BytesAreWrittenForPeople) {
  EXPECT_EQ(format_bytes(12), "12 bytes");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{8} << 40), "8 TiB");
}

TEST_F(CheckSystem, AnOldKernelIsAProblem) {
  write("etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian 12\"\n");
  const Variables states{{"6.1.0-18-amd64", "info"}, {"5.2.21", "problem"}, {"5.15.0", "info"}};
  for (const auto& [release, state] : states) {
    write("proc/sys/kernel/osrelease", release + "\n");
    EXPECT_THAT(found(check_kernel), StartsWith(state + ": Linux " + release + "; Debian 12"));
  }
}

TEST_F(CheckSystem, ContainersAreRecognized) {
  EXPECT_EQ(found(check_container), "");
  set({{"KUBERNETES_SERVICE_HOST", "10.96.0.1"}});
  EXPECT_THAT(found(check_container), HasSubstr("Kubernetes"));
  set({{"APPTAINER_CONTAINER", "/images/a.sif"}});
  EXPECT_THAT(found(check_container), HasSubstr("/images/a.sif"));
  set({});
  write("proc/1/cgroup", "0::/system.slice/docker-1.scope\n");
  EXPECT_EQ(found(check_container), "info: this seems to be docker (/proc/1/cgroup)\n");
  write("run/.containerenv", "");
  EXPECT_THAT(found(check_container), HasSubstr("Podman"));
}

TEST_F(CheckSystem, PtraceScopeKeepsRanksApart) {
  EXPECT_THAT(found(check_single_copy), StartsWith("ok: "));
  write("proc/sys/kernel/yama/ptrace_scope", "1\n");
  write("proc/self/status", "Name:\tdoctor\nCapEff:\t0000000000000000\n");
  EXPECT_THAT(found(check_single_copy), StartsWith("warning: kernel.yama.ptrace_scope=1"));
  write("proc/self/status", "Name:\tdoctor\nCapEff:\t0000000000080000\n");
  EXPECT_THAT(found(check_single_copy), StartsWith("ok: "));
  write("proc/sys/kernel/yama/ptrace_scope", "3\n");
  EXPECT_THAT(found(check_single_copy), StartsWith("warning: "));
  machine_.single_copy_error = "process_vm_readv: Operation not permitted";
  EXPECT_THAT(found(check_single_copy), StartsWith("warning: " + machine_.single_copy_error));
}

TEST_F(CheckSystem, AClockThatWasNeverSetIsAWarning) {
  EXPECT_THAT(found(check_clock), StartsWith("warning: 1970-01-01"));
  machine_.now += std::chrono::hours(24 * 365 * 60);
  EXPECT_THAT(found(check_clock), StartsWith("info: 2029-12-17 00:00:00 UTC, not synchronized"));
}

TEST_F(CheckSystem, MoreRanksThanCoresAreAWarning) {
  machine_.usable_cores = 2;
  machine_.online_cores = 8;
  set_ranks(2);
  EXPECT_EQ(found(check_cores), "ok: 2 of 8 may be used\n");
  set_ranks(3);  // Each rank may be pinned to other cores.
  EXPECT_THAT(found(check_cores),
              StartsWith("info: 2 of 8 may be used by this rank, and 3 are on its node"));
  set_ranks(9);
  EXPECT_THAT(found(check_cores), StartsWith("warning: 2 of 8 may be used by 9 ranks"));
}

TEST_F(CheckSystem, AQuotaBelowTheRanksIsAWarning) {
  machine_.online_cores = 8;
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_THAT(found(check_cores), AllOf(StartsWith("warning: "), HasSubstr("quota is 0.5")));
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_THAT(found(check_cores), StartsWith("ok: "));
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "75000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_THAT(found(check_cores), HasSubstr("quota is 0.75"));
}

TEST_F(CheckSystem, ThreadsMustFitTheCores) {
  const auto threads = [&](int n_cores, int n_ranks, const char* value) {
    machine_.usable_cores = n_cores;
    set_ranks(n_ranks);
    set({{value == nullptr ? "PATH" : "OMP_NUM_THREADS", value == nullptr ? "" : value}});
    return found(check_threads);
  };
  EXPECT_THAT(threads(8, 2, "4"), StartsWith("ok: "));
  EXPECT_THAT(threads(8, 3, "4"),
              AllOf(StartsWith("warning: "), HasSubstr(" -> OMP_NUM_THREADS=2\n")));
  EXPECT_THAT(threads(8, 2, "4,1"), StartsWith("ok: "));
  EXPECT_THAT(threads(8, 2, "many"), StartsWith("warning: "));
  EXPECT_THAT(threads(8, 2, nullptr), StartsWith("warning: "));
  EXPECT_THAT(threads(8, 1, nullptr), StartsWith("info: "));
  // One core for each rank, as mpirun pins them.
  EXPECT_THAT(threads(1, 2, nullptr), StartsWith("info: "));
  EXPECT_THAT(threads(1, 2, "1"), StartsWith("ok: "));
  EXPECT_THAT(threads(1, 2, "2"), StartsWith("warning: "));
}

TEST_F(CheckSystem, NumaNodesAreListed) {
  EXPECT_EQ(found(check_numa), "");
  write("sys/devices/system/node/node0/cpulist", "0-3\n");
  write("sys/devices/system/node/node1/cpulist", "4-7\n");
  write("sys/devices/system/node/nodes/cpulist", "0-7\n");
  EXPECT_EQ(found(check_numa), "info: node0: cores 0-3; node1: cores 4-7\n");
}

TEST_F(CheckSystem, LittleAvailableMemoryIsAWarning) {
  EXPECT_EQ(found(check_memory), "");
  write("proc/meminfo", kPlenty);
  EXPECT_EQ(found(check_memory), "ok: 8 GiB of 16 GiB are available\n");
  write("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 102400 kB\n");
  EXPECT_THAT(found(check_memory), StartsWith("warning: 100 MiB of 16 GiB"));
}

TEST_F(CheckSystem, TheTightestControlGroupLimitsMemory) {
  write("proc/meminfo", kPlenty);
  write("proc/self/cgroup", "0::/pod/container\n");
  write("sys/fs/cgroup/pod/container/memory.max", "max\n");
  write("sys/fs/cgroup/pod/memory.max", "1073741824\n");
  write("sys/fs/cgroup/pod/memory.current", "1063256064\n");
  EXPECT_THAT(found(check_memory),
              HasSubstr("\nwarning: its control group may use 1 GiB, of which 10 MiB are left"));
}

TEST_F(CheckSystem, ControlGroupsOfTheFirstVersionLimitMemoryToo) {
  write("proc/meminfo", kPlenty);
  const std::string plenty = found(check_memory);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(found(check_memory), plenty);
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824\n");
  EXPECT_EQ(found(check_memory),
            plenty + "ok: its control group may use 4 GiB, of which 3 GiB are left\n");
}

TEST_F(CheckSystem, StrictOvercommitIsNamed) {
  write("proc/meminfo",
        std::string(kPlenty) + "CommitLimit: 1048576 kB\nCommitted_AS: 1000000 kB\n");
  const std::string plenty = found(check_memory);
  write("proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_THAT(found(check_memory), StartsWith(plenty + "warning: vm.overcommit_memory=2"));
  write("proc/sys/vm/overcommit_memory", "0\n");
  EXPECT_EQ(found(check_memory), plenty);
}

TEST_F(CheckSystem, SharedMemoryMayHaveHugePages) {
  const char* const file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  write(file, "always within_size advise [never] deny force\n");
  EXPECT_THAT(found(check_huge_pages),
              AllOf(HasSubstr("info: shmem_enabled is \"never\": the memory that ranks share has "
                              "small pages"),
                    HasSubstr(" -> echo advise >/sys/kernel/mm/")));
  write(file, "always within_size [advise] never deny force\n");
  EXPECT_EQ(found(check_huge_pages),
            "info: shmem_enabled is \"advise\": large blocks of the memory that ranks share may "
            "have them\n");
  write(file, "junk\n");
  EXPECT_EQ(found(check_huge_pages), "");
}

TEST_F(CheckSystem, ArenasThatCannotBeMadeAreAProblem) {
  EXPECT_EQ(read_machine(machine_.environment).arena_error, "") << "on this machine";
  EXPECT_THAT(found(check_shared_memory), StartsWith("ok: "));
  machine_.arena_error = "memfd_create: Operation not permitted";
  EXPECT_THAT(found(check_shared_memory), StartsWith("problem: " + machine_.arena_error + " -> "));
}

TEST_F(CheckSystem, LimitsOfMemoryAreWarnings) {
  EXPECT_EQ(found(check_dev_shm), "");
  machine_.shm_bytes = 64 * kMiB;
  EXPECT_THAT(found(check_dev_shm), StartsWith("warning: 64 MiB; "));
  machine_.shm_bytes = 4096 * kMiB;
  EXPECT_THAT(found(check_dev_shm), StartsWith("info: 4 GiB; "));
  EXPECT_EQ(found(check_address_space), "");
  machine_.address_space.rlim_cur = 1024 * kMiB;
  EXPECT_THAT(found(check_address_space), StartsWith("warning: limited to 1 GiB"));
  machine_.locked_memory.rlim_cur = 8 * kMiB;
  EXPECT_EQ(found(check_locked_memory), "info: 8 MiB (ulimit -l)\n");
  write("sys/class/infiniband/mlx5_0/fw_ver", "1\n");
  EXPECT_THAT(found(check_locked_memory), StartsWith("warning: 8 MiB (ulimit -l); "));
  machine_.locked_memory.rlim_cur = RLIM_INFINITY;
  EXPECT_EQ(found(check_locked_memory), "info: unlimited (ulimit -l)\n");
}

TEST_F(CheckSystem, OpenFilesMustDoForTheWorld) {
  machine_.open_files = {.rlim_cur = 1024, .rlim_max = 4096};
  machine_.place.launch_info.world_size = 8;
  EXPECT_EQ(found(check_open_files), "ok: 1024 at a time (ulimit -n; at most 4096)\n");
  machine_.place.launch_info.world_size = 512;
  EXPECT_THAT(found(check_open_files),
              AllOf(StartsWith("warning: "), HasSubstr(" -> ulimit -n 2176\n")));
}

TEST_F(CheckSystem, VisibleGpusWithoutADriverAreExplained) {
  EXPECT_EQ(found(check_gpus), "info: none: no NVIDIA driver\n");
  set({{"CUDA_VISIBLE_DEVICES", ""}});
  EXPECT_EQ(found(check_gpus), "info: none: no NVIDIA driver\n");
  set({{"CUDA_VISIBLE_DEVICES", "0,1"}});
  EXPECT_THAT(found(check_gpus),
              StartsWith("warning: CUDA_VISIBLE_DEVICES=0,1, but there is no NVIDIA driver"));
}

TEST_F(CheckSystem, GpusAreCountedByModelAndVisibleOnesMustExist) {
  write("proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n");
  EXPECT_THAT(found(check_gpus), StartsWith("warning: NVIDIA's driver 535.183.01")) << "no device";
  for (const std::string number : {"0", "1"}) {
    write("proc/driver/nvidia/gpus/0000:0" + number + ":00.0/information",
          "Model: \t\t NVIDIA H100\nIRQ: 12\n");
    write("dev/nvidia" + number, "");
  }
  write("dev/nvidiactl", "");
  const std::string devices = found(check_gpus);
  EXPECT_THAT(devices, StartsWith("info: 2 NVIDIA H100; driver 535.183.01; 2 devices in /dev. "));
  const Variables begins{
      {"1", "info: CUDA_VISIBLE_DEVICES=1\n"},
      {"GPU-5c1e", "info: "},
      {"0,2", "warning: CUDA_VISIBLE_DEVICES=0,2: this machine has 2 GPUs, none with number 2;"},
      {"", "info: CUDA_VISIBLE_DEVICES=\"\" hides all GPUs\n"}};
  for (const auto& [visible, begin] : begins) {
    set({{"CUDA_VISIBLE_DEVICES", visible}});
    EXPECT_THAT(found(check_gpus), StartsWith(devices + begin));
  }
}

TEST_F(CheckSystem, LibrariesAreFoundWhereTheLoaderFindsThem) {
  EXPECT_EQ(found(check_libraries), "info: not found: NCCL, MPI, MPICH, UCX\n");
  write("etc/ld.so.conf", "include /etc/ld.so.conf.d/*.conf\n");
  write("etc/ld.so.conf.d/mpi.conf", "# a comment\n/opt/mpi/lib\n");
  write("etc/ld.so.conf.d/mpi.old", "/opt/old/lib\n");
  for (const char* const library : {"opt/mpi/lib/libmpi.so.40",
                                    "opt/mpi/lib/libmpi_cxx.so.40",
                                    "opt/old/lib/libmpich.so.12",
                                    "usr/lib/libucp.so.0",
                                    "usr/lib/libnccl.so.2",
                                    "opt/nccl/libnccl.so.2"}) {
    write(library, "");
  }
  set({{"LD_LIBRARY_PATH", "/none:/opt/nccl"}});
  EXPECT_EQ(found(check_libraries),
            "info: NCCL: /opt/nccl/libnccl.so.2; MPI: /opt/mpi/lib/libmpi.so.40; "
            "UCX: /usr/lib/libucp.so.0; not found: MPICH\n");
  write("etc/ld.so.conf", "include ld.so.conf\n/opt/nccl\n");
  set({});
  EXPECT_THAT(found(check_libraries), HasSubstr("/opt/nccl/libnccl.so.2")) << "includes itself";
}

}  // namespace
}  // namespace unisono::cli::doctor
