// The certificate of a task, and the authority that all tasks trust.
#ifndef OPS_TRANSPORT_TCP_TLS_CONTEXT_H_
#define OPS_TRANSPORT_TCP_TLS_CONTEXT_H_

#include <memory>
#include <string>

#include "ops/base/status.h"
#include "ops/transport/tcp/openssl.h"

namespace tf_strategies::tcp {

// The name that each certificate of a cluster must have among its alternative names.
constexpr char kClusterName[] = "tf-strategies";

class TlsContext {
 public:
  // Reads ca.crt, task.crt and task.key of a folder, all PEM. Connections will use TLS 1.3 alone, without resumption, and require
  // a certificate of the peer.
  static Status Open(const std::string& folder, std::shared_ptr<const TlsContext>* context);

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  const openssl::Api& api() const { return api_; }
  openssl::SslContext* get() const { return context_; }

 private:
  TlsContext(const openssl::Api& api, openssl::SslContext* context) : api_(api), context_(context) {}

  Status Restrict();
  Status Read(const std::string& folder);

  const openssl::Api& api_;
  openssl::SslContext* const context_;
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_TLS_CONTEXT_H_
