// The transport over a UCX worker that knows the addresses of its peers.

#include <poll.h>

#include <chrono>
#include <mutex>
#include <set>
#include <unordered_set>
#include <utility>

#include "ops/transport/counters.h"
#include "ops/transport/ucx_handles.h"

namespace tf_strategies {
namespace {

static_assert(kSourceBits + kInstanceBits + kMessageBits + kSignatureBits == 64, "a UCX tag has 64 bits");
constexpr ucp_tag_t kUnmatchedBits = (ucp_tag_t{1} << kSignatureBits) - 1;

ucp_tag_t Encode(int source, const Tag& tag) {
  ucp_tag_t encoded = static_cast<ucp_tag_t>(source);
  encoded = encoded << kInstanceBits | tag.instance;
  encoded = encoded << kMessageBits | tag.message;
  return encoded << kSignatureBits | tag.signature;
}

uint32_t SignatureOf(ucp_tag_t tag) { return static_cast<uint32_t>(tag & kUnmatchedBits); }

class UcxTransport final : public Transport {
 public:
  UcxTransport(std::unique_ptr<UcxHandles> handles, int rank, std::vector<std::string> addresses,
               std::vector<bool> same_host)
      : handles_(std::move(handles)),
        rank_(rank),
        addresses_(std::move(addresses)),
        same_host_(std::move(same_host)),
        peers_(addresses_.size()) {
    for (size_t peer = 0; peer < peers_.size(); ++peer) {
      peers_[peer].transport = this;
      if (addresses_[peer].empty()) peers_[peer].lost = UCS_ERR_UNREACHABLE;
    }
  }

  ~UcxTransport() override {
    if (!cancelled_) Flush();
    Cancel();
    handles_.reset();
    for (Operation* operation : outstanding_) delete operation;  // UCX no longer uses them
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(addresses_.size()); }

  void Send(int peer, Tag tag, const void* data, size_t bytes, SendDone done) override {
    const Status connected = Connect(peer);
    if (!connected.ok()) return done(connected);
    counters_.Sent(bytes);
    auto* operation = new Operation{this, peer, nullptr, std::move(done), nullptr};
    ucp_request_param_t param = Parameters(operation);
    param.cb.send = &UcxTransport::OnSent;
    void* request = ucp_tag_send_nbx(peers_[peer].endpoint, data, bytes, Encode(rank_, tag), &param);
    if (request == nullptr) return operation->FinishSend(UCS_OK);
    if (UCS_PTR_IS_ERR(request)) return operation->FinishSend(UCS_PTR_STATUS(request));
    operation->request = request;
    outstanding_.insert(operation);
  }

  void Receive(int peer, Tag tag, void* data, size_t bytes, ReceiveDone done) override {
    if (peers_[peer].lost != UCS_OK && !HasArrived(peer, tag)) return done(LostPeer(peer), Received{});
    auto* operation = new Operation{this, peer, nullptr, nullptr, std::move(done)};
    ucp_request_param_t param = Parameters(operation);
    param.cb.recv = &UcxTransport::OnReceived;
    ucp_tag_recv_info_t info{};
    param.op_attr_mask |= UCP_OP_ATTR_FIELD_RECV_INFO;
    param.recv_info.tag_info = &info;
    void* request =
        ucp_tag_recv_nbx(handles_->worker, data, bytes, Encode(peer, tag), ~kUnmatchedBits, &param);
    if (request == nullptr) return operation->FinishReceive(UCS_OK, info);
    if (UCS_PTR_IS_ERR(request)) return operation->FinishReceive(UCS_PTR_STATUS(request), info);
    operation->request = request;
    outstanding_.insert(operation);
  }

  bool Progress() override {
    const bool moved = ucp_worker_progress(handles_->worker) != 0;
    if (newly_lost_) FailReceptionsFromLostPeers();
    return moved;
  }

  bool Arm() override { return ucp_worker_arm(handles_->worker) == UCS_OK; }

  void Wait(int timeout_ms) override {
    pollfd event{handles_->event_fd, POLLIN, 0};
    poll(&event, 1, timeout_ms);
  }

  int EventFd() const override { return handles_->event_fd; }

  void Wake() override { ucp_worker_signal(handles_->worker); }

  void Cancel() override {
    if (cancelled_) return;
    cancelled_ = true;
    const std::vector<Operation*> operations(outstanding_.begin(), outstanding_.end());
    for (Operation* operation : operations) {
      if (operation->received) ucp_request_cancel(handles_->worker, operation->request);
    }
    for (int round = 0; round < kCancelRounds; ++round) ucp_worker_progress(handles_->worker);
  }

  std::string Describe() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    std::string text;
    for (const std::string& name : used_) text += (text.empty() ? "" : ", ") + name;
    return text.empty() ? kNothingYet : text;
  }

  TransportCounters counters() const override { return counters_.Read(); }

 private:
  static constexpr int kCancelRounds = 64;
  static constexpr std::chrono::seconds kFlushTime{2};

  // Sends what UCX has buffered, because a completed send may not have left this process.
  void Flush() {
    ucp_request_param_t param{};
    void* request = ucp_worker_flush_nbx(handles_->worker, &param);
    if (request == nullptr || UCS_PTR_IS_ERR(request)) return;
    const auto end = std::chrono::steady_clock::now() + kFlushTime;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && std::chrono::steady_clock::now() < end) {
      ucp_worker_progress(handles_->worker);
    }
    ucp_request_free(request);
  }

