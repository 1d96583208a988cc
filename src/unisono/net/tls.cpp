#include "unisono/net/tls.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <string_view>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/tls1.h>

#include "unisono/base/error.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"

namespace unisono::net {
namespace {

constexpr std::string_view kIdentity = "unisono";

// TLS_AES_128_GCM_SHA256. Its hash must match the hash of the pre-shared key.
constexpr std::array<unsigned char, 2> kCipher{0x13, 0x01};

const unsigned char* raw(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

int int_size(std::size_t size) {
  return static_cast<int>(std::min<std::size_t>(size, std::numeric_limits<int>::max()));
}

// Returns the reason of OpenSSL's first pending error and clears the error queue.
std::string last_reason() {
  const unsigned long code = ::ERR_get_error();
  const char* const reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
  ::ERR_clear_error();
  return reason == nullptr ? "no reason given" : reason;
}

}  // namespace

struct Tls::Parts {
  struct Free {
    void operator()(SSL* connection) const { ::SSL_free(connection); }
  };

  std::unique_ptr<SSL, Free> ssl;
  BIO* from_network = nullptr;  // `ssl` owns both BIOs.
  BIO* to_network = nullptr;
  Proof key{};

  // Creates the session of the pre-shared key, which OpenSSL resumes. OpenSSL frees the session.
  static SSL_SESSION* session_of(SSL* ssl) {
    const auto& key = static_cast<const Parts*>(SSL_get_app_data(ssl))->key;
    SSL_SESSION* const session = ::SSL_SESSION_new();
    if (session == nullptr ||
        ::SSL_SESSION_set1_master_key(
            session, reinterpret_cast<const unsigned char*>(key.data()), key.size()) != 1 ||
        ::SSL_SESSION_set_cipher(session, ::SSL_CIPHER_find(ssl, kCipher.data())) != 1 ||
        ::SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
      ::SSL_SESSION_free(session);
      return nullptr;
    }
    return session;
  }

  static int offer(SSL* ssl,
                   const EVP_MD* /*hash*/,
                   const unsigned char** identity,
                   std::size_t* n_identity_bytes,
                   SSL_SESSION** session) {
    *identity = raw(kIdentity);
    *n_identity_bytes = kIdentity.size();
    *session = session_of(ssl);
    return *session == nullptr ? 0 : 1;
  }

  static int find(SSL* ssl,
                  const unsigned char* identity,
                  std::size_t n_identity_bytes,
                  SSL_SESSION** session) {
    const bool is_ours = std::equal(
        identity, identity + n_identity_bytes, raw(kIdentity), raw(kIdentity) + kIdentity.size());
    *session = is_ours ? session_of(ssl) : nullptr;
    return 1;
  }

  // Never freed: see make_nonce().
  static SSL_CTX* context() {
    static SSL_CTX* const instance = make_context();
    return instance;
  }

