#include "unisono/net/hello.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "unisono/base/bytes.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

// Disables OpenSSL's cleanup at exit. A program may end without destroying its groups; the groups'
// threads then run until the process ends and still need OpenSSL's tables.
void keep_openssl_until_the_end() {
  static const bool is_kept = OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) == 1;
  UNISONO_CHECK(is_kept, "OpenSSL can't be initialized");
}

}  // namespace

Nonce make_nonce() {
  keep_openssl_until_the_end();
  Nonce nonce{};
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), static_cast<int>(nonce.size())) !=
      1) {
    throw system_error("draw random bytes", EIO);
  }
  return nonce;
}

Proof hmac_sha256(std::string_view secret, std::span<const std::byte> message) {
  keep_openssl_until_the_end();
  Proof proof{};
  std::size_t size = 0;
  // An empty key must be a non-null pointer, because OpenSSL interprets null as "the key of the
  // last call".
  const char* key = secret.empty() ? "" : secret.data();
  const unsigned char* result = EVP_Q_mac(nullptr,
                                          "HMAC",
                                          nullptr,
                                          "SHA256",
                                          nullptr,
                                          key,
                                          secret.size(),
                                          reinterpret_cast<const unsigned char*>(message.data()),
                                          message.size(),
                                          reinterpret_cast<unsigned char*>(proof.data()),
                                          proof.size(),
                                          &size);
  UNISONO_CHECK(result != nullptr && size == proof.size(), "HMAC-SHA256 failed in OpenSSL");
  return proof;
}

bool is_equal_secret(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

namespace {

// Prefix of a greeting in every version: "\xF5unisono", u16 version, u16 size of the body in bytes.
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

// Precedes the server's proof, or as many zeros, so that the client reads one message format.
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
    fail(ErrorCode::kCorruptData, "the other side does not use this library's protocol");
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
  // The version is checked after the body was read: closing a socket with unread bytes would reset
  // the connection, and the peer would lose our greeting.
  if (their_version_ != kProtocolVersion) {
    if (side_ == Side::kServer) {
      send_greeting();
    }
    fail(ErrorCode::kIncompatible,
         fmt::format("the other side uses protocol version {}, this one {}; all ranks need the "
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

// The server verifies the client's proof first, so that a client without the secret receives no
// proof.
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
         "the other side did not authenticate with the job's secret (UNISONO_SECRET, "
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

namespace {

HelloInfo say(Hello::Side side,
              const HelloChannel& channel,
              const std::string& secret,
              const HelloInfo& mine,
              const std::string& peer) {
  Hello hello(side, secret, mine);
  std::vector<std::byte> input;
  for (;;) {
    channel.write(hello.take_output());
    if (hello.state() != Hello::State::kRunning) {
      break;
    }
    input.resize(hello.n_bytes_wanted());
    channel.read(input);
    [[maybe_unused]] const std::size_t n_taken = hello.feed(input);
  }
  if (hello.state() == Hello::State::kFailed) {
    throw Error(hello.error().code(), peer + ": " + hello.error().what());
  }
  return hello.theirs();
}

HelloInfo say(
    Hello::Side side, int fd, const std::string& secret, const HelloInfo& mine, Deadline deadline) {
  const std::string peer = "hello (" + mine.purpose + ") with " + describe_peer(fd);
  const HelloChannel channel{
      .write = [&](std::span<const std::byte> bytes) { write_all(fd, bytes, deadline, peer); },
      .read = [&](std::span<std::byte> bytes) { read_exact(fd, bytes, deadline, peer); }};
  return say(side, channel, secret, mine, peer);
}

}  // namespace

HelloInfo connect_hello(const HelloChannel& channel,
                        const std::string& secret,
                        const HelloInfo& mine,
                        const std::string& peer) {
  return say(Hello::Side::kClient, channel, secret, mine, peer);
}

HelloInfo connect_hello(int fd,
                        const std::string& secret,
                        const HelloInfo& mine,
                        Deadline deadline) {
  return say(Hello::Side::kClient, fd, secret, mine, deadline);
}

HelloInfo accept_hello(int fd,
                       const std::string& secret,
                       const HelloInfo& mine,
                       Deadline deadline) {
  return say(Hello::Side::kServer, fd, secret, mine, deadline);
}

}  // namespace unisono::net
