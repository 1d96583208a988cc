#include "trainer.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/utils.h>

#include "unisono/comm/process_group.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/image_dataset.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/samplers/share_check.h"
#include "unisono/report/progress.h"
#include "unisono/report/step_report.h"
#include "unisono/torch/checkpoint.h"
#include "unisono/torch/tensor/batch_tensors.h"
#include "unisono/torch/tensor/parameter_hash.h"
#include "unisono/torch/tensor/tensor.h"

#include "checkpoints.h"
#include "datasets.h"
#include "net.h"
#include "options.h"

namespace mnist {
namespace {

// Every rank starts from the same weights; the wrapper would see to that, too.
Net make_net(std::int64_t seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return {};
}

torch::Tensor sum_over_ranks(unisono::ProcessGroup& group, std::vector<double> values) {
  const torch::Tensor sums = torch::tensor(values, torch::kDouble);
  unisono::all_reduce(group, sums);
  return sums;
}

}  // namespace

Trainer::Trainer(std::shared_ptr<unisono::ProcessGroup> group,
                 const Options& options,
                 const Datasets& datasets)
    : group_(std::move(group)),
      options_(options),
      is_first_rank_(group_->rank() == 0),
      train_set_(datasets.train),
      test_set_(datasets.test),
      sampler_(train_set_->size(), *group_, {.seed = options_.seed}),
      train_loader_(train_set_,
                    {.batch_size = options_.batch_size, .num_workers = options_.workers}),
      test_loader_(test_set_,
                   {.batch_size = options_.test_batch_size, .num_workers = options_.workers}),
      model_(make_net(options_.seed), group_),
      optimizer_(model_.parameters(), unisono::optim::AdadeltaOptions(options_.lr)),
      scheduler_(optimizer_, 1, options_.gamma) {
  // Dropout differs between ranks.
  torch::manual_seed(static_cast<std::uint64_t>(options_.seed + 1 + group_->rank()));
  if (!options_.checkpoint_dir.empty()) {
    checkpoints_.emplace(*group_, options_.checkpoint_dir);
  }
}

void Trainer::resume() {
  const std::optional<std::string> latest =
      options_.resumes ? checkpoints_->latest() : std::nullopt;
  if (!latest) {
    return;
  }
  // The checkpoint has the rate, but not that the scheduler's first step, which leaves it as it is,
  // is behind it.
  scheduler_.step();
  const Checkpoints::Loaded loaded = checkpoints_->load(*latest, *model_.module(), optimizer_);
  position_ = loaded.position;
  taken_ = loaded.loader;
  if (is_first_rank_) {
    std::printf("going on from %s\n", latest->c_str());
    std::fflush(stdout);
  }
}

void Trainer::open_progress() {
  const std::int64_t n_batches =
      (sampler_.num_samples() + options_.batch_size - 1) / options_.batch_size;
  progress_.emplace(*group_,
                    unisono::ProgressOptions{.total = options_.epochs * n_batches,
                                             .start = position_.step,
                                             .unit = "images",
                                             .json_file = options_.json_file,
                                             .tensorboard = options_.tensorboard});
}

void Trainer::run() {
  unisono::check_shares(*group_, sampler_);
  if (is_first_rank_) {
    std::printf("%lld training and %lld test images from %s, %d rank%s, batch %d x %d\n",
                static_cast<long long>(train_set_->size()),
                static_cast<long long>(test_set_->size()),
                options_.data.c_str(),
                group_->world_size(),
                group_->world_size() == 1 ? "" : "s",
                options_.batch_size,
                group_->world_size());
    std::fflush(stdout);
  }
  for (; position_.epoch < options_.epochs; ++position_.epoch) {
    if (!taken_) {
      // LibTorch's first step leaves the rate as it is, so it comes before the epoch.
      scheduler_.step();
    }
    const EpochResult result = train_epoch();
    print_epoch(static_cast<int>(position_.epoch), result, test_accuracy());
  }
  if (checkpoints_) {
    checkpoints_->wait();
  }
  print_report();
  if (options_.is_verbose) {
    std::printf("Rank %d parameter hash %s\n",
                group_->rank(),
                unisono::format_hash(unisono::hash_tensors(model_.parameters())).c_str());
    std::fflush(stdout);
  }
}

Trainer::EpochResult Trainer::train_epoch() {
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  sampler_.set_epoch(position_.epoch);
  if (!taken_) {
    position_ = {.epoch = position_.epoch, .step = position_.step};
  }
  train_loader_.start(sampler_, std::exchange(taken_, std::nullopt));
  model_.train();
  progress_->set_title("epoch " + std::to_string(position_.epoch + 1) + "/" +
                       std::to_string(options_.epochs));
  const std::int64_t n_images_before = position_.n_images;
  while (std::optional<unisono::Batch> batch = train_loader_.next()) {
    const std::int64_t n_images = batch->size();
    train_batch(std::move(*batch));
    progress_->step({{"loss", position_.loss_sum / static_cast<double>(position_.n_steps)}},
                    n_images * group_->world_size());
  }
  progress_->clear();
  const double own_loss =
      position_.loss_sum / static_cast<double>(std::max<std::int64_t>(1, position_.n_steps));
  const double n_images = static_cast<double>(position_.n_images - n_images_before);
  const torch::Tensor sums = sum_over_ranks(*group_, {own_loss, n_images});
  return {.loss = sums[0].item<double>() / group_->world_size(),
          .own_loss = own_loss,
          .seconds = seconds(),
          .n_images = static_cast<std::int64_t>(sums[1].item<double>())};
}

void Trainer::train_batch(unisono::Batch batch) {
  const auto [images, labels] = unisono::as_tensors(std::move(batch));
  optimizer_.zero_grad();
  const torch::Tensor loss = torch::nll_loss(model_(images), labels);
  loss.backward();
  optimizer_.step();
  ++position_.step;
  ++position_.n_steps;
  position_.n_images += images.size(0);
  position_.loss_sum += loss.item<double>();
  if (checkpoints_ && position_.step % options_.checkpoint_every == 0) {
    checkpoints_->save(position_, train_loader_.state(), *model_.module(), optimizer_);
  }
}

// Each rank tests every world_size-th image, none twice, so that the counts add up exactly.
double Trainer::test_accuracy() {
  test_loader_.start(unisono::EvaluationSampler(test_set_->size(), *group_));
  model_.eval();
  const torch::NoGradGuard no_grad;
  double n_correct = 0;
  double n_images = 0;
  while (std::optional<unisono::Batch> batch = test_loader_.next()) {
    const auto [images, labels] = unisono::as_tensors(std::move(*batch));
    n_correct += model_.module()->forward(images).argmax(1).eq(labels).sum().item<double>();
    n_images += static_cast<double>(images.size(0));
  }
  const torch::Tensor sums = sum_over_ranks(*group_, {n_correct, n_images});
  return sums[0].item<double>() / sums[1].item<double>();
}

void Trainer::print_epoch(int epoch, const EpochResult& result, double accuracy) {
  progress_->record({{"test accuracy", accuracy}});
  std::printf("Rank  %d , epoch  %d :  %.6f\n", group_->rank(), epoch, result.own_loss);
  if (is_first_rank_) {
    std::printf("epoch %d/%d  loss %.4f  test accuracy %.2f%%  %.0f images/s  %.1f s\n",
                epoch + 1,
                options_.epochs,
                result.loss,
                100 * accuracy,
                static_cast<double>(result.n_images) / result.seconds,
                result.seconds);
  }
  std::fflush(stdout);
}

void Trainer::print_report() {
  progress_->set_title("");
  progress_->finish();
  const unisono::StepReport report = model_.report();
  if (is_first_rank_) {
    std::printf("%s\n", report.line().c_str());
    std::fflush(stdout);
  }
}

void Trainer::save() {
  if (options_.model_path.empty()) {
    return;
  }
  unisono::save_on_rank_0(*group_, *model_.module(), options_.model_path);
  if (is_first_rank_) {
    std::printf("saved the model to %s\n", std::filesystem::absolute(options_.model_path).c_str());
    std::fflush(stdout);
  }
}

}  // namespace mnist