  static SSL_CTX* make_context() {
    struct FreeContext {
      void operator()(SSL_CTX* made) const { ::SSL_CTX_free(made); }
    };

    ::ERR_clear_error();
    std::unique_ptr<SSL_CTX, FreeContext> made(::SSL_CTX_new(::TLS_method()));
    const bool is_good =
        made != nullptr && SSL_CTX_set_min_proto_version(made.get(), TLS1_3_VERSION) == 1 &&
        ::SSL_CTX_set_ciphersuites(made.get(), TLS1_3_RFC_AES_128_GCM_SHA256) == 1 &&
        ::SSL_CTX_set_num_tickets(made.get(), 0) == 1;
    if (!is_good) {
      throw Error(ErrorCode::kSystem,
                  "TLS: this system's OpenSSL has no TLS 1.3: " + last_reason());
    }
    ::SSL_CTX_set_options(made.get(), SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(made.get(), SSL_SESS_CACHE_OFF);
    SSL_CTX_set_mode(made.get(), SSL_MODE_RELEASE_BUFFERS);
    ::SSL_CTX_set_psk_use_session_callback(made.get(), offer);
    ::SSL_CTX_set_psk_find_session_callback(made.get(), find);
    return made.release();
  }
};

void Tls::check_usable(const std::string& secret, const std::string& who) {
  if (secret.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: TLS (UNISONO_TLS=on) makes its key from the job's secret, and "
                            "there is none: set UNISONO_SECRET or UNISONO_SECRET_FILE, the same on "
                            "every rank, or UNISONO_TLS=off",
                            who));
  }
  // make_nonce() also disables OpenSSL's cleanup at exit.
  (void)make_nonce();
  (void)Parts::context();
}

Tls::Tls(Side side, const std::string& secret) : parts_(std::make_unique<Parts>()) {
  constexpr std::string_view kPurpose = "unisono TLS 1.3 pre-shared key";
  parts_->key = hmac_sha256(secret, std::as_bytes(std::span(kPurpose)));
  parts_->ssl.reset(::SSL_new(Parts::context()));
  parts_->from_network = ::BIO_new(::BIO_s_mem());
  parts_->to_network = ::BIO_new(::BIO_s_mem());
  if (parts_->ssl == nullptr || parts_->from_network == nullptr || parts_->to_network == nullptr) {
    throw system_error("TLS: no memory for a connection", ENOMEM);
  }
  ::SSL_set_bio(parts_->ssl.get(), parts_->from_network, parts_->to_network);
  SSL_set_app_data(parts_->ssl.get(), parts_.get());
  if (side == Side::kClient) {
    // Rejects a server that offers a certificate instead of the key: no certificate authority is
    // configured.
    ::SSL_set_verify(parts_->ssl.get(), SSL_VERIFY_PEER, nullptr);
    ::SSL_set_connect_state(parts_->ssl.get());
    shake_hands();
  } else {
    ::SSL_set_accept_state(parts_->ssl.get());
  }
}

Tls::~Tls() = default;

void Tls::receive(std::span<const std::byte> bytes) {
  if (bytes.empty() || !problem_.empty()) {
    return;
  }
  const int n = ::BIO_write(parts_->from_network, bytes.data(), int_size(bytes.size()));
  UNISONO_CHECK(n == int_size(bytes.size()), "TLS takes all bytes at once");
  if (!is_established()) {
    shake_hands();
  }
}

void Tls::shake_hands() {
  ::ERR_clear_error();
  if (is_good(::SSL_do_handshake(parts_->ssl.get())) && !is_established()) {
    problem_ = "TLS failed: the other side did not use the key that the job's secret makes";
  }
}

std::size_t Tls::read(std::span<std::byte> bytes) {
  if (bytes.empty() || !problem_.empty() || !is_established()) {
    return 0;
  }
  ::ERR_clear_error();
  const int n = ::SSL_read(parts_->ssl.get(), bytes.data(), int_size(bytes.size()));
  return is_good(n) ? static_cast<std::size_t>(n) : 0;
}

void Tls::write(std::span<const std::byte> bytes) {
  if (!bytes.empty() && problem_.empty()) {
    ::ERR_clear_error();
    (void)is_good(::SSL_write(parts_->ssl.get(), bytes.data(), int_size(bytes.size())));
  }
}

std::vector<std::byte> Tls::take_output() {
  std::vector<std::byte> bytes(::BIO_ctrl_pending(parts_->to_network));
  if (!bytes.empty()) {
    (void)::BIO_read(parts_->to_network, bytes.data(), int_size(bytes.size()));
  }
  return bytes;
}

bool Tls::is_established() const {
  return ::SSL_is_init_finished(parts_->ssl.get()) == 1 &&
         ::SSL_session_reused(parts_->ssl.get()) == 1;
}

// Returns false if no data is available, or if the connection has failed. SSL_get_error() requires
// that the error queue was empty before the call, because other users of OpenSSL on this thread may
// have left errors.
bool Tls::is_good(int result) {
  if (result > 0) {
    return true;
  }
  const int error = ::SSL_get_error(parts_->ssl.get(), result);
  if (error == SSL_ERROR_ZERO_RETURN) {
    problem_ = "the other side ended TLS";
  } else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
    problem_ = is_established() ? fmt::format("TLS failed: {}", last_reason())
                                : fmt::format(
                                      "TLS failed ({}): the other side has another secret "
                                      "(UNISONO_SECRET), or uses another TLS",
                                      last_reason());
  }
  return false;
}

namespace {

constexpr std::size_t kBufferBytes = std::size_t{32} << 10;

void shake_hands(
    Tls& tls, int fd, std::span<std::byte> buffer, Deadline deadline, const std::string& peer) {
  while (true) {
    const std::vector<std::byte> output = tls.take_output();
    net::write_all(fd, output, deadline, peer);
    if (!tls.problem().empty()) {
      throw Error(ErrorCode::kUnauthenticated, fmt::format("{}: {}", peer, tls.problem()));
    }
    if (tls.is_established()) {
      return;
    }
    try {
      const std::size_t n = read_at_least_one(fd, buffer, deadline, peer);
      tls.receive(buffer.first(n));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kPeerLost) {
        throw;
      }
      throw Error(
          error.code(),
          fmt::format(
              "{}, in the handshake of TLS; does the other side use TLS, too (UNISONO_TLS=on)?",
              error.what()));
    }
  }
}

}  // namespace

TlsStream::TlsStream(int fd, const std::string& secret, Deadline deadline, const std::string& peer)
    : fd_(fd), tls_(Tls::Side::kClient, secret), received_(kBufferBytes) {
  shake_hands(tls_, fd, received_, deadline, peer);
}

void TlsStream::write_all(std::span<const std::byte> bytes,
                          Deadline deadline,
                          const std::string& peer) {
  std::vector<std::byte> output;
  {
    const MutexLock lock(mutex_);
    tls_.write(bytes);
    output = tls_.take_output();
  }
  net::write_all(fd_, output, deadline, peer);
}

std::size_t TlsStream::read_some(std::span<std::byte> bytes,
                                 Deadline deadline,
                                 const std::string& peer) {
  while (true) {
    if (const std::size_t n = decrypt(bytes, peer)) {
      return n;
    }
    const std::size_t n = read_by(fd_, received_, deadline, peer);
    if (n == 0) {
      return 0;
    }
    const MutexLock lock(mutex_);
    tls_.receive(std::span(received_).first(n));
  }
}

std::size_t TlsStream::decrypt(std::span<std::byte> bytes, const std::string& peer) {
  const MutexLock lock(mutex_);
  const std::size_t n = tls_.read(bytes);
  if (n == 0 && !tls_.problem().empty()) {
    throw Error(ErrorCode::kPeerLost, fmt::format("{}: {}", peer, tls_.problem()));
  }
  return n;
}

}  // namespace unisono::net
