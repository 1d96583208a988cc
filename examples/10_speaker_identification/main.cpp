// Who speaks? A trainer that starts its workers itself, in the manner of voxceleb_trainer; from
// recordings of six speakers, which make_lists.py unpacks into a folder:
//
//     make_lists.py fsdd_recordings.tar.gz sounds
//     speaker_identification --distributed --nprocs 2 --syncBN --train_path sounds
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/adam.h>
#include <torch/utils.h>

#include "unisono/base/error_text.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/sounds/sound_crops.h"
#include "unisono/data/sounds/wav_list.h"
#include "unisono/launch/spawn_ranks.h"
#include "unisono/report/progress.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"
#include "unisono/torch/nn/sync_batch_norm.h"
#include "unisono/torch/tensor/batch_tensors.h"
#include "unisono/torch/tensor/tensor.h"

#include "options.h"
#include "speaker_net.h"

namespace {

using Model = unisono::DistributedDataParallel<torch::nn::Sequential>;

// Half a second of each recording, as log-mel power.
std::shared_ptr<unisono::SoundCrops> load(const Options& args, const char* list, bool random) {
  constexpr std::int64_t kRate = 8'000;
  const std::string path = args.train_path + "/" + list;
  return std::make_shared<unisono::SoundCrops>(
      std::make_shared<unisono::WavList>(path, args.train_path, kRate),
      unisono::SoundCropOptions{.n_samples = kRate / 2,
                                .random = random,
                                .log_mel = unisono::LogMelOptions{.sample_rate = kRate,
                                                                  .window = kRate / 40,
                                                                  .hop = kRate / 100,
                                                                  .n_fft = 256,
                                                                  .n_mels = kFeatures,
                                                                  .f_max = kRate / 2.0}});
}

// Where the workers meet: at the port, or where spawn() has them meet.
unisono::InitOptions session(int rank, const Options& args) {
  if (args.port == 0) {
    return {};
  }
  return {.init_method = "tcp://127.0.0.1:" + std::to_string(args.port) + "?rank=" +
                         std::to_string(rank) + "&world_size=" + std::to_string(args.nprocs)};
}

// Of all workers' test recordings, in percent.
double test_accuracy(unisono::ProcessGroup& group, Model& model, const Options& args) {
  const auto sounds = load(args, "test_list.txt", false);
  unisono::DataLoader loader(sounds, {.batch_size = 100});
  loader.start(unisono::EvaluationSampler(sounds->size(), group));
  const torch::NoGradGuard no_grad;
  model.eval();
  torch::Tensor n_correct = torch::zeros(1, torch::kDouble);
  while (std::optional<unisono::Batch> batch = loader.next()) {
    const auto [data, speakers] = unisono::as_tensors(std::move(*batch));
    n_correct += model.module()->forward(data.transpose(1, 2)).argmax(1).eq(speakers).sum();
  }
  model.train();
  unisono::all_reduce(group, n_correct);
  return 100 * n_correct.item<double>() / static_cast<double>(sounds->size());
}

void main_worker(int rank, const Options& args) {
  const auto group = unisono::init_process_group(session(rank, args));
  const auto sounds = load(args, "train_list.txt", true);
  torch::manual_seed(1);
  torch::nn::Sequential net = make_speaker_net();
  if (args.sync_bn) {
    std::vector<int> all(static_cast<std::size_t>(group->world_size()));
    std::iota(all.begin(), all.end(), 0);
    unisono::nn::convert_sync_batchnorm(*net, group->new_group(all));
    std::printf("----syncBN----\n");
  }
  Model model(net, group);
  std::printf("Loaded the model on CPU %d\n", args.distributed ? rank : args.gpu);
  std::fflush(stdout);

  torch::optim::Adam optimizer(model.parameters(), torch::optim::AdamOptions(args.lr));
  unisono::DistributedSampler sampler(sounds->size(), *group);
  unisono::DataLoader loader(sounds,
                             {.batch_size = args.batch_size,
                              .num_workers = args.n_data_loader_threads,
                              .drop_last = true});
  unisono::Progress progress(
      *group, {.format = unisono::ProgressFormat::kNone, .json_file = args.json_file});
  for (int epoch = 0; epoch < args.epochs; ++epoch) {
    sampler.set_epoch(epoch);
    sounds->set_epoch(epoch);
    loader.start(sampler);
    double loss_sum = 0;
    while (std::optional<unisono::Batch> batch = loader.next()) {
      const auto [data, speakers] = unisono::as_tensors(std::move(*batch));
      optimizer.zero_grad();
      const torch::Tensor loss = torch::cross_entropy_loss(model(data.transpose(1, 2)), speakers);
      loss.backward();
      optimizer.step();
      loss_sum += loss.item<double>();
      progress.step({{"loss", loss.item<double>()}}, data.size(0) * group->world_size());
    }
    const double accuracy = test_accuracy(*group, model, args);
    std::printf("worker %d of %d, epoch %d: loss %.4f, test accuracy %.2f%%\n",
                rank,
                group->world_size(),
                epoch,
                loss_sum / static_cast<double>(loader.n_batches()),
                accuracy);
    std::fflush(stdout);
  }
  model.check_consistent();
  unisono::destroy_process_group();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options args = parse_options(argc, argv);
    unisono::spawn(main_worker, std::tuple(args), {.nprocs = args.nprocs});
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "speaker_identification: %s\n", unisono::error_text(error).c_str());
    return 1;
  }
}
