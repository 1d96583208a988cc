#include "unisono/net/tls.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/evperr.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

namespace unisono::net {
namespace {

using ::testing::HasSubstr;

std::string read_all(Tls& tls) {
  std::string text;
  std::vector<std::byte> buffer(1000);
  while (const std::size_t n = tls.read(buffer)) {
    text.append(reinterpret_cast<const char*>(buffer.data()), n);
  }
  return text;
}

// Transfers the output of one side to the other in pieces of at most `n_bytes`. Returns false if
// there was no output.
bool carry(Tls& from, Tls& to, std::size_t n_bytes) {
  const std::vector<std::byte> bytes = from.take_output();
  for (std::size_t i = 0; i < bytes.size(); i += n_bytes) {
    to.receive(std::span(bytes).subspan(i, std::min(n_bytes, bytes.size() - i)));
  }
  return !bytes.empty();
}

void shake_hands(Tls& client, Tls& server, std::size_t n_bytes = 100'000) {
  while (carry(client, server, n_bytes) || carry(server, client, n_bytes)) {
  }
}

void write(Tls& tls, const std::string& text) {
  tls.write(std::as_bytes(std::span(text)));
}

TEST(TlsTest, BothSidesUnderstandEachOtherHoweverTheBytesAreCut) {
  for (const std::size_t n_bytes : {1U, 7U, 100'000U}) {
    Tls client(Tls::Side::kClient, "secret");
    Tls server(Tls::Side::kServer, "secret");
    shake_hands(client, server, n_bytes);
    ASSERT_TRUE(client.is_established()) << client.problem();
    ASSERT_TRUE(server.is_established()) << server.problem();
    const std::string large(100'000, 'x');
    write(client, "hello");
    write(client, large);
    write(server, "welcome");
    (void)carry(client, server, n_bytes);
    (void)carry(server, client, n_bytes);
    EXPECT_EQ(read_all(server), "hello" + large);
    EXPECT_EQ(read_all(client), "welcome");
    EXPECT_EQ(client.problem() + server.problem(), "");
  }
}

TEST(TlsTest, WhatIsSentCantBeReadNorChanged) {
  Tls client(Tls::Side::kClient, "secret");
  Tls server(Tls::Side::kServer, "secret");
  shake_hands(client, server);
  const std::string text = "a message that nobody else can read";
  write(client, text);
  std::vector<std::byte> bytes = client.take_output();
  const std::string sealed(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  EXPECT_EQ(sealed.find("nobody"), std::string::npos);
  bytes.back() ^= std::byte{1};
  server.receive(bytes);
  EXPECT_EQ(read_all(server), "");
  EXPECT_THAT(server.problem(), HasSubstr("TLS failed"));
}

TEST(TlsTest, AnotherSecretEndsItOnBothSides) {
  Tls client(Tls::Side::kClient, "secret");
  Tls server(Tls::Side::kServer, "another");
  shake_hands(client, server);
  EXPECT_FALSE(client.is_established());
  EXPECT_FALSE(server.is_established());
  EXPECT_THAT(server.problem(), HasSubstr("another secret"));
  EXPECT_THAT(client.problem(), HasSubstr("another secret"));
}

TEST(TlsTest, WhatIsNoTlsEndsIt) {
  Tls server(Tls::Side::kServer, "secret");
  const std::string text = "GET / HTTP/1.1\r\n\r\n";
  server.receive(std::as_bytes(std::span(text)));
  EXPECT_THAT(server.problem(), HasSubstr("TLS failed"));
}

// A TLS 1.3 server without the key but with a certificate, which any process can create.
class ServerWithACertificate {
 public:
  ServerWithACertificate() : context_(::SSL_CTX_new(::TLS_server_method())) {
    EVP_PKEY* const key = ::EVP_EC_gen("P-256");
    X509* const certificate = ::X509_new();
    ASN1_INTEGER_set(::X509_get_serialNumber(certificate), 1);
    ::X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    ::X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
    ::X509_set_pubkey(certificate, key);
    ::X509_sign(certificate, key, ::EVP_sha256());
    EXPECT_EQ(::SSL_CTX_use_certificate(context_, certificate), 1);
    EXPECT_EQ(::SSL_CTX_use_PrivateKey(context_, key), 1);
    ::X509_free(certificate);
    ::EVP_PKEY_free(key);
    ssl_ = ::SSL_new(context_);
    ::SSL_set_bio(ssl_, ::BIO_new(::BIO_s_mem()), ::BIO_new(::BIO_s_mem()));
    ::SSL_set_accept_state(ssl_);
  }

  ~ServerWithACertificate() {
    ::SSL_free(ssl_);
    ::SSL_CTX_free(context_);
    ::ERR_clear_error();
  }

  ServerWithACertificate(const ServerWithACertificate&) = delete;
  ServerWithACertificate& operator=(const ServerWithACertificate&) = delete;
  ServerWithACertificate(ServerWithACertificate&&) = delete;
  ServerWithACertificate& operator=(ServerWithACertificate&&) = delete;

  // Returns the server's reply.
  std::vector<std::byte> say(const std::vector<std::byte>& bytes) {
    ::BIO_write(::SSL_get_rbio(ssl_), bytes.data(), static_cast<int>(bytes.size()));
    (void)::SSL_do_handshake(ssl_);
    std::vector<std::byte> answer(::BIO_ctrl_pending(::SSL_get_wbio(ssl_)));
    ::BIO_read(::SSL_get_wbio(ssl_), answer.data(), static_cast<int>(answer.size()));
    return answer;
  }

 private:
  SSL_CTX* context_;
  SSL* ssl_;
};

TEST(TlsTest, AServerWithACertificateInsteadOfTheSecretIsNotBelieved) {
  Tls client(Tls::Side::kClient, "secret");
  ServerWithACertificate server;
  for (std::vector<std::byte> answer = server.say(client.take_output()); !answer.empty();
       answer = server.say(client.take_output())) {
    client.receive(answer);
  }
  EXPECT_FALSE(client.is_established());
  EXPECT_THAT(client.problem(), HasSubstr("TLS failed"));
}

TEST(TlsTest, ErrorsThatOthersLeftAreNotItsOwn) {
  Tls client(Tls::Side::kClient, "secret");
  Tls server(Tls::Side::kServer, "secret");
  ERR_raise(ERR_LIB_EVP, EVP_R_BAD_DECRYPT);
  shake_hands(client, server);
  ASSERT_TRUE(server.is_established());
  ERR_raise(ERR_LIB_EVP, EVP_R_BAD_DECRYPT);
  EXPECT_EQ(read_all(client), "");
  EXPECT_EQ(client.problem(), "");
  ERR_raise(ERR_LIB_EVP, EVP_R_BAD_DECRYPT);
  write(client, "hello");
  (void)carry(client, server, 1000);
  EXPECT_EQ(read_all(server), "hello");
}

TEST(TlsTest, ATlsClientBeginsWithItsByte) {
  Tls client(Tls::Side::kClient, "secret");
  const std::vector<std::byte> bytes = client.take_output();
  ASSERT_FALSE(bytes.empty());
  EXPECT_EQ(bytes.front(), kTlsByte);
}

}  // namespace
}  // namespace unisono::net
