// Stager: copies between a GPU and pinned memory of the host, for collectives that run on the host.
//
// The stream of the caller, on which TensorFlow computes, never waits for a copy to the host, and the caller never waits at
// all. Copies run on two streams of the stager, one for each direction, so packs on their way down, in the collective and on
// their way up overlap with one another and with the computation.
//
// The threads of the stager wait for the GPU without a deadline, as TensorFlow does. Peers of a worker whose GPU hangs get the
// deadline of their collective.
#ifndef OPS_STAGING_STAGER_H_
#define OPS_STAGING_STAGER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/base/status.h"
#include "ops/cuda/functions.h"
#include "ops/staging/serial_thread.h"

namespace tf_strategies {

class Stager {
 public:
  // A contiguous range of bytes, in the memory of the device and in pinned memory of the host.
  struct Piece {
    void* device = nullptr;
    void* host = nullptr;
    int64_t bytes = 0;
  };

  // Called once, on a thread of the stager or within the call.
  using Then = std::function<void(const Status&)>;

  // Finds the stager of a stream's device. It is made when first asked for, and lives as long as the process. LoadCuda
  // must have succeeded.
  static Status Of(TfsStream stream, Stager** stager);

  // The streams and events of a stager are never destroyed.
  static Status Make(const TfsCudaFunctions* cuda, int device, std::unique_ptr<Stager>* stager);
  ~Stager();  // waits for all copies

  // Copies all pieces to the host, after the work that is now on the stream; then calls then().
  //
  // keep_alive owns the memory of the pieces. The stager releases it after the copies. Calls from several threads are copied
  // in the order of the calls.
  void ToHost(TfsStream stream, std::vector<Piece> pieces, std::shared_ptr<void> keep_alive, Then then);

  // Copies all pieces to the device, and lets later work on the stream wait for the copies; then calls then(), which may be
  // before the copies have ended. The memory of the device must not be in use by work on the stream when ToDevice is called.
  void ToDevice(TfsStream stream, std::vector<Piece> pieces, std::shared_ptr<void> keep_alive, Then then);

  // Copies all pieces to the device as work of the stream itself. Returns at once.
  Status Copy(TfsStream stream, const std::vector<Piece>& pieces, std::shared_ptr<void> keep_alive);

 private:
  struct Copying {
    TfsEvent end;
    std::shared_ptr<void> keep_alive;
  };

  Stager(const TfsCudaFunctions* cuda, int device, TfsStream down, TfsStream up);

  Status BeginToHost(TfsStream stream, const std::vector<Piece>& pieces, TfsEvent* end);
  Status BeginToDevice(TfsStream stream, const std::vector<Piece>& pieces, TfsEvent* end);
  Status BeginCopies(TfsStream stream, const std::vector<Piece>& pieces, TfsEvent* end);
  bool ReleaseOldest();
  Status Release(TfsEvent end, std::shared_ptr<void> keep_alive);

  Status TakeEvent(TfsEvent* event);
  void GiveBack(TfsEvent event);
  void Abandon(std::shared_ptr<void> keep_alive);

  const TfsCudaFunctions* const cuda_;
  const int device_;
  const TfsStream down_, up_;
  std::mutex order_;  // of the calls of ToHost
  std::mutex mutex_;  // of what follows
  std::vector<TfsEvent> free_events_;
  std::vector<std::shared_ptr<void>> abandoned_;  // memory that copies may still use after an error
  std::deque<Copying> going_up_;                  // used by the thread of up_jobs_ alone
  SerialThread up_jobs_;                          // uses what is above
  SerialThread copies_;                           // waits for the copies on streams of callers
  SerialThread down_jobs_;
};

}  // namespace tf_strategies

#endif  // OPS_STAGING_STAGER_H_
