#include "unisono/launch/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/base/gpus.h"
#include "unisono/base/log.h"
#include "unisono/base/process.h"
#include "unisono/base/text.h"
#include "unisono/launch/agent.h"
#include "unisono/launch/binding/bind_ranks.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/generations.h"
#include "unisono/launch/hosts/uplink.h"
#include "unisono/launch/nodes/join_nodes.h"
#include "unisono/launch/process/guardian_link.h"
#include "unisono/launch/python_startup.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/discovery.h"
#include "unisono/rendezvous/resolve_rendezvous.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/rendezvous/this_node.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {

void check_descriptor_limit(int n_workers) {
  constexpr rlim_t kOurOwn = 64;
  // For each rank: two descriptors for output, a pidfd, two for the error file and the wait file,
  // and three connections to the store (the rank's own, another for failure reports, PyTorch's).
  const rlim_t needed = 8 * static_cast<rlim_t>(n_workers) + kOurOwn;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max < needed) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} ranks need {} file descriptors, {} are allowed; raise the limit "
                            "(ulimit -Hn)",
                            n_workers,
                            needed,
                            limit.rlim_max));
  }
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
}

namespace {

// If a standard descriptor were closed, the next opened file would become stdin, stdout or stderr.
void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // Opened read-only, so that writing to a closed stdout stays an error.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      (void)::open("/dev/null", O_RDONLY);
    }
  }
}

JobLayout make_layout(const RunOptions& options,
                      const Program& program,
                      const base::Config& config,
                      const Environment& environment) {
  constexpr std::size_t kSecretBytes = 32;
  JobLayout job = make_node_layout(options.n_workers, environment);
  job.master_addr = options.master_addr.empty() ? net::loopback_host() : options.master_addr;
  job.master_port = options.master_port;
  if (!options.run_id.empty()) {
    job.run_id = options.run_id;
  }
  job.role = options.role;
  job.max_restarts = options.max_restarts;
  if (!rendezvous::is_secret_given(config) && !options.nodes) {
    job.secret = random_hex(kSecretBytes);
  }
  if (!options.rank_dir.empty()) {
    job.rank_dir = std::filesystem::absolute(options.rank_dir).lexically_normal().string();
  }
  job.log_debug = options.verbose && !environment("UNISONO_LOG");
  if (options.backend_alias) {
    const AliasVariables variables =
        alias_variables(*options.backend_alias, python_of(program, environment));
    const std::string others = environment("PYTHONPATH").value_or("");
    job.backend_alias = variables.alias;
    job.python_path = variables.startup_folder + (others.empty() ? "" : ":") + others;
  }
  return job;
}

// Makes ranks report a wait well before it reaches the limit.
void set_stall_timeout(const RunOptions& options,
                       const base::Config& config,
                       const Environment& environment,
                       JobLayout& job) {
  constexpr int kReportsAtLeast = 2;
  constexpr int kReports = 4;
  job.stall_timeout = options.stall_timeout;
  if (job.stall_timeout == std::chrono::milliseconds::zero()) {
    return;
  }
  if (!environment("UNISONO_STALL_SECONDS")) {
    job.stall_interval = std::min(config.stall, job.stall_timeout / kReports);
  } else if (config.stall * kReportsAtLeast > job.stall_timeout) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("run: --stall-timeout {}: ranks report that they wait after {} s "
                            "(UNISONO_STALL_SECONDS), which may be half of it at most",
                            std::chrono::duration<double>(job.stall_timeout).count(),
                            std::chrono::duration<double>(config.stall).count()));
  }
}

std::string make_log_folder(const Environment& environment) {
  std::string path = environment("TMPDIR").value_or("/tmp") + "/unisono-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    throw system_error("cannot make a folder for log files, " + path, errno);
  }
  return path;
}

// PyTorch's own clients do not support the hello.
bool has_plain_clients(const RunOptions& options, const Program& program) {
  return options.allows_plain_clients || is_python(program);
}

store::TcpServerOptions store_options(const RunOptions& options,
                                      const Program& program,
                                      const JobLayout& job,
                                      const base::Config& config) {
  return {
      .address = net::resolve(job.master_addr, job.master_port).front(),
      .secret = job.secret.empty() ? rendezvous::find_secret(config, job.master_addr) : job.secret,
      .tls = config.tls,
      .plain_clients = {.own_user = has_plain_clients(options, program)},
      .notes_turned_away = true,
      .logger = base::Logger("store", config.log_level)};
}

// Returns the nodes of a foreign launcher that has started a `unisono run` on each of several
// nodes.
NodesOptions nodes_of(const rendezvous::LaunchInfo& launch_info) {
  return {.min_nodes = launch_info.world_size,
          .max_nodes = launch_info.world_size,
          .node_rank = launch_info.rank,
          .host = rendezvous::meeting_host(launch_info),
          .port = launch_info.master_port};
}

