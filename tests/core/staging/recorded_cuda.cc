#include "tests/core/staging/recorded_cuda.h"

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "ops/base/check.h"

namespace tf_strategies {

RecordedCuda* RecordedCuda::current = nullptr;

RecordedCuda::RecordedCuda() {
  TFS_CHECK(current == nullptr);
  current = this;
}

RecordedCuda::~RecordedCuda() {
  streams_.clear();
  current = nullptr;
}

const TfsCudaFunctions* RecordedCuda::functions() const {
  static constexpr TfsCudaFunctions kFunctions = {
      nullptr, DeviceOfStream, CreateStream, CreateEvent, RecordEvent, StreamWaits, HostWaits,
      Copy,    nullptr,        nullptr,      nullptr,     nullptr,     nullptr,
  };
  return &kFunctions;
}

RecordedCuda::Memory RecordedCuda::Allocate(int64_t bytes, uint8_t value) {
  auto* const made = new std::vector<uint8_t>(bytes, value);
  std::lock_guard<std::mutex> lock(mutex_);
  memory_[made->data()] = bytes;
  return {made, [this](std::vector<uint8_t>* freed) {
            {
              std::lock_guard<std::mutex> lock(mutex_);
              memory_.erase(freed->data());
            }
            delete freed;
          }};
}

TfsStream RecordedCuda::NewStream() {
  std::lock_guard<std::mutex> lock(mutex_);
  return streams_.emplace_back(std::make_unique<SerialThread>()).get();
}

void RecordedCuda::Launch(TfsStream stream, std::function<void()> work) {
  static_cast<SerialThread*>(stream)->Run([this, work = std::move(work)] {
    Pause();
    work();
  });
}

void RecordedCuda::Finish(TfsStream stream) {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  static_cast<SerialThread*>(stream)->Run([&] {
    std::lock_guard<std::mutex> lock(mutex);
    done = true;
    changed.notify_one();
  });
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return done; });
}

void RecordedCuda::FinishAll() {
  std::vector<TfsStream> all;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& stream : streams_) all.push_back(stream.get());
  }
  for (const TfsStream stream : all) Finish(stream);
}

void RecordedCuda::FailCall(int n) {
  std::lock_guard<std::mutex> lock(mutex_);
  failing_ = calls_ + n;
}

std::vector<std::string> RecordedCuda::errors() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return errors_;
}

TfsCudaError RecordedCuda::Count() {
  std::lock_guard<std::mutex> lock(current->mutex_);
  return current->calls_++ == current->failing_ ? "the GPU has fallen off the bus" : nullptr;
}

TfsCudaError RecordedCuda::DeviceOfStream(TfsStream, int* device) {
  *device = 0;
  return Count();
}

TfsCudaError RecordedCuda::CreateStream(int, TfsStream* stream) {
  *stream = current->NewStream();
  return Count();
}

TfsCudaError RecordedCuda::CreateEvent(int, TfsEvent* event) {
  const TfsCudaError error = Count();
  std::lock_guard<std::mutex> lock(current->mutex_);
  *event = current->events_.emplace_back(std::make_unique<Event>()).get();
  return error;
}

TfsCudaError RecordedCuda::RecordEvent(int, TfsEvent event, TfsStream stream) {
  if (const TfsCudaError error = Count()) return error;
  auto* const marked = static_cast<Event*>(event);
  std::lock_guard<std::mutex> lock(marked->mutex);
  static_cast<SerialThread*>(stream)->Run([marked, number = ++marked->recorded] {
    std::lock_guard<std::mutex> lock(marked->mutex);
    marked->completed = number;
    marked->changed.notify_all();
  });
  return nullptr;
}

TfsCudaError RecordedCuda::StreamWaits(int, TfsStream stream, TfsEvent event) {
  if (const TfsCudaError error = Count()) return error;
  auto* const awaited = static_cast<Event*>(event);
  std::lock_guard<std::mutex> lock(awaited->mutex);
  static_cast<SerialThread*>(stream)->Run([awaited, number = awaited->recorded] { Wait(awaited, number); });
  return nullptr;
}

TfsCudaError RecordedCuda::HostWaits(int, TfsEvent event) {
  if (const TfsCudaError error = Count()) return error;
  auto* const awaited = static_cast<Event*>(event);
  int64_t recorded = 0;
  {
    std::lock_guard<std::mutex> lock(awaited->mutex);
    recorded = awaited->recorded;
  }
  Wait(awaited, recorded);
  return nullptr;
}

TfsCudaError RecordedCuda::Copy(int, void* to, const void* from, int64_t bytes, TfsStream stream) {
  if (const TfsCudaError error = Count()) return error;
  current->Launch(stream, [to, from, bytes] {
    std::lock_guard<std::mutex> lock(current->mutex_);
    if (current->Exists(to, bytes) && current->Exists(from, bytes)) {
      std::memcpy(to, from, bytes);
    } else {
      current->errors_.push_back("a copy of " + std::to_string(bytes) + " bytes uses memory that was freed");
    }
  });
  return nullptr;
}

void RecordedCuda::Wait(Event* event, int64_t recorded) {
  std::unique_lock<std::mutex> lock(event->mutex);
  event->changed.wait(lock, [&] { return event->completed >= recorded; });
}

bool RecordedCuda::Exists(const void* begin, int64_t bytes) const {
  const auto* const first = static_cast<const uint8_t*>(begin);
  auto after = memory_.upper_bound(first);
  if (after == memory_.begin()) return false;
  --after;
  return first + bytes <= after->first + after->second;
}

// Lets other threads overtake this one, for up to 300 us.
void RecordedCuda::Pause() {
  int64_t microseconds = 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    microseconds = random_() % 4 * 100;
  }
  if (microseconds > 0) std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

}  // namespace tf_strategies