  struct Peer {
    UcxTransport* transport = nullptr;
    ucp_ep_h endpoint = nullptr;
    ucs_status_t lost = UCS_OK;
  };

  struct Operation {
    UcxTransport* transport;
    int peer;
    void* request;
    SendDone sent;
    ReceiveDone received;

    void FinishSend(ucs_status_t status) {
      const std::unique_ptr<Operation> self(this);
      if (transport->cancelled_) return;
      sent(status == UCS_OK ? Status::Ok() : FromUcx(status, "sending to rank " + std::to_string(peer)));
    }

    void FinishReceive(ucs_status_t status, const ucp_tag_recv_info_t& info) {
      const std::unique_ptr<Operation> self(this);
      if (transport->cancelled_) return;
      const Received got{SignatureOf(info.sender_tag), info.length};
      if (status == UCS_OK) {
        transport->counters_.Received(info.length);
        received(Status::Ok(), got);
      } else if (status == UCS_ERR_CANCELED && transport->peers_[peer].lost != UCS_OK) {
        received(transport->LostPeer(peer), got);
      } else {
        received(FromUcx(status, "receiving from rank " + std::to_string(peer)), got);
      }
    }
  };

  static ucp_request_param_t Parameters(Operation* operation) {
    ucp_request_param_t param{};
    param.op_attr_mask =
        UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.user_data = operation;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    return param;
  }

  static void OnSent(void* request, ucs_status_t status, void* user_data) {
    auto* operation = static_cast<Operation*>(user_data);
    operation->transport->outstanding_.erase(operation);
    ucp_request_free(request);
    operation->FinishSend(status);
  }

  static void OnReceived(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                         void* user_data) {
    auto* operation = static_cast<Operation*>(user_data);
    operation->transport->outstanding_.erase(operation);
    const ucp_tag_recv_info_t copy = info != nullptr ? *info : ucp_tag_recv_info_t{};
    ucp_request_free(request);
    operation->FinishReceive(status, copy);
  }

  static void OnPeerError(void* arg, ucp_ep_h, ucs_status_t status) {
    auto* peer = static_cast<Peer*>(arg);
    peer->lost = status;
    peer->transport->newly_lost_ = true;
  }

  // Returns true if the message has arrived, which is possible even if its sender is lost.
  bool HasArrived(int peer, const Tag& tag) const {
    ucp_tag_recv_info_t info;
    return ucp_tag_probe_nb(handles_->worker, Encode(peer, tag), ~kUnmatchedBits, 0, &info) != nullptr;
  }

  Status LostPeer(int peer) const {
    return FromUcx(peers_[peer].lost, "the connection to rank " + std::to_string(peer) + " broke");
  }

  void FailReceptionsFromLostPeers() {
    newly_lost_ = false;
    const std::vector<Operation*> operations(outstanding_.begin(), outstanding_.end());
    for (Operation* operation : operations) {
      if (operation->received && peers_[operation->peer].lost != UCS_OK) {
        ucp_request_cancel(handles_->worker, operation->request);
      }
    }
  }

  Status Connect(int peer) {
    Peer& to = peers_[peer];
    if (to.lost != UCS_OK) return LostPeer(peer);
    if (to.endpoint != nullptr) return Status::Ok();
    if (addresses_[peer].empty()) {
      return InvalidArgument("rank " + std::to_string(peer) + " has no UCX address");
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(addresses_[peer].data());
    params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    if (!same_host_[peer]) {
      params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLER;
      params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
      params.err_handler.cb = &UcxTransport::OnPeerError;
      params.err_handler.arg = &to;
    }
    TFS_RETURN_IF_UCX_ERROR(ucp_ep_create(handles_->worker, &params, &to.endpoint),
                            "connecting to rank " + std::to_string(peer));
    RecordTransports(to.endpoint, same_host_[peer]);
    return Status::Ok();
  }

  void RecordTransports(ucp_ep_h endpoint, bool same_host) {
    ucp_transport_entry_t entries[16];
    ucp_ep_attr_t attr{};
    attr.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
    attr.transports.entries = entries;
    attr.transports.num_entries = 16;
    attr.transports.entry_size = sizeof(ucp_transport_entry_t);
    if (ucp_ep_query(endpoint, &attr) != UCS_OK) return;
    std::set<std::string> names;
    for (unsigned i = 0; i < attr.transports.num_entries; ++i) names.insert(entries[i].transport_name);
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : "+") + name;
    std::lock_guard<std::mutex> lock(mutex_);
    used_.insert(text + (same_host ? " (same host)" : " (between hosts)"));
  }

  std::unique_ptr<UcxHandles> handles_;
  const int rank_;
  const std::vector<std::string> addresses_;
  const std::vector<bool> same_host_;
  std::vector<Peer> peers_;
  std::unordered_set<Operation*> outstanding_;
  bool newly_lost_ = false;
  bool cancelled_ = false;
  WireCounters counters_;
  mutable std::mutex mutex_;
  std::set<std::string> used_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Transport> MakeUcxTransport(std::unique_ptr<UcxHandles> handles, int rank,
                                            std::vector<std::string> addresses, std::vector<bool> same_host) {
  return std::make_unique<UcxTransport>(std::move(handles), rank, std::move(addresses), std::move(same_host));
}

}  // namespace tf_strategies
