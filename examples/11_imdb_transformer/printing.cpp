#include "printing.h"

#include <chrono>
#include <cstdio>
#include <string>

#include "options.h"
#include "reviews.h"

namespace imdb {

void print_start(const Options& options, const Reviews& reviews, const std::string& how) {
  std::printf(
      "%lld training and %lld test reviews, %lld tokens, %s, batches of %d in %d "
      "chunk%s\n",
      static_cast<long long>(reviews.train->size()),
      static_cast<long long>(reviews.test->size()),
      static_cast<long long>(reviews.ntokens),
      how.c_str(),
      options.batch_size,
      options.chunks,
      options.chunks == 1 ? "" : "s");
  std::fflush(stdout);
}

void print_epoch(const Options& options,
                 const Epoch& epoch,
                 std::chrono::steady_clock::time_point start) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("epoch %d/%d  loss %.4f  test accuracy %.2f%%  %.1f s\n",
              epoch.number + 1,
              options.epochs,
              epoch.loss,
              100 * epoch.accuracy,
              seconds.count());
  std::fflush(stdout);
}

}  // namespace imdb
