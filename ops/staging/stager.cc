#include "ops/staging/stager.h"

#include <map>
#include <utility>

#include "ops/staging/library.h"

namespace tf_strategies {

Status Stager::Of(TfsStream stream, Stager** stager) {
  static auto* const mutex = new std::mutex;
  static auto* const of_device = new std::map<int, std::unique_ptr<Stager>>;
  const TfsCudaFunctions* const cuda = Cuda();
  if (cuda == nullptr) return FailedPrecondition("the CUDA library of tf_strategies is not loaded");
  int device = 0;
  TFS_RETURN_IF_ERROR(StatusOfCuda(cuda->device_of_stream(stream, &device), "the device of a stream"));
  std::lock_guard<std::mutex> lock(*mutex);
  std::unique_ptr<Stager>& found = (*of_device)[device];
  if (found == nullptr) TFS_RETURN_IF_ERROR(Make(cuda, device, &found));
  *stager = found.get();
  return Status::Ok();
}

Status Stager::Make(const TfsCudaFunctions* cuda, int device, std::unique_ptr<Stager>* stager) {
  TfsStream down = nullptr, up = nullptr;
  TFS_RETURN_IF_ERROR(StatusOfCuda(cuda->create_stream(device, &down), "a stream for copies to the host"));
  TFS_RETURN_IF_ERROR(StatusOfCuda(cuda->create_stream(device, &up), "a stream for copies to the device"));
  stager->reset(new Stager(cuda, device, down, up));
  return Status::Ok();
}

Stager::Stager(const TfsCudaFunctions* cuda, int device, TfsStream down, TfsStream up)
    : cuda_(cuda), device_(device), down_(down), up_(up), up_jobs_([this] { return ReleaseOldest(); }) {}

Stager::~Stager() = default;

void Stager::ToHost(TfsStream stream, std::vector<Piece> pieces, std::shared_ptr<void> keep_alive,
                    Then then) {
  std::unique_lock<std::mutex> lock(order_);
  TfsEvent end = nullptr;
  const Status begun = BeginToHost(stream, pieces, &end);
  if (!begun.ok()) {
    lock.unlock();
    Abandon(std::move(keep_alive));
    return then(begun);
  }
  down_jobs_.Run([this, end, keep_alive = std::move(keep_alive), then = std::move(then)]() mutable {
    then(Release(end, std::move(keep_alive)));
  });
}

void Stager::ToDevice(TfsStream stream, std::vector<Piece> pieces, std::shared_ptr<void> keep_alive,
                      Then then) {
  up_jobs_.Run([this, stream, pieces = std::move(pieces), keep_alive = std::move(keep_alive),
                then = std::move(then)]() mutable {
    TfsEvent end = nullptr;
    const Status begun = BeginToDevice(stream, pieces, &end);
    if (begun.ok()) {
      going_up_.push_back({end, std::move(keep_alive)});
    } else {
      Abandon(std::move(keep_alive));
    }
    then(begun);
  });
}

Status Stager::Copy(TfsStream stream, const std::vector<Piece>& pieces, std::shared_ptr<void> keep_alive) {
  TfsEvent end = nullptr;
  const Status begun = BeginCopies(stream, pieces, &end);
  if (!begun.ok()) {
    Abandon(std::move(keep_alive));
    return begun;
  }
  copies_.Run([this, end, keep_alive = std::move(keep_alive)]() mutable {
    (void)Release(end, std::move(keep_alive));
  });
  return begun;
}

Status Stager::BeginToHost(TfsStream stream, const std::vector<Piece>& pieces, TfsEvent* end) {
  TFS_RETURN_IF_ERROR(TakeEvent(end));
  TFS_RETURN_IF_ERROR(
      StatusOfCuda(cuda_->record_event(device_, *end, stream), "marking the end of a computation"));
  TFS_RETURN_IF_ERROR(StatusOfCuda(cuda_->stream_waits(device_, down_, *end), "waiting for a computation"));
  for (const Piece& piece : pieces) {
    TFS_RETURN_IF_ERROR(StatusOfCuda(cuda_->copy(device_, piece.host, piece.device, piece.bytes, down_),
                                     "copying to the host"));
  }
  return StatusOfCuda(cuda_->record_event(device_, *end, down_), "marking the end of copies to the host");
}

Status Stager::BeginToDevice(TfsStream stream, const std::vector<Piece>& pieces, TfsEvent* end) {
  TFS_RETURN_IF_ERROR(BeginCopies(up_, pieces, end));
  return StatusOfCuda(cuda_->stream_waits(device_, stream, *end), "waiting for copies to the device");
}

Status Stager::BeginCopies(TfsStream stream, const std::vector<Piece>& pieces, TfsEvent* end) {
  TFS_RETURN_IF_ERROR(TakeEvent(end));
  for (const Piece& piece : pieces) {
    TFS_RETURN_IF_ERROR(StatusOfCuda(cuda_->copy(device_, piece.device, piece.host, piece.bytes, stream),
                                     "copying to the device"));
  }
  return StatusOfCuda(cuda_->record_event(device_, *end, stream), "marking the end of copies to the device");
}

// Releases the memory of the copies to the device that were begun first, when they have ended. Returns whether there are
// more.
bool Stager::ReleaseOldest() {
  if (going_up_.empty()) return false;
  Copying oldest = std::move(going_up_.front());
  going_up_.pop_front();
  (void)Release(oldest.end, std::move(oldest.keep_alive));
  return !going_up_.empty();
}

// Waits for copies, then releases their memory.
Status Stager::Release(TfsEvent end, std::shared_ptr<void> keep_alive) {
  Status ended = StatusOfCuda(cuda_->host_waits(device_, end), "waiting for copies");
  if (ended.ok()) {
    GiveBack(end);
  } else {
    Abandon(std::move(keep_alive));
  }
  return ended;
}

Status Stager::TakeEvent(TfsEvent* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (free_events_.empty()) return StatusOfCuda(cuda_->create_event(device_, event), "making an event");
  *event = free_events_.back();
  free_events_.pop_back();
  return Status::Ok();
}

void Stager::GiveBack(TfsEvent event) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_events_.push_back(event);
}

// After an error nobody knows when the copies end, so their memory is never freed.
void Stager::Abandon(std::shared_ptr<void> keep_alive) {
  std::lock_guard<std::mutex> lock(mutex_);
  abandoned_.push_back(std::move(keep_alive));
}

}  // namespace tf_strategies
