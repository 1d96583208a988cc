#include "unisono/launch/run.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>

#include "unisono/base/config.h"
#include "unisono/base/cores.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/random_hex.h"
#include "unisono/launch/agent.h"
#include "unisono/launch/descriptor_limit.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/program.h"
#include "unisono/launch/python_startup.h"
#include "unisono/net/address.h"
#include "unisono/net/loopback.h"
#include "unisono/rendezvous/find_assignment.h"
#include "unisono/rendezvous/secret.h"
#include "unisono/store/tcp_server.h"

namespace unisono::launch {
namespace {

constexpr int kMaxWorkers = 4096;

// Were one of them closed, the next file we open would become our stdout.
void occupy_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // Read-only, so that writing to a stdout that was closed stays an error.
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) {
      (void)::open("/dev/null", O_RDONLY);
    }
  }
}

JobLayout make_layout(const RunOptions& options,
                      const Config& config,
                      const Environment& environment) {
  constexpr std::size_t kSecretBytes = 32;
  constexpr std::size_t kRunIdBytes = 8;
  JobLayout job;
  job.master_addr = options.master_addr.empty() ? net::loopback_host() : options.master_addr;
  job.master_port = options.master_port;
  job.local_world_size = options.n_workers;
  job.world_size = options.n_workers;
  job.run_id = options.run_id.empty() ? random_hex(kRunIdBytes) : options.run_id;
  job.role = options.role;
  job.sets_nccl_errors = !environment("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  job.max_restarts = options.max_restarts;
  if (config.secret.empty() && config.secret_file.empty()) {
    job.secret = random_hex(kSecretBytes);
  }
  if (!environment("OMP_NUM_THREADS")) {
    job.omp_threads = std::max(1, available_cores() / options.n_workers);
  }
  job.log_debug = options.verbose && !environment("UNISONO_LOG");
  if (options.backend_alias) {
    const AliasVariables variables = alias_variables(*options.backend_alias);
    const std::string others = environment("PYTHONPATH").value_or("");
    job.backend_alias = variables.alias;
    job.python_path = variables.startup_folder + (others.empty() ? "" : ":") + others;
  }
  return job;
}

std::string make_log_folder(const Environment& environment) {
  std::string path = environment("TMPDIR").value_or("/tmp") + "/unisono-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    throw system_error("cannot make a folder for log files, " + path, errno);
  }
  return path;
}

// PyTorch's own clients can't say the hello.
store::TcpServerOptions store_options(const RunOptions& options,
                                      const Program& program,
                                      const JobLayout& job,
                                      const Config& config) {
  return {
      .address = net::resolve(job.master_addr, job.master_port).front(),
      .secret = job.secret.empty() ? rendezvous::find_secret(config, job.master_addr) : job.secret,
      .tls = config.tls,
      .plain_clients = {.own_user = options.allows_plain_clients || is_python(program)},
      .notes_turned_away = true,
      .logger = Logger("store", config.log_level)};
}

}  // namespace

int run(RunOptions options) {
  occupy_standard_descriptors();
  const Environment environment = process_environment();
  const Program program = find_program(options.program, environment);
  check_descriptor_limit(options.n_workers);
  const Config config = read_config(environment);
  if (const std::string warning = rendezvous::describe_jobs_side_by_side(environment);
      !warning.empty()) {
    Logger("launcher", config.log_level).warning(warning);
  }
  if (!options.ignored_options.empty()) {
    Logger("launcher", config.log_level)
        .info(fmt::format("these options of torchrun say nothing here: {}",
                          fmt::join(options.ignored_options, ", ")));
  }
  if (options.log_dir.empty() && !(options.redirects.empty() && options.tee.empty())) {
    options.log_dir = make_log_folder(environment);
    Logger("launcher", config.log_level)
        .info("the ranks' output is in " + options.log_dir + " (--log-dir chooses another folder)");
  }
  const JobLayout job = make_layout(options, config, environment);
  return Agent(options, program, job, store_options(options, program, job, config)).run();
}

int parse_worker_count(const std::string& text) {
  if (text == "auto" || text == "cpu") {
    return available_cores();
  }
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count < 1 ||
      count > kMaxWorkers) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("number of ranks \"{}\": give a number from 1 to {}, or \"auto\" or "
                            "\"cpu\" for one per core",
                            text,
                            kMaxWorkers));
  }
  return count;
}

}  // namespace unisono::launch
