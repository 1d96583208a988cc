// Data parallel training of a convnet on MNIST or Fashion-MNIST:
//
//     unisono run -n 2 mnist --epochs 3
#include <chrono>
#include <cstdint>
#include <utility>

#include <torch/nn/functional/loss.h>
#include <torch/utils.h>
#include <unisono/datasets.h>
#include <unisono/torch.h>

#include "../mnist.h"
#include "../training.h"
#include "checkpoints.h"
#include "console.h"

namespace {

using unisono::datasets::Split;

void train(const mnist::Options& options) {
  const auto group = unisono::init_process_group();

  // Load: each rank gets a share of the training images and a share of the test images.
  const auto [images, test_images] = examples::on_every_rank(*group, [&] {
    return std::pair(examples::load_mnist(options.data, Split::kTrain, options.limit),
                     examples::load_mnist(options.data, Split::kTest, options.limit));
  });
  unisono::DistributedSampler sampler(images->size(), *group, {.seed = options.seed});
  const unisono::EvaluationSampler test_sampler(test_images->size(), *group);
  unisono::DataLoader loader(images,
                             {.batch_size = options.batch_size, .num_workers = options.workers});
  unisono::DataLoader test_loader(
      test_images, {.batch_size = options.test_batch_size, .num_workers = options.workers});
  unisono::check_shares(*group, sampler);
  if (!options.model_path.empty()) {
    unisono::check_can_save_on_rank_0(*group, options.model_path);
  }

  // Wrap: all ranks begin with the same parameters. Dropout differs between the ranks.
  torch::manual_seed(options.seed);
  unisono::DistributedDataParallel model(examples::ConvNet(), group);
  unisono::optim::Adadelta optimizer(model.parameters(),
                                     unisono::optim::AdadeltaOptions(options.lr));
  unisono::optim::LrScheduler scheduler(optimizer, unisono::optim::step_lr(1, options.gamma));
  torch::manual_seed(options.seed + 1 + group->rank());

  // Resume from the latest checkpoint if the option --resume is given.
  mnist::Checkpoints checkpoints(group, options);
  mnist::Position position = checkpoints.resume(*model.module(), optimizer);
  const auto progress = mnist::open_progress(*group, options, sampler.num_samples(), position.step);
  mnist::print_start(*group, options, images->size(), test_images->size());

  // Loop: an epoch is a training and a test.
  for (; position.epoch < options.epochs; position.begin_next_epoch()) {
    const auto start = std::chrono::steady_clock::now();
    std::int64_t n_images = 0;
    progress->set_title(mnist::title_of(options, position.epoch));
    sampler.set_epoch(position.epoch);
    scheduler.set_step(position.epoch);
    loader.start(sampler, position.loader);
    model.train();
    while (auto batch = loader.next()) {
      const auto [samples, labels] = unisono::as_tensors(std::move(*batch));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::nll_loss(model(samples), labels);
      loss.backward();
      optimizer.step();
      position.add_step(loss.item<double>(), loader.state());
      checkpoints.save_if_due(position, *model.module(), optimizer);
      n_images += samples.size(0) * group->world_size();
      progress->step({{"loss", position.mean_loss()}}, samples.size(0) * group->world_size());
    }
    progress->clear();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    const double loss = examples::mean_over_ranks(*group, position.mean_loss(), 1);
    model.eval();
    test_loader.start(test_sampler);
    const double accuracy = examples::test_accuracy(*group, test_loader, model.module());
    progress->record({{"test accuracy", accuracy}});
    mnist::print_epoch(*group,
                       options,
                       {.epoch = position.epoch,
                        .own_loss = position.mean_loss(),
                        .loss = loss,
                        .accuracy = accuracy,
                        .n_images = static_cast<double>(n_images),
                        .seconds = time.count()});
  }
  checkpoints.wait();
  progress->set_title("");
  progress->finish();
  mnist::print_end(*group, options, model.report(), model.parameters());

  // Save.
  if (!options.model_path.empty()) {
    unisono::save_on_rank_0(*group, *model.module(), options.model_path);
    mnist::print_saved(*group, options);
  }
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  const mnist::Options options = mnist::parse_options(argc, argv);
  return examples::exit_code_of("mnist", [&] { train(options); });
}
