#include "ops/transport/progress_thread.h"

#include "ops/base/cpu.h"
#include "ops/base/scheduling.h"

namespace tf_strategies {
namespace {

// The thread polls for this time after the last event. Then it sleeps until the transport has an event. If there
// are more ranks than cores, polling takes time from a peer: an all-reduce of 4 MB among 4 ranks on two cores took
// 2.5 ms with 5 us, and 4.5 ms with 60 us.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kSpinInCrowd{5};
// A polling thread keeps its core for this time after an event, if each rank has a core. Then it yields.
constexpr std::chrono::microseconds kKeepCore{20};
constexpr int kSleepMs = 50;  // the longest sleep while operations are outstanding: they may have deadlines
// While callers poll at least once within this time, the thread parks, and the transport is not armed. Peers then need
// not signal it at each message. This is not done with a network transport, which needs polling to send its buffers.
constexpr std::chrono::milliseconds kPark{2};
// A caller polls at most for the first time, and stops earlier if no event has happened within the second.
constexpr std::chrono::milliseconds kCallerPolls{10};
constexpr std::chrono::milliseconds kCallerPollsWithoutEvent{1};

}  // namespace

ProgressThread::ProgressThread(Transport* transport, Work* work, Options options)
    : transport_(transport), work_(work), options_(options) {}

void ProgressThread::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ProgressThread::Join() { thread_.join(); }

bool ProgressThread::PollOnce() {
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (!work_->Ended()) Poll();
  const bool idle = work_->Moving() == 0 && !work_->Ended();
  Deliver(&lock);
  return idle;
}

bool ProgressThread::PollUntilIdle() {
  Lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || work_->Moving() > 0 || work_->Ended()) return false;
  const auto begin = Clock::now();
  auto last_event = begin;
  do {
    if (Poll()) {
      last_event = Clock::now();
    } else {
      Pause(last_event);
    }
  } while (work_->Moving() == 1 && completed_.empty() && last_event - begin < kCallerPolls &&
           Clock::now() - last_event < kCallerPollsWithoutEvent);
  const bool idle = work_->Moving() == 0 && !work_->Ended();
  if (idle) caller_polls_.fetch_add(1);
  Deliver(&lock);
  return idle;
}

void ProgressThread::WakeIfNotAwake() {
  if (state_.load() != State::kAwake) WakeUp();
}

void ProgressThread::WakeUp() {
  {
    std::lock_guard<std::mutex> lock(parking_);
    unpark_ = true;
  }
  unparked_.notify_one();
  transport_->Wake();
}

void ProgressThread::Run() {
  if (options_.prefers_short_turns) PreferShortTurns();
  const auto spin = options_.crowded ? kSpinInCrowd : kSpin;
  auto last_event = Clock::now();
  for (;;) {
    Lock lock(mutex_);
    const bool moved = !work_->Ended() && Poll();
    if (work_->Ended()) return Deliver(&lock);
    if (moved) {
      last_event = Clock::now();
      Deliver(&lock);
    } else if (work_->Outstanding() > 0 && Clock::now() - last_event <= spin) {
      lock.unlock();
      Pause(last_event);
    } else if (options_.parks && CallersPoll() && work_->Outstanding() == 0) {
      Park(&lock);
    } else {
      Sleep(&lock);
    }
  }
}

bool ProgressThread::Poll() { return work_->Poll() || !completed_.empty(); }

// Calls the completions without the mutex, because they may submit again.
void ProgressThread::Deliver(Lock* lock) {
  std::vector<std::pair<Done, Status>> completed;
  completed.swap(completed_);
  lock->unlock();
  for (auto& [done, status] : completed) done(status);
}

void ProgressThread::Pause(Clock::time_point last_event) const {
  if (options_.crowded || Clock::now() - last_event > kKeepCore) {
    std::this_thread::yield();
  } else {
    RelaxCpu();
  }
}

// Returns true if callers have polled since the last call.
bool ProgressThread::CallersPoll() {
  const uint64_t before = std::exchange(caller_polls_before_, caller_polls_.load());
  return before != caller_polls_before_;
}

// Waits, without the mutex, until the callers have not polled for a while or unpark this thread.
void ProgressThread::Park(Lock* lock) {
  state_.store(State::kParked);
  lock->unlock();
  bool needed = work_->HasNews();
  while (!needed) {
    std::unique_lock<std::mutex> parking(parking_);
    needed = unparked_.wait_for(parking, kPark, [this] { return std::exchange(unpark_, false); }) ||
             !CallersPoll();
  }
  state_.store(State::kAwake);
}

void ProgressThread::Sleep(Lock* lock) {
  const int longest = work_->Outstanding() > 0 ? kSleepMs : options_.idle_sleep_ms;
  state_.store(State::kAsleep);
  bool needed;
  {
    std::lock_guard<std::mutex> parking(parking_);
    needed = std::exchange(unpark_, false);
  }
  needed = needed || work_->HasNews() || !transport_->Arm();
  lock->unlock();
  if (!needed) transport_->Wait(longest);
  state_.store(State::kAwake);
}

}  // namespace tf_strategies
