#include "unisono/net/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/net/proof.h"

namespace unisono::net {
namespace {

// "\xF5unisono", u16 version, u16 bytes of the body: the same in every version.
constexpr std::array<std::byte, 8> kMagic{kHelloByte,
                                          std::byte{'u'},
                                          std::byte{'n'},
                                          std::byte{'i'},
                                          std::byte{'s'},
                                          std::byte{'o'},
                                          std::byte{'n'},
                                          std::byte{'o'}};
constexpr std::size_t kPrefixBytes = kMagic.size() + 2 * sizeof(std::uint16_t);
constexpr std::size_t kMaxBodyBytes = 4096;

// Followed by the server's proof, or by as many zeros, so that the client reads one form only.
enum class Verdict : std::uint8_t { kAccepted = 0, kWrongSecret = 1 };

std::vector<std::byte> make_greeting(const HelloInfo& info) {
  ByteWriter body;
  body.put_raw(make_nonce());
  body.put_string(info.job);
  body.put_string(info.purpose);
  body.put(info.rank);
  body.put(info.group);
  ByteWriter greeting;
  greeting.put_raw(kMagic);
  greeting.put(kProtocolVersion);
  greeting.put(static_cast<std::uint16_t>(body.bytes().size()));
  greeting.put_raw(body.bytes());
  return std::move(greeting).bytes();
}

std::optional<HelloInfo> parse_body(std::span<const std::byte> body) {
  if (body.size() < kNonceBytes) {
    return std::nullopt;
  }
  ByteReader reader(body.subspan(kNonceBytes));
  std::optional<std::string> job = reader.get_string(kMaxJobBytes);
  std::optional<std::string> purpose = job ? reader.get_string(kMaxPurposeBytes) : std::nullopt;
  const auto rank = purpose ? reader.get<std::int32_t>() : std::nullopt;
  const auto group = rank ? reader.get<std::uint32_t>() : std::nullopt;
  if (!group || !reader.rest().empty()) {
    return std::nullopt;
  }
  return HelloInfo{
      .job = std::move(*job), .purpose = std::move(*purpose), .rank = *rank, .group = *group};
}

}  // namespace

Hello::Hello(Side side, std::string secret, HelloInfo mine)
    : side_(side), secret_(std::move(secret)), n_wanted_(kPrefixBytes) {
  if (mine.job.size() > kMaxJobBytes || mine.purpose.size() > kMaxPurposeBytes) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("hello: the job's name (\"{}\") may have {} bytes, the purpose (\"{}\") {}",
                    mine.job,
                    kMaxJobBytes,
                    mine.purpose,
                    kMaxPurposeBytes));
  }
  my_greeting_ = make_greeting(mine);
  if (side_ == Side::kClient) {
    send_greeting();
  }
}

std::size_t Hello::feed(std::span<const std::byte> bytes) {
  std::size_t n_taken = 0;
  while (step_ != Step::kOver) {
    const std::size_t n = std::min(n_bytes_wanted(), bytes.size() - n_taken);
    const std::span<const std::byte> part = bytes.subspan(n_taken, n);
    input_.insert(input_.end(), part.begin(), part.end());
    n_taken += n;
    if (n_bytes_wanted() > 0) {
      break;
    }
    switch (step_) {
      case Step::kPrefix:
        take_prefix();
        break;
      case Step::kBody:
        take_body();
        break;
      case Step::kProof:
        take_proof();
        break;
      case Step::kOver:
        break;
    }
  }
  return n_taken;
}

std::size_t Hello::n_bytes_wanted() const {
  return step_ == Step::kOver ? 0 : n_wanted_ - input_.size();
}

std::vector<std::byte> Hello::take_output() {
  return std::exchange(output_, {});
}

const HelloInfo& Hello::theirs() const {
  UNISONO_CHECK(state_ == State::kDone, "a hello that is not done was asked for its peer");
  return theirs_;
}

const Error& Hello::error() const {
  UNISONO_CHECK(error_.has_value(), "a hello that did not fail was asked for its error");
  return *error_;
}

