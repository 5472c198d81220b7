#include "ops/transport/tcp/openssl.h"

#include <dlfcn.h>

#include <utility>

namespace tf_strategies::tcp::openssl {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(RTLD_DEEPBIND)
constexpr int kOwnSymbolsFirst = 0;  // sanitizers do not allow it, and only glibc has it
#else
constexpr int kOwnSymbolsFirst = RTLD_DEEPBIND;
#endif

struct Loaded {
  Status status;
  Api api{};
};

class Library {
 public:
  explicit Library(void* handle) : handle_(handle) {}

  template <typename Function>
  void Find(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*function == nullptr && missing_.empty()) missing_ = name;
  }

  const std::string& missing() const { return missing_; }

 private:
  void* const handle_;
  std::string missing_;
};

// Looks in libssl, whose dependency libcrypto is searched with it.
Status Fill(void* handle, Api* api) {
  Library library(handle);
#define TFS_FIND(name) library.Find(#name, &api->name)
  TFS_FIND(TLS_method);
  TFS_FIND(SSL_CTX_new);
  TFS_FIND(SSL_CTX_free);
  TFS_FIND(SSL_CTX_ctrl);
  TFS_FIND(SSL_CTX_set_num_tickets);
  TFS_FIND(SSL_CTX_set_ciphersuites);
  TFS_FIND(SSL_CTX_set_default_passwd_cb);
  TFS_FIND(SSL_CTX_load_verify_locations);
  TFS_FIND(SSL_CTX_use_certificate_chain_file);
  TFS_FIND(SSL_CTX_use_PrivateKey_file);
  TFS_FIND(SSL_CTX_check_private_key);
  TFS_FIND(SSL_CTX_set_verify);
  TFS_FIND(SSL_new);
  TFS_FIND(SSL_free);
  TFS_FIND(SSL_set_bio);
  TFS_FIND(SSL_set1_host);
  TFS_FIND(SSL_set_accept_state);
  TFS_FIND(SSL_set_connect_state);
  TFS_FIND(SSL_do_handshake);
  TFS_FIND(SSL_read);
  TFS_FIND(SSL_write);
  TFS_FIND(SSL_shutdown);
  TFS_FIND(SSL_get_error);
  TFS_FIND(SSL_get_verify_result);
  TFS_FIND(BIO_meth_new);
  TFS_FIND(BIO_meth_set_read);
  TFS_FIND(BIO_meth_set_write);
  TFS_FIND(BIO_meth_set_ctrl);
  TFS_FIND(BIO_new);
  TFS_FIND(BIO_set_init);
  TFS_FIND(BIO_set_data);
  TFS_FIND(BIO_get_data);
  TFS_FIND(BIO_set_flags);
  TFS_FIND(BIO_clear_flags);
  TFS_FIND(ERR_get_error);
  TFS_FIND(ERR_clear_error);
  TFS_FIND(ERR_reason_error_string);
  TFS_FIND(X509_verify_cert_error_string);
#undef TFS_FIND
  if (library.missing().empty()) return Status::Ok();
  return FailedPrecondition("libssl has no function " + library.missing() +
                            ": OpenSSL 1.1.1 or 3.x is needed");
}

// TensorFlow has a BoringSSL, whose functions have the same names. So libssl keeps its own to itself, and prefers them.
Loaded LoadNow() {
  Loaded loaded;
  std::string reasons;
  for (const char* name : {"libssl.so.3", "libssl.so.1.1"}) {
    void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | kOwnSymbolsFirst);
    if (handle != nullptr) {
      loaded.status = Fill(handle, &loaded.api);
      return loaded;
    }
    const char* const reason = dlerror();
    reasons += std::string(reasons.empty() ? "" : "; ") + (reason == nullptr ? name : reason);
  }
  loaded.status = FailedPrecondition("TLS needs OpenSSL 3 or 1.1.1, which cannot be loaded (" + reasons +
                                     "); install it (Debian: libssl3)");
  return loaded;
}

}  // namespace

Status Load(const Api** api) {
  static const Loaded* const loaded = new Loaded(LoadNow());
  *api = &loaded->api;
  return loaded->status;
}

std::string TakeReason(const Api& api) {
  const unsigned long error = api.ERR_get_error();
  api.ERR_clear_error();
  if (error == 0) return "";
  const char* const reason = api.ERR_reason_error_string(error);
  return reason == nullptr ? "error " + std::to_string(error) : reason;
}

}  // namespace tf_strategies::tcp::openssl
