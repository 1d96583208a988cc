#include "unisono/net/proof.h"

#include <cerrno>
#include <cstddef>
#include <span>
#include <string_view>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include "unisono/base/error.h"

namespace unisono::net {
namespace {

// A program may end without destroying its groups: then their threads run to the very end, and must
// find OpenSSL's tables, which it would free at exit.
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
  // An empty key must still be a pointer, else OpenSSL takes it for "the key of the last call".
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

}  // namespace unisono::net
