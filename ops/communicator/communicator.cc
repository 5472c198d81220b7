#include "ops/communicator/communicator.h"

#include <string>
#include <utility>

#include "ops/base/check.h"
#include "ops/communicator/collective.h"
#include "ops/communicator/engine.h"
#include "ops/schedule/choose.h"

namespace tf_strategies {
namespace {

Collective Describe(CollectiveKind kind, const Communicator::Request& request) {
  Collective collective;
  collective.kind = kind;
  collective.name = request.name;
  collective.layout = request.layout;
  collective.shape = request.shape;
  collective.dtype = request.dtype;
  collective.count = request.count;
  return collective;
}

// A barrier is an all-reduce of one integer, whose result is ignored.
void SubmitBarrier(Engine* engine, Communicator::Request request) {
  const auto token = std::make_shared<int32_t>(0);
  request.data = token.get();
  request.keep_alive = token;
  request.dtype = DType::kInt32;
  request.count = 1;
  Collective collective = Describe(CollectiveKind::kBarrier, request);
  collective.op = ReduceOp::kMax;
  engine->Submit(std::move(collective), std::move(request));
}

Status CheckSegments(const Collective& collective) {
  for (const auto* offsets : {&collective.offsets, &collective.receive_offsets}) {
    for (size_t rank = 0; rank + 1 < offsets->size(); ++rank) {
      const int64_t length = (*offsets)[rank + 1] - (*offsets)[rank];
      if (0 <= length && length <= kMostSegment) continue;
      return InvalidArgument("all_to_all '" + collective.name + "': a segment of " + std::to_string(length) +
                             " elements " + (offsets == &collective.offsets ? "for" : "from") + " rank " +
                             std::to_string(rank) + "; between 0 and " + std::to_string(kMostSegment) +
                             " are possible");
    }
  }
  return Status::Ok();
}

// A collective without elements still synchronizes the ranks.
void Submit(Engine* engine, Collective collective, Communicator::Request request) {
  if (collective.count == 0) return SubmitBarrier(engine, std::move(request));
  engine->Submit(std::move(collective), std::move(request));
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options,
                           std::function<void(const Failure&)> on_failure)
    : engine_(std::make_unique<Engine>(std::move(transport), std::move(options), std::move(on_failure))) {}

Communicator::~Communicator() = default;

void Communicator::Close() { engine_->Close(); }

int Communicator::rank() const { return engine_->rank(); }
int Communicator::size() const { return engine_->size(); }

void Communicator::AllReduce(ReduceOp op, Request request) {
  std::vector<int64_t> begins;
  if (!request.parts.empty()) request.count = 0;
  for (const Part& part : request.parts) {
    TFS_CHECK_GE(part.count, 1);
    begins.push_back(request.count);
    request.count += part.count;
  }
  Collective collective = Describe(CollectiveKind::kAllReduce, request);
  collective.offsets = std::move(begins);
  collective.op = op;
  const auto& algorithms = schedule::AllReduceAlgorithms();
  const int64_t bytes = request.count * static_cast<int64_t>(DTypeSize(request.dtype));
  const schedule::Algorithm* algorithm = engine_->options().algorithm == "auto"
                                             ? &schedule::Choose(engine_->group(), bytes)
                                             : schedule::FindAlgorithm(engine_->options().algorithm);
  if (algorithm == nullptr) {
    const Status unknown =
        InvalidArgument("no all-reduce algorithm is called \"" + engine_->options().algorithm + "\"");
    return engine_->Reject(std::move(request), unknown);
  }
  collective.algorithm = static_cast<int>(algorithm - algorithms.data());
  Submit(engine_.get(), std::move(collective), std::move(request));
}

void Communicator::Broadcast(int root, Request request) {
  if (root < 0 || root >= size()) {
    const Status outside = InvalidArgument("broadcast '" + request.name + "': root " + std::to_string(root) +
                                           " is not in a group of " + std::to_string(size()));
    return engine_->Reject(std::move(request), outside);
  }
  Collective collective = Describe(CollectiveKind::kBroadcast, request);
  collective.root = root;
  Submit(engine_.get(), std::move(collective), std::move(request));
}

void Communicator::AllGather(std::vector<int64_t> offsets, Request request) {
  TFS_CHECK_EQ(offsets.size(), static_cast<size_t>(size()) + 1);
  request.count = offsets.back();
  Collective collective = Describe(CollectiveKind::kAllGather, request);
  collective.offsets = std::move(offsets);
  Submit(engine_.get(), std::move(collective), std::move(request));
}

void Communicator::AllToAll(std::vector<int64_t> send_offsets, std::vector<int64_t> receive_offsets,
                            Request request) {
  TFS_CHECK_EQ(send_offsets.size(), static_cast<size_t>(size()) + 1);
  TFS_CHECK_EQ(receive_offsets.size(), static_cast<size_t>(size()) + 1);
  request.count = receive_offsets.back();
  Collective collective = Describe(CollectiveKind::kAllToAll, request);
  collective.offsets = std::move(send_offsets);
  collective.receive_offsets = std::move(receive_offsets);
  const Status lengths = CheckSegments(collective);
  if (!lengths.ok()) return engine_->Reject(std::move(request), lengths);
  engine_->Submit(std::move(collective), std::move(request));
}

void Communicator::Barrier(Request request) { SubmitBarrier(engine_.get(), std::move(request)); }

void Communicator::Abort(Status cause) { engine_->Abort(std::move(cause)); }
void Communicator::Report(int instance, Status cause) { engine_->Report(instance, std::move(cause)); }
std::string Communicator::DescribeInstance(int instance) const { return engine_->DescribeInstance(instance); }
Communicator::Waiting Communicator::OldestWaiting() const { return engine_->OldestWaiting(); }
CommunicatorStats Communicator::stats() const {
  CommunicatorStats stats = engine_->stats();
  stats.bytes_staged = bytes_staged_;
  return stats;
}
Recorder Communicator::Recorded() const { return engine_->Recorded(); }
std::string Communicator::DescribeTransport() const { return engine_->DescribeTransport(); }

}  // namespace tf_strategies
