// The bytes of a connection over TLS 1.3. Both ends prove that the authority of the cluster knows them.
#ifndef OPS_TRANSPORT_TCP_TLS_STREAM_H_
#define OPS_TRANSPORT_TCP_TLS_STREAM_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "ops/transport/tcp/stream.h"
#include "ops/transport/tcp/tls_context.h"

namespace tf_strategies::tcp {

class TlsStream final : public Stream {
 public:
  using Clock = std::chrono::steady_clock;

  // socket: non-blocking; the caller owns it, and it must outlive the stream. accepts: this end is the server of the handshake.
  static Status Open(std::shared_ptr<const TlsContext> context, int socket, bool accepts,
                     Clock::time_point deadline, std::unique_ptr<Stream>* stream);
  ~TlsStream() override;

  Status Read(const iovec* parts, int count, size_t* bytes) override;
  Status Write(const iovec* parts, int count, size_t* bytes) override;
  bool HasInput() const override { return has_input_; }
  bool HasOutput() const override { return sent_ < output_.size(); }
  bool WaitsForOutput() const override { return HasOutput(); }
  bool Established() const override { return established_; }
  Status CheckDeadline() override;

 private:
  TlsStream(std::shared_ptr<const TlsContext> context, int socket, Clock::time_point deadline);

  // The next byte of some parts.
  struct Position {
    int part = 0;
    size_t offset = 0;
    void Advance(const iovec* parts, size_t bytes);  // at most to the next part
  };

  Status Handshake();
  size_t Gather(const iovec* parts, int count, Position* at);
  Status WriteRecord(const void* data, size_t bytes);
  Status Flush();
  Status Failed(const std::string& what);

  static openssl::BioMethod* SocketMethod(const openssl::Api& api);
  int ReadSocket(char* data, int bytes);
  int WriteSocket(const char* data, int bytes);

  const std::shared_ptr<const TlsContext> context_;
  const openssl::Api& api_;
  const int socket_;
  const Clock::time_point deadline_;
  openssl::Ssl* ssl_ = nullptr;
  openssl::Bio* bio_ = nullptr;  // belongs to ssl_
  bool established_ = false;
  bool has_input_ = false;   // the last read found more than it had room for
  Status socket_status_;     // of the socket, once it has ended
  Status failed_;            // of TLS
  std::vector<char> input_;  // encrypted, from read_ to input_end_
  size_t read_ = 0, input_end_ = 0;
  std::vector<char> output_;  // encrypted, from sent_
  size_t sent_ = 0;
  std::vector<char> small_;
};

}  // namespace tf_strategies::tcp

#endif  // OPS_TRANSPORT_TCP_TLS_STREAM_H_
