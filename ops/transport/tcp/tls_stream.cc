#include "ops/transport/tcp/tls_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

namespace tf_strategies::tcp {
namespace {

constexpr size_t kRecordBytes = 16 << 10;           // the longest that TLS has, before it is encrypted
constexpr size_t kInputBytes = 64 << 10;            // that a system call reads beyond what OpenSSL asks for
constexpr size_t kMostOutputBytes = 128 << 10;      // that are encrypted and not sent
constexpr size_t kMostReadBytes = size_t{1} << 20;  // before others have their turn

}  // namespace

TlsStream::TlsStream(std::shared_ptr<const TlsContext> context, int socket, Clock::time_point deadline)
    : context_(std::move(context)), api_(context_->api()), socket_(socket), deadline_(deadline) {
  input_.resize(kInputBytes);
  output_.reserve(kMostOutputBytes);
  small_.reserve(kRecordBytes);
}

Status TlsStream::Open(std::shared_ptr<const TlsContext> context, int socket, bool accepts,
                       Clock::time_point deadline, std::unique_ptr<Stream>* stream) {
  std::unique_ptr<TlsStream> made(new TlsStream(std::move(context), socket, deadline));
  const openssl::Api& api = made->api_;
  api.ERR_clear_error();
  openssl::BioMethod* const method = SocketMethod(api);
  made->ssl_ = api.SSL_new(made->context_->get());
  openssl::Bio* const bio = method == nullptr ? nullptr : api.BIO_new(method);
  if (made->ssl_ == nullptr || bio == nullptr || api.SSL_set1_host(made->ssl_, kClusterName) != 1) {
    return Internal("OpenSSL makes no connection: " + openssl::TakeReason(api));
  }
  made->bio_ = bio;
  api.BIO_set_data(bio, made.get());
  api.BIO_set_init(bio, 1);
  api.SSL_set_bio(made->ssl_, bio, bio);
  (accepts ? api.SSL_set_accept_state : api.SSL_set_connect_state)(made->ssl_);
  *stream = std::move(made);
  return Status::Ok();
}

TlsStream::~TlsStream() {
  if (ssl_ == nullptr) return;
  if (established_ && failed_.ok() && socket_status_.ok()) {
    api_.SSL_shutdown(ssl_);  // says that nothing was cut off
    (void)Flush().ok();
  }
  api_.SSL_free(ssl_);
  api_.ERR_clear_error();
}

Status TlsStream::Read(const iovec* parts, int count, size_t* bytes) {
  *bytes = 0;
  TFS_RETURN_IF_ERROR(Handshake());
  if (!established_) return Status::Ok();
  has_input_ = true;
  for (int part = 0; part < count; ++part) {
    auto* to = static_cast<char*>(parts[part].iov_base);
    size_t left = parts[part].iov_len;
    while (left > 0) {
      if (*bytes >= kMostReadBytes) return Status::Ok();
      api_.ERR_clear_error();
      const int got = api_.SSL_read(ssl_, to, static_cast<int>(std::min<size_t>(left, INT_MAX)));
      if (got <= 0) {
        const int error = api_.SSL_get_error(ssl_, got);
        has_input_ = error == openssl::kErrorWantWrite;
        if (error == openssl::kErrorWantRead || error == openssl::kErrorWantWrite) {
          (void)Flush()
              .ok();  // a peer that reads no more may have said something before: an error is that of the next write
          return Status::Ok();
        }
        if (*bytes > 0) {  // they are delivered, and the next read fails
          has_input_ = true;
          failed_ = Failed("");
          return Status::Ok();
        }
        return Failed("");
      }
      to += got;
      left -= static_cast<size_t>(got);
      *bytes += static_cast<size_t>(got);
    }
  }
  return Status::Ok();
}

Status TlsStream::Write(const iovec* parts, int count, size_t* bytes) {
  *bytes = 0;
  TFS_RETURN_IF_ERROR(Handshake());
  if (!established_) return Status::Ok();
  Position at;
  while (at.part < count) {
    if (output_.size() + 2 * kRecordBytes > kMostOutputBytes) {
      TFS_RETURN_IF_ERROR(Flush());
      if (HasOutput()) return Status::Ok();
    }
    const auto* from = static_cast<const char*>(parts[at.part].iov_base) + at.offset;
    size_t record = std::min(parts[at.part].iov_len - at.offset, kRecordBytes);
    if (record == kRecordBytes || at.part + 1 == count) {
      at.Advance(parts, record);
    } else {
      from = small_.data();
      record = Gather(parts, count, &at);
    }
    TFS_RETURN_IF_ERROR(WriteRecord(from, record));
    *bytes += record;
  }
  return Flush();
}

// Copies parts together, a head and the start of its payload or several short messages, to one record. Returns its bytes.
size_t TlsStream::Gather(const iovec* parts, int count, Position* at) {
  small_.clear();
  while (at->part < count && small_.size() < kRecordBytes) {
    const iovec& part = parts[at->part];
    const size_t more = std::min(part.iov_len - at->offset, kRecordBytes - small_.size());
    const auto* begin = static_cast<const char*>(part.iov_base) + at->offset;
    small_.insert(small_.end(), begin, begin + more);
    at->Advance(parts, more);
  }
  return small_.size();
}

void TlsStream::Position::Advance(const iovec* parts, size_t bytes) {
  offset += bytes;
  if (offset < parts[part].iov_len) return;
  offset = 0;
  ++part;
}

Status TlsStream::CheckDeadline() {
  if (established_ || Clock::now() < deadline_) return Status::Ok();
  return Unavailable("the TLS handshake did not end in time");
}

// Goes on with the handshake until both ends are done, or the peer has to say something.
Status TlsStream::Handshake() {
  if (!failed_.ok()) return failed_;
  if (established_) return Status::Ok();
  api_.ERR_clear_error();
  const int result = api_.SSL_do_handshake(ssl_);
  if (result == 1) {
    established_ = has_input_ = true;  // what the peer has sent since may have been read already
    return Flush();
  }
  const int error = api_.SSL_get_error(ssl_, result);
  if (error == openssl::kErrorWantRead || error == openssl::kErrorWantWrite) return Flush();
  failed_ = Failed("the TLS handshake failed: ");
  return failed_;
}

Status TlsStream::WriteRecord(const void* data, size_t bytes) {
  if (bytes == 0) return Status::Ok();
  api_.ERR_clear_error();
  const int taken = api_.SSL_write(ssl_, data, static_cast<int>(bytes));
  if (taken == static_cast<int>(bytes)) return Status::Ok();  // there is room for a record
  failed_ = Failed("");
  return failed_;
}

// Sends what was encrypted, as far as the socket takes it.
Status TlsStream::Flush() {
  while (HasOutput()) {
    const ssize_t sent =
        send(socket_, output_.data() + sent_, output_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return Status::Ok();
      return Unavailable(std::strerror(errno));
    }
    sent_ += static_cast<size_t>(sent);
  }
  output_.clear();
  sent_ = 0;
  return Status::Ok();
}

// The reason for which OpenSSL has given up. The peer is told, if the socket takes it.
Status TlsStream::Failed(const std::string& what) {
  const long verified = api_.SSL_get_verify_result(ssl_);
  const std::string reason = openssl::TakeReason(api_);
  (void)Flush().ok();
  if (!established_ && verified != openssl::kVerifyOk) {
    return Unavailable(
        what + "the certificate of the peer is refused: " + api_.X509_verify_cert_error_string(verified));
  }
  if (!socket_status_.ok()) return Unavailable(what + socket_status_.message());
  return Unavailable(what + (reason.empty() ? "it was closed by the peer" : "TLS: " + reason));
}

// What OpenSSL reads and writes with. It sends many records at a time, and no signal if the peer has gone.
openssl::BioMethod* TlsStream::SocketMethod(const openssl::Api& api) {
  static const openssl::Api* the_api = nullptr;
  static openssl::BioMethod* const method = [&api] {
    the_api = &api;
    openssl::BioMethod* made = api.BIO_meth_new(openssl::kBioTypeSource, "tf_strategies socket");
    if (made == nullptr) return made;
    api.BIO_meth_set_read(made, [](openssl::Bio* bio, char* data, int bytes) {
      return static_cast<TlsStream*>(the_api->BIO_get_data(bio))->ReadSocket(data, bytes);
    });
    api.BIO_meth_set_write(made, [](openssl::Bio* bio, const char* data, int bytes) {
      return static_cast<TlsStream*>(the_api->BIO_get_data(bio))->WriteSocket(data, bytes);
    });
    api.BIO_meth_set_ctrl(made, [](openssl::Bio*, int command, long, void*) -> long {
      return command == openssl::kBioControlFlush ? 1 : 0;
    });
    return made;
  }();
  return method;
}

// OpenSSL reads the head of a record, then its body. So the system call reads ahead.
int TlsStream::ReadSocket(char* data, int bytes) {
  api_.BIO_clear_flags(bio_, openssl::kBioRetryFlags);
  const auto wanted = static_cast<size_t>(bytes);
  while (read_ == input_end_) {
    iovec parts[] = {{data, wanted}, {input_.data(), input_.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t got = recvmsg(socket_, &message, MSG_DONTWAIT);
    if (got > 0) {
      const size_t direct = std::min(static_cast<size_t>(got), wanted);
      read_ = 0;
      input_end_ = static_cast<size_t>(got) - direct;
      return static_cast<int>(direct);
    }
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      api_.BIO_set_flags(bio_, openssl::kBioReadRetry);
      return -1;
    }
    socket_status_ = Unavailable(got == 0 ? "it was closed by the peer" : std::strerror(errno));
    return static_cast<int>(got);
  }
  const size_t taken = std::min(wanted, input_end_ - read_);
  std::memcpy(data, input_.data() + read_, taken);
  read_ += taken;
  return static_cast<int>(taken);
}

// Keeps what is to be sent. Flush sends it.
int TlsStream::WriteSocket(const char* data, int bytes) {
  api_.BIO_clear_flags(bio_, openssl::kBioRetryFlags);
  if (output_.size() + static_cast<size_t>(bytes) > kMostOutputBytes) {
    api_.BIO_set_flags(bio_, openssl::kBioWriteRetry);
    return -1;
  }
  output_.insert(output_.end(), data, data + bytes);
  return bytes;
}

}  // namespace tf_strategies::tcp
