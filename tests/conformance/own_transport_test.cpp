// Ranks of different nodes that connect through streams registered by the program.
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/net/io.h"
#include "unisono/transport/stream.h"

#include "support/ranks.h"
#include "support/throws_error.h"

namespace unisono {
namespace {

using test::run_ranks;
using ::testing::Each;

std::atomic<std::size_t> n_bytes_written = 0;

// Sends the complement of each byte, so that a plain connection can't parse the data.
class ComplementStream final : public transport::Stream {
 public:
  explicit ComplementStream(Fd socket) : tcp_(std::move(socket)) {}

  [[nodiscard]] net::IoResult write_some(std::span<const std::byte> head,
                                         std::span<const std::byte> rest) noexcept override {
    std::vector<std::byte> bytes(head.begin(), head.end());
    bytes.insert(bytes.end(), rest.begin(), rest.end());
    complement(bytes);
    const net::IoResult result = tcp_.write_some(bytes, {});
    n_bytes_written += result.n_bytes;
    return result;
  }

  [[nodiscard]] net::IoResult read_some(std::span<std::byte> bytes) noexcept override {
    const net::IoResult result = tcp_.read_some(bytes);
    complement(bytes.first(result.n_bytes));
    return result;
  }

  void add_polls(std::vector<pollfd>& polls, bool reads, bool writes) override {
    tcp_.add_polls(polls, reads, writes);
  }

  void end_writing() noexcept override { tcp_.end_writing(); }

  [[nodiscard]] int socket() const noexcept override { return tcp_.socket(); }

  [[nodiscard]] std::string describe(int error_number) const override {
    return tcp_.describe(error_number);
  }

 private:
  static void complement(std::span<std::byte> bytes) {
    std::transform(
        bytes.begin(), bytes.end(), bytes.begin(), [](std::byte value) { return ~value; });
  }

  tcp::TcpStream tcp_;
};

transport::MakeStream prepare_complements() {
  return [](Fd socket) { return std::make_unique<ComplementStream>(std::move(socket)); };
}

class OwnTransport : public ::testing::Test {
 protected:
  OwnTransport() {
    static const bool is_registered = [] {
      transport::register_streams("complement", prepare_complements);
      return true;
    }();
    EXPECT_TRUE(is_registered);
  }

  const test::World world_{.nodes = {"a", "a", "b"},
                           .environment = {{"UNISONO_TRANSPORT", "complement"}}};
};

TEST_F(OwnTransport, CarriesOperationsAndMessages) {
  const std::size_t n_before = n_bytes_written;
  run_ranks(world_, [](ProcessGroup& group) {
    std::vector<float> ones(100'000, 1.0F);
    group.all_reduce(as_buffer(std::span(ones)));
    EXPECT_THAT(ones, Each(3.0F));
    const int next = (group.rank() + 1) % group.world_size();
    const Work sent = group.send_async(as_buffer(std::span(ones)), next);
    std::vector<float> theirs(ones.size());
    (void)group.recv(as_buffer(std::span(theirs)), kAnySource);
    sent.wait();
    EXPECT_EQ(theirs, ones);
  });
  EXPECT_GT(n_bytes_written - n_before, 3 * 100'000 * sizeof(float));
}

TEST_F(OwnTransport, ItsNameIsNotFree) {
  for (const char* const name : {"complement", "tcp", ""}) {
    EXPECT_THROW(transport::register_streams(name, prepare_complements), Error) << name;
  }
}

TEST_F(OwnTransport, IsAmongThoseThatThereAre) {
  EXPECT_THAT([] { (void)transport::find_streams("carrier pigeon"); },
              test::throws_error(ErrorCode::kInvalidArgument, "there are tcp, ucx, complement"));
}

}  // namespace
}  // namespace unisono
