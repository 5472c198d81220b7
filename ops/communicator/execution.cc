#include "ops/communicator/execution.h"

#include <string>
#include <utility>

#include "ops/base/gradual_underflow.h"
#include "ops/reduce/reduce.h"

namespace tf_strategies {

using schedule::ActionKind;

namespace {

// The number of chunks of one collective that may be received into scratch memory at the same time: one
// arrives while another is reduced and a third is announced.
constexpr int kReductionWindow = 4;

}  // namespace

Execution::Execution(std::shared_ptr<const Plan> plan, const Target& target, Transport* transport,
                     ScratchPool* scratch)
    : plan_(std::move(plan)),
      target_(target),
      element_bytes_(static_cast<int64_t>(DTypeSize(target.dtype))),
      transport_(transport),
      scratch_(scratch),
      scratch_bytes_(static_cast<size_t>(plan_->largest_reduction * element_bytes_)),
      receive_buffers_(plan_->pieces.size()),
      complete_(plan_->pieces.size(), false),
      remaining_(plan_->pieces.size()) {
  gates_.reserve(plan_->pieces.size());
  for (const Piece& piece : plan_->pieces) gates_.push_back(piece.gate);
}

Execution::~Execution() {
  for (ReceiveBuffer& buffer : receive_buffers_) {
    if (buffer.scratch) scratch_->Return(std::move(buffer.scratch), scratch_bytes_);
  }
}

void Execution::Start() {
  PostReductions();
  for (size_t i = 0; i < plan_->pieces.size(); ++i) {
    if (plan_->pieces[i].gate == 0) Open(static_cast<int>(i));
  }
}

bool Execution::Advance() {
  const bool any = !happened_.empty() && failure_.ok();
  while (!happened_.empty() && failure_.ok()) {
    handling_.swap(happened_);
    for (const Happened& happened : handling_) {
      if (happened.event == Event::kLanded) {
        receive_buffers_[happened.piece].received = true;
        ReduceIfReady(happened.piece);
      } else {
        Complete(happened.piece);
      }
    }
    handling_.clear();
  }
  return any;
}

std::set<int> Execution::PeersAwaited() const {
  return PeersOf([](ActionKind kind) { return kind != ActionKind::kSend; });
}

std::set<int> Execution::PeersToRead() const {
  return PeersOf([](ActionKind kind) { return kind == ActionKind::kSend; });
}

template <typename Wanted>
std::set<int> Execution::PeersOf(const Wanted& wanted) const {
  std::set<int> peers;
  for (size_t i = 0; i < plan_->pieces.size(); ++i) {
    if (!complete_[i] && wanted(plan_->pieces[i].kind)) peers.insert(plan_->pieces[i].peer);
  }
  return peers;
}

void Execution::Open(int index) {
  switch (plan_->pieces[index].kind) {
    case ActionKind::kSend: return PostSend(index);
    case ActionKind::kReceiveCopy: return PostCopy(index);
    case ActionKind::kReceiveReduce: return ReduceIfReady(index);
  }
}

void Execution::PostSend(int index) {
  const Piece& piece = plan_->pieces[index];
  const char* from = target_.source == nullptr ? Address(piece) : target_.source + piece.at * element_bytes_;
  transport_->Send(piece.peer, TagOf(piece), from, Bytes(piece),
                   [this, index](const Status& status) { OnSent(index, status); });
}

void Execution::PostCopy(int index) {
  const Piece& piece = plan_->pieces[index];
  transport_->Receive(piece.peer, TagOf(piece), Address(piece), Bytes(piece),
                      [this, index](const Status& status, const Received& received) {
                        OnReceived(index, Event::kComplete, status, received);
                      });
}

void Execution::PostReductions() {
  while (posted_reductions_ < kReductionWindow && next_reduction_ < plan_->reductions.size()) {
    ScratchPool::Block scratch = scratch_->Take(scratch_bytes_);
    if (scratch == nullptr) {
      return Fail(ResourceExhausted("memory ran out: " + std::to_string(scratch_bytes_) +
                                    " bytes to receive into could not be allocated"),
                  -1);
    }
    const int index = plan_->reductions[next_reduction_++];
    const Piece& piece = plan_->pieces[index];
    receive_buffers_[index].scratch = std::move(scratch);
    ++posted_reductions_;
    transport_->Receive(piece.peer, TagOf(piece), receive_buffers_[index].scratch.get(), Bytes(piece),
                        [this, index](const Status& status, const Received& received) {
                          OnReceived(index, Event::kLanded, status, received);
                        });
  }
}

void Execution::ReduceIfReady(int index) {
  ReceiveBuffer& buffer = receive_buffers_[index];
  if (!buffer.received || gates_[index] > 0) return;
  const Piece& piece = plan_->pieces[index];
  const GradualUnderflow alike_on_all_threads;
  Reduce(target_.op, target_.dtype, Address(piece), buffer.scratch.get(), piece.range.size());
  scratch_->Return(std::move(buffer.scratch), scratch_bytes_);
  --posted_reductions_;
  if (target_.op == ReduceOp::kMean) DivideFinals(piece);
  Complete(index);
  PostReductions();
}

void Execution::DivideFinals(const Piece& piece) {
  for (int i = piece.first_final; i < piece.last_final; ++i) {
    const schedule::Range& range = plan_->finals[i];
    char* const final = Address(piece) + (range.begin - piece.range.begin) * element_bytes_;
    Divide(target_.dtype, final, range.size(), transport_->size());
  }
}

void Execution::Complete(int index) {
  complete_[index] = true;
  --remaining_;
  const Piece& piece = plan_->pieces[index];
  for (int i = piece.first_dependent; i < piece.last_dependent; ++i) {
    const int dependent = plan_->dependents[i];
    if (--gates_[dependent] == 0) Open(dependent);
  }
}

void Execution::OnSent(int index, const Status& status) {
  if (!status.ok()) return Fail(status, plan_->pieces[index].peer);
  happened_.push_back({index, Event::kComplete});
}

void Execution::OnReceived(int index, Event event, const Status& status, const Received& received) {
  const Piece& piece = plan_->pieces[index];
  if (received.signature != target_.signature && (status.ok() || status.code() == Code::kMismatch)) {
    return Fail(Mismatch("the peer's message belongs to another operation, dtype, reduction or shape"),
                piece.peer);
  }
  if (!status.ok()) return Fail(status, piece.peer);
  if (received.bytes != Bytes(piece)) {
    return Fail(Mismatch("the peer sent " + std::to_string(received.bytes) + " bytes where " +
                         std::to_string(Bytes(piece)) + " were expected"),
                piece.peer);
  }
  last_peer_ = piece.peer;
  happened_.push_back({index, event});
}

void Execution::Fail(const Status& status, int peer) {
  if (!failure_.ok()) return;
  failure_ = status;
  failed_peer_ = peer;
}

}  // namespace tf_strategies