// Open MPI's mpirun binds each process to a single core; here that is the launcher with all its
// ranks.
void warn_of_binding(const RunOptions& options,
                     const rendezvous::LaunchInfo& launch_info,
                     const base::Logger& logger) {
  const int n_cores = available_cores();
  const auto n_online = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (launch_info.launcher.empty()) {
    const std::vector<int> cores = cores_of(0);
    if (cores.size() == 1 && options.n_workers > 1 && n_online > 1) {
      logger.warning(fmt::format(
          "this launcher may use core {} only, of {}, and so may its {} ranks: start it unbound "
          "(mpirun --bind-to none, srun --cpu-bind=none, no taskset), or with more cores",
          cores.front(),
          n_online,
          options.n_workers));
    }
    return;
  }
  if (n_cores < options.n_workers && n_cores < n_online) {
    logger.warning(
        fmt::format("{} lets this launcher use {} of {} cores, for {} ranks: have it bind nothing "
                    "(mpirun --bind-to none, srun --cpu-bind=none or --cpus-per-task={})",
                    launch_info.launcher,
                    n_cores,
                    n_online,
                    options.n_workers,
                    options.n_workers));
  }
}

int run(RunOptions options, hosts::Uplink* uplink) {
  const Environment environment = process_environment();
  std::error_code error;
  options.program.launcher = std::filesystem::read_symlink("/proc/self/exe", error);
  const Program program = find_program(options.program, environment);
  check_descriptor_limit(options.n_workers);
  GuardianLink guardian(program);
  const base::Config config = read_config(environment);
  const base::Logger logger("launcher", config.log_level);
  if (!options.ignored_options.empty()) {
    logger.info(fmt::format("these options of torchrun have no effect here: {}",
                            fmt::join(options.ignored_options, ", ")));
  }
  if (options.log_dir.empty() && !(options.redirects.empty() && options.tee.empty())) {
    options.log_dir = make_log_folder(environment);
    logger.info("the ranks' output is in " + options.log_dir +
                " (--log-dir chooses another folder)");
  }
  rendezvous::Discovered discovered;
  if (!options.nodes && !options.is_one_node && rendezvous::has_launcher_of_several(environment)) {
    discovered =
        rendezvous::resolve_rendezvous({.environment = environment, .process_name = "launcher"})
            .discovered;
    options.nodes = nodes_of(discovered.launch_info);
  }
  JobLayout job = make_layout(options, program, config, environment);
  if (options.bind_to.value_or(BindTo::kNone) == BindTo::kNone) {
    warn_of_binding(options, discovered.launch_info, logger);
  }
  // Each mark needs a descriptor.
  raise_descriptor_limit();
  const CoreMarks marks = bind_ranks(options.bind_to, program.path, environment, logger, job);
  set_stall_timeout(options, config, environment, job);
  net::EventLoop own_loop;
  net::EventLoop& loop = uplink == nullptr ? own_loop : uplink->loop();
  if (!options.nodes) {
    LocalGenerations generations(loop, job, store_options(options, program, job, config));
    return Agent(loop, options, program, guardian, generations, uplink).run();
  }
  const std::string secret = discovered.launch_info.launcher.empty()
                                 ? rendezvous::find_secret(config, options.nodes->host)
                                 : rendezvous::find_secret(config, discovered.launch_info);
  job.host = uplink == nullptr ? rendezvous::host_name() : uplink->label();
  job.master_addr = options.nodes->host;
  job.secret = rendezvous::is_secret_given(config) ? "" : secret;
  const std::unique_ptr<Generations> generations =
      nodes::join_nodes(loop,
                        {.nodes = *options.nodes,
                         .job = job,
                         .wanted_run_id = options.run_id,
                         .secret = secret,
                         .has_plain_clients = has_plain_clients(options, program),
                         .config = config,
                         .has_front = uplink != nullptr});
  return Agent(loop, options, program, guardian, *generations, uplink).run();
}

int count_gpus() {
  const Gpus gpus = find_gpus(process_environment());
  if (gpus.visible.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("number of ranks \"gpu\": no GPU is visible: {}; \"cpu\" starts one per "
                    "core",
                    gpus.explanation));
  }
  return static_cast<int>(gpus.visible.size());
}

}  // namespace

int run(RunOptions options) {
  occupy_standard_descriptors();
  return run(std::move(options), nullptr);
}

int run(RunOptions options, hosts::Uplink& uplink) {
  return run(std::move(options), &uplink);
}

int parse_worker_count(const std::string& text) {
  if (text == "auto" || text == "cpu") {
    return available_cores();
  }
  if (text == "gpu") {
    return count_gpus();
  }
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 ||
      count > kMaxWorkers) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("number of ranks \"{}\": give a number from 1 to {}, \"auto\" or \"cpu\" "
                    "for one per core, or \"gpu\" for one per GPU",
                    text,
                    kMaxWorkers));
  }
  return count;
}

}  // namespace unisono::launch
