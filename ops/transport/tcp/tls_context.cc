#include "ops/transport/tcp/tls_context.h"

namespace tf_strategies::tcp {
namespace {

// AES-128-GCM first: with AES instructions it is the fastest.
constexpr char kCiphers[] = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

Status TlsContext::Open(const std::string& folder, std::shared_ptr<const TlsContext>* context) {
  const openssl::Api* api = nullptr;
  TFS_RETURN_IF_ERROR(openssl::Load(&api));
  api->ERR_clear_error();
  openssl::SslContext* const made = api->SSL_CTX_new(api->TLS_method());
  if (made == nullptr) return Internal("OpenSSL makes no context: " + openssl::TakeReason(*api));
  std::shared_ptr<TlsContext> opened(new TlsContext(*api, made));
  TFS_RETURN_IF_ERROR(opened->Restrict());
  TFS_RETURN_IF_ERROR(opened->Read(folder));
  *context = std::move(opened);
  return Status::Ok();
}

TlsContext::~TlsContext() { api_.SSL_CTX_free(context_); }

Status TlsContext::Restrict() {
  using namespace openssl;
  const bool restricted = api_.SSL_CTX_ctrl(context_, kControlLeastVersion, kTls13, nullptr) == 1 &&
                          api_.SSL_CTX_set_ciphersuites(context_, kCiphers) == 1 &&
                          api_.SSL_CTX_set_num_tickets(context_, 0) == 1;
  if (!restricted) return Internal("OpenSSL cannot be told to use TLS 1.3 alone: " + TakeReason(api_));
  api_.SSL_CTX_ctrl(context_, kControlSessionCache, 0, nullptr);
  api_.SSL_CTX_ctrl(context_, kControlMode, kModePartialWrite | kModeMovingBuffer, nullptr);
  api_.SSL_CTX_set_verify(context_, kVerifyPeer | kVerifyFailIfNoPeerCertificate, nullptr);
  api_.SSL_CTX_set_default_passwd_cb(context_, NoPassword);
  return Status::Ok();
}

Status TlsContext::Read(const std::string& folder) {
  const std::string authority = folder + "/ca.crt", certificate = folder + "/task.crt",
                    key = folder + "/task.key";
  const auto failed = [this](const std::string& file) {
    return InvalidArgument(file + " cannot be used for TLS: " + openssl::TakeReason(api_));
  };
  if (api_.SSL_CTX_load_verify_locations(context_, authority.c_str(), nullptr) != 1) return failed(authority);
  if (api_.SSL_CTX_use_certificate_chain_file(context_, certificate.c_str()) != 1) return failed(certificate);
  if (api_.SSL_CTX_use_PrivateKey_file(context_, key.c_str(), openssl::kFilePem) != 1 ||
      api_.SSL_CTX_check_private_key(context_) != 1) {
    return failed(key);
  }
  return Status::Ok();
}

}  // namespace tf_strategies::tcp
