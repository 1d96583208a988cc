#include "unisono/engine/mpi/mpi_engine.h"

#include <fmt/format.h>

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <climits>

#include "unisono/base/loaded_mpi.h"
#include "unisono/base/reduction.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine::mpi {
namespace {

// Types that the MPI standard cannot reduce.
constexpr SetOf<DType> kNotInMpi{DType::kFloat16, DType::kBFloat16};

Capabilities capabilities() {
  Capabilities result;
  result.reduced_dtypes = result.reduced_dtypes.without(kNotInMpi);
  result.reductions = result.reductions.without({ReduceKind::kPremulSum, ReduceKind::kUser});
  result.takes_algorithm = false;
  result.has_canonical_bits = false;
  return result;
}

// Returns "Open MPI and MPICH".
std::string names_of(std::span<const MpiImplementation> implementations) {
  std::string names;
  for (const MpiImplementation implementation : implementations) {
    names += fmt::format("{}{}", names.empty() ? "" : " and ", to_string(implementation));
  }
  return names;
}

MakeEngine prepare(const ProcessFacts& process) {
  const std::optional<MpiImplementation> mine = process.mpi;
  if (!mine) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "backend mpi: this process is not a rank of an MPI job; start the program itself by its "
        "mpirun: \"mpirun -n 4 PROGRAM\", or by \"srun --mpi=pmix\" (Open MPI) or "
        "\"--mpi=pmi2\" (MPICH)");
  }
  if (find_module(*mine).empty()) {
    throw Error(ErrorCode::kNotFound,
                fmt::format("backend mpi: this is a rank of {}, and unisono was built for {}; "
                            "install {} and build it again, or use the other mpirun",
                            to_string(*mine),
                            names_of(built_modules()),
                            package_of(*mine)));
  }
  return [implementation = *mine](
             const transport::RankTable& roster,
             std::shared_ptr<SupervisingEngine> native) -> std::shared_ptr<Engine> {
    return std::make_shared<MpiEngine>(MpiLibrary::open(implementation), roster, std::move(native));
  };
}

// MPI counts elements by int.
void check_size(std::span<const Buffer> buffers) {
  std::int64_t n_elems = 0;
  for (const Buffer& buffer : buffers) {
    n_elems += buffer.count;
  }
  if (n_elems > INT_MAX) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("backend mpi takes {} elements at most, and these are {}; split the "
                            "buffer, or make the group with backend unisono",
                            INT_MAX,
                            n_elems));
  }
}

}  // namespace

MpiEngine::MpiEngine(std::shared_ptr<MpiLibrary> library,
                     const transport::RankTable& roster,
                     std::shared_ptr<SupervisingEngine> native)
    : native_(std::move(native)),
      group_{.library = std::move(library), .world_ranks = {}, .rank = roster.rank} {
  const int rank = roster.self().job_rank;
  if (rank != group_.library->rank()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("rank {}: in its MPI's world this is rank {} of {}; leave rank and "
                            "world size to mpirun, and start each rank by it",
                            rank,
                            group_.library->rank(),
                            group_.library->world_size()));
  }
  for (const transport::Member& member : roster.members) {
    group_.world_ranks.push_back(member.job_rank);
    group_.is_on_one_node = group_.is_on_one_node && member.node == roster.self().node;
    if (member.job_rank >= group_.library->world_size()) {
      throw Error(ErrorCode::kMismatch,
                  fmt::format("rank {}: the MPI's world has {} ranks, and no rank {}; start all "
                              "ranks by one mpirun",
                              rank,
                              group_.library->world_size(),
                              member.job_rank));
    }
  }
  running_ = std::make_unique<MpiOperation>(group_);
}

MpiEngine::~MpiEngine() {
  // After a failure the other ranks may not take part in freeing the communicator.
  if (group_.has_communicator && !has_failed_) {
    group_.library->leave(group_.communicator);
  }
}

void MpiEngine::execute(const Operation& operation, TimeLimit limit, Caller caller) {
  if (operation.descriptor.kind == transport::OperationKind::kMonitoredBarrier) {
    native_->execute(operation, limit, caller);
    return;
  }
  try {
    native_->supervise(operation, limit, caller, *running_);
  } catch (const std::exception&) {
    has_failed_ = true;
    if (running_->has_begun()) {
      abandon(operation);
    }
    throw;
  }
}

// Leaks the memory to which the MPI may still write.
void MpiEngine::abandon(const Operation& operation) noexcept {
  group_.library->abandon();
  try {
    running_->keep(operation);
    [[maybe_unused]] const MpiOperation* const kept = running_.release();
    running_ = std::make_unique<MpiOperation>(group_);
  } catch (const std::exception&) {
    return;  // Out of memory: the group is closed, and no further operation begins.
  }
}

Buffer MpiEngine::allocate(std::int64_t count, DType dtype) {
  return native_->allocate(count, dtype);
}

void MpiEngine::check(const Operation& operation) const {
  native_->check(operation);
  check_size(std::span(&operation.in, 1));
  check_size(operation.ins);
  check_size(operation.outs);
}

void MpiEngine::abort(const Error& reason) noexcept {
  has_failed_ = true;
  group_.library->leave_out_finalize();
  native_->abort(reason);
}

void MpiEngine::leave() noexcept {
  native_->leave();
}

Backend describe_backend() {
  const std::vector<MpiImplementation> built = built_modules();
  if (built.empty()) {
    return {.name = "mpi",
            .help = fmt::format("install {} or {} and build unisono again; backend unisono does "
                                "what it does, and needs no MPI",
                                package_of(MpiImplementation::kOpenMpi),
                                package_of(MpiImplementation::kMpich)),
            .is_there = false};
  }
  return {.name = "mpi",
          .help = fmt::format("the collective operations of {}, under its mpirun", names_of(built)),
          .capabilities = capabilities(),
          .prepare = prepare};
}

}  // namespace unisono::engine::mpi