void Hello::take_prefix() {
  if (!std::equal(kMagic.begin(), kMagic.end(), input_.begin())) {
    fail(ErrorCode::kCorruptData, "the other side does not speak this library's protocol");
    return;
  }
  ByteReader reader(std::span<const std::byte>(input_).subspan(kMagic.size()));
  their_version_ = reader.get<std::uint16_t>().value_or(0);
  const std::uint16_t n_body = reader.get<std::uint16_t>().value_or(0);
  if (n_body > kMaxBodyBytes) {
    fail(ErrorCode::kCorruptData, fmt::format("the hello's body claims {} bytes", n_body));
    return;
  }
  their_greeting_ = input_;
  expect(Step::kBody, n_body);
}

void Hello::take_body() {
  // Only now, since closing a socket that has unread bytes would take our greeting back.
  if (their_version_ != kProtocolVersion) {
    if (side_ == Side::kServer) {
      send_greeting();
    }
    fail(ErrorCode::kIncompatible,
         fmt::format("the other side speaks protocol version {}, this one {}; all ranks need the "
                     "same release of unisono",
                     their_version_,
                     kProtocolVersion));
    return;
  }
  std::optional<HelloInfo> info = parse_body(input_);
  if (!info) {
    fail(ErrorCode::kCorruptData, "the hello's body is malformed");
    return;
  }
  theirs_ = std::move(*info);
  their_greeting_.insert(their_greeting_.end(), input_.begin(), input_.end());
  if (side_ == Side::kServer) {
    send_greeting();
    expect(Step::kProof, kProofBytes);
  } else {
    send_proof();
    expect(Step::kProof, 1 + kProofBytes);
  }
}

// The server learns the client's proof first, so that it gives nothing to whoever can't prove.
void Hello::take_proof() {
  std::span<const std::byte> proof(input_);
  if (side_ == Side::kClient) {
    const auto verdict = static_cast<Verdict>(proof.front());
    proof = proof.subspan(1);
    if (verdict != Verdict::kAccepted) {
      fail(ErrorCode::kUnauthenticated,
           "the other side has another secret than this one (UNISONO_SECRET, UNISONO_SECRET_FILE)");
      return;
    }
  }
  const Side other = side_ == Side::kClient ? Side::kServer : Side::kClient;
  if (!is_equal_secret(proof, proof_of(other))) {
    fail(ErrorCode::kUnauthenticated,
         "the other side did not prove that it knows the job's secret (UNISONO_SECRET, "
         "UNISONO_SECRET_FILE)");
    return;
  }
  if (side_ == Side::kServer) {
    output_.push_back(static_cast<std::byte>(Verdict::kAccepted));
    send_proof();
  }
  input_.clear();
  step_ = Step::kOver;
  state_ = State::kDone;
}

void Hello::expect(Step step, std::size_t n_bytes) {
  input_.clear();
  step_ = step;
  n_wanted_ = n_bytes;
}

void Hello::fail(ErrorCode code, const std::string& message) {
  if (side_ == Side::kServer && step_ == Step::kProof) {
    output_.push_back(static_cast<std::byte>(Verdict::kWrongSecret));
    output_.resize(output_.size() + kProofBytes);
  }
  error_.emplace(code, message);
  step_ = Step::kOver;
  state_ = State::kFailed;
}

void Hello::send_greeting() {
  output_.insert(output_.end(), my_greeting_.begin(), my_greeting_.end());
}

void Hello::send_proof() {
  const Proof proof = proof_of(side_);
  output_.insert(output_.end(), proof.begin(), proof.end());
}

Proof Hello::proof_of(Side side) const {
  const bool is_client = side_ == Side::kClient;
  ByteWriter message;
  message.put_string(side == Side::kClient ? "client" : "server");
  message.put_raw(is_client ? my_greeting_ : their_greeting_);
  message.put_raw(is_client ? their_greeting_ : my_greeting_);
  return hmac_sha256(secret_, message.bytes());
}

}  // namespace unisono::net
